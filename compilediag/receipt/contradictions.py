"""Contradictions within a receipt: counts, lists and verdict that cannot all be true.

A receipt with the right types may still be damaged or made up. No receipt of ours contradicts
itself, so the gate refuses one that does, and figures of many leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from compilediag.diagnosis.codes import RECOMPILES
from compilediag.errors import ReceiptContradictory
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record, iterate_fields

LARGEST = 2**53  #: No count is larger, nor exact in every reader of JSON.
_COUNTED = ("completeness", "compile", "findings", "steps", "cudagraph", "invocations", "syncs")
"""Sections whose whole numbers are counts, sizes, steps and lines: never negative."""
_FREE = frozenset({"evidence", "numbers", "grown_bytes"})
"""Fields in them that may hold any number; a process may also shrink around a compile."""
_MAX_SENTENCES = 5


def find_contradictions(receipt: Receipt) -> tuple[str, ...]:
    """Find what cannot be true, one sentence each, at most five; empty for a receipt of ours."""
    parts = (_find_impossible_numbers, _check_lists, _check_verdict)
    return tuple(text for part in parts for text in part(receipt))[:_MAX_SENTENCES]


def refuse_contradictions(receipt: Receipt, name: str) -> None:
    """Raise for a receipt from which nothing may be concluded; `name` is what the error calls it.

    Raises:
        ReceiptContradictory: it contradicts itself.
    """
    if sentences := find_contradictions(receipt):
        raise ReceiptContradictory(
            f"{name} contradicts itself, so it is damaged or was changed: {'; '.join(sentences)}. "
            "Make it again: `compilediag analyze` of the run's folder, or a new run."
        )


def _find_impossible_numbers(receipt: Receipt) -> Iterable[str]:
    for section in _COUNTED:
        for path, number in _iterate_numbers(getattr(receipt, section), section):
            if number < 0:
                yield f"{path} is {number}, which is less than nothing"
            elif number > LARGEST:
                yield f"{path} is {number}, which is more than can be counted"
    for name, value in iterate_fields(receipt.compile.time_s):
        if value is not None and value < 0:
            yield f"compile.time_s.{name} is {value:g}, which is less than nothing"


def _iterate_numbers(value: Any, path: str) -> Iterable[tuple[str, int]]:
    if type(value) is int:
        yield path, value
    elif isinstance(value, Record):
        for name, member in iterate_fields(value):
            if name not in _FREE:
                yield from _iterate_numbers(member, f"{path}.{name}")
    elif isinstance(value, Mapping):
        for name, member in cast(Mapping[str, Any], value).items():
            yield from _iterate_numbers(member, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(cast(Sequence[Any], value)):
            yield from _iterate_numbers(member, f"{path}[{index}]")


def _check_lists(receipt: Receipt) -> Iterable[str]:
    """Check counts against what they count. A list that was cut has as much as is stored."""
    part = receipt.compile
    events, frames = part.events, part.frames_detail
    cut = {text.partition(":")[0] for text in receipt.completeness.reasons}
    all_events = "compile.events" not in cut
    all_frames = "compile.frames_detail" not in cut
    again = sum(event.kind == "recompile" for event in events)
    for name, counted, listed, whole in (
        ("compiles", part.compiles, len(events), all_events),
        ("recompiles", part.recompiles, again, all_events),
        ("graphs", part.graphs, sum(bool(event.graph_ops) for event in events), all_events),
        ("frames", part.frames, len(frames), all_frames),
        ("eager_fallbacks", part.eager_fallbacks, sum(f.ran_eager for f in frames), all_frames),
    ):
        if counted < listed or (whole and counted != listed):
            yield f"compile.{name} is {counted}, and {listed} are listed"
    sites = len({(site.file, site.line) for site in part.breaks})
    if not sites <= part.graph_breaks <= len(part.breaks):
        yield f"compile.graph_breaks is {part.graph_breaks}, and {sites} are listed"
    if part.recompiles > part.compiles:
        yield f"compile.recompiles is {part.recompiles} of {part.compiles} compiles"
    if part.recompile_limit_hits > part.frames:
        yield f"compile.recompile_limit_hits is {part.recompile_limit_hits} of {part.frames} frames"


def _check_verdict(receipt: Receipt) -> Iterable[str]:
    """Check verdict and findings; findings and the compiles that they are about name each other."""
    serious = [finding.rule for finding in receipt.findings if finding.severity != "info"]
    if receipt.verdict == "clean" and serious:
        yield f"the verdict is clean, and there are findings: {', '.join(serious[:3])}"
    if receipt.verdict == "findings" and not serious:
        yield "the verdict is findings, and there is none"
    ids = [finding.id for finding in receipt.findings]
    if len(set(ids)) != len(ids):
        yield "two findings have one id"
    events = receipt.compile.events
    named = {cause.finding for event in events for cause in event.causes} - {None}
    named |= {site.finding for site in receipt.compile.breaks} - {None}
    if missing := sorted(named.difference(ids), key=str):
        yield f"a compile or graph break names the finding {missing[0]}, which is not there"
    if receipt.status == "complete" and (code := receipt.header.run.exit_code):
        yield f"the status is complete, and the exit code {code}"
    seen = receipt.compile
    if seen.recompiles or seen.recompile_limit_hits or receipt.verdict == "blind":
        return  # where something was not seen, a recompile may be known without its compile
    about = next((finding for finding in receipt.findings if finding.rule in RECOMPILES), None)
    if about is not None:
        yield f"{about.id} ({about.rule}) is about a recompile, and there is none"
