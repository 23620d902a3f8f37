"""What tlparse counts in a trace, compared with what was counted while the program ran."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from compilediag.readers.journal import open_regular
from compilediag.readers.lenient_json import parse
from compilediag.timeline.timeline import Timeline

LONGEST_LINE_BYTES = 64 << 20
MOST_NAMED = 5
"""Ids named in one sentence."""
_ATTEMPT = re.compile(r"_\d+\Z")

_COUNTED = (b'"compilation_metrics"', b'"recompile_reasons"', b'"dynamo_graph_break_reason"')

Ids = Counter[tuple[int, str]]
"""How often each compile id of each process occurs; ids repeat after a reset."""


class Counted(NamedTuple):
    """The counts of one report."""

    rows: Ids
    """Metrics rows of forward compiles."""
    questions: Ids
    """Times torch said why it compiled again."""
    directory: frozenset[str]
    """Compile ids that the report has a folder for."""
    breaks: frozenset[str] = frozenset()
    """Compile ids in which a graph broke."""


def counted_in(folder: str) -> Counted | None:
    """The counts of a report; None where its files are not what tlparse writes."""
    directory = open_regular(os.path.join(folder, "compile_directory.json"))
    if directory is None:
        return None
    with directory:
        listed = parse(directory.read(LONGEST_LINE_BYTES))
    file = open_regular(os.path.join(folder, "raw.jsonl"))
    if file is None:
        return None
    rows: Ids = Counter()
    questions: Ids = Counter()
    breaks: set[str] = set()
    with file:
        for line in iter(lambda: file.readline(LONGEST_LINE_BYTES), b""):
            _count(line, rows, questions, breaks)
    if not isinstance(listed, dict):
        return None
    keys = cast("dict[str, Any]", listed)
    listed_ids = frozenset(_ATTEMPT.sub("", key.strip("[]")) for key in keys)
    return Counted(rows, questions, listed_ids, frozenset(breaks))


def _count(line: bytes, rows: Ids, questions: Ids, breaks: set[str]) -> None:
    if not any(name in line for name in _COUNTED):
        return
    raw = parse(line)
    if not isinstance(raw, dict):
        return
    fields = cast("dict[str, Any]", raw)
    key = (_number(fields.get("thread")), _compile_id(fields))
    metrics: Any = fields.get("compilation_metrics")
    if isinstance(metrics, dict):
        if cast("dict[str, Any]", metrics).get("is_forward") is not False:
            rows[key] += 1
    elif _artifact(fields) == "recompile_reasons":
        questions[key] += 1
    elif _artifact(fields) == "dynamo_graph_break_reason":
        breaks.add(key[1])


def _artifact(fields: dict[str, Any]) -> object:
    artifact: Any = fields.get("artifact")
    return cast("dict[str, Any]", artifact).get("name") if isinstance(artifact, dict) else None


def _compile_id(fields: dict[str, Any]) -> str:
    within = fields.get("compiled_autograd_id")
    own = f"{_number(fields.get('frame_id'))}/{_number(fields.get('frame_compile_id'))}"
    return own if within is None else f"!{_number(within)}/{own}"


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def differences(reports: Iterable[Counted], timeline: Timeline) -> list[str]:
    """Where tlparse and we count different numbers, in sentences; empty where they agree."""
    found = list(reports)
    rows = _added(item.rows for item in found)
    questions = _added(item.questions for item in found)
    pids = {
        process.index: process.started.pid
        for process in timeline.processes
        if process.started is not None
    }
    own_rows = Counter(
        (pids.get(item.process, -1), _ATTEMPT.sub("", item.compile_id))
        for item in timeline.compiles
        if item.forward and item.has_row
    )
    own_questions = Counter(
        (pids.get(item.process, -1), _ATTEMPT.sub("", item.compile_id))
        for item in timeline.recompiles
    )
    told = [
        *_differ("compiles", rows, own_rows),
        *_differ("reasons to compile again", questions, own_questions),
    ]
    # torch 2.7 leaves breaks out of its trace that we know of its log: only the other way counts.
    own_breaks = {_ATTEMPT.sub("", name) for site in timeline.breaks for name in site.compile_ids}
    unseen = sorted({name for item in found for name in item.breaks} - own_breaks)
    if unseen:
        told.append(f"tlparse has graph breaks that compilediag has not, in {_named(unseen)}")
    listed = frozenset(name for item in found for name in item.directory)
    missing = sorted({compile_id for _, compile_id in own_rows} - listed)
    if found and missing:
        told.append(f"tlparse's directory has no entry for {_named(missing)}")
    return told


def _added(parts: Iterable[Ids]) -> Ids:
    total: Ids = Counter()
    for part in parts:
        total += part
    return total


def _differ(what: str, theirs: Ids, ours: Ids) -> list[str]:
    if theirs == ours:
        return []
    more, fewer = theirs - ours, ours - theirs
    sides = [
        f"{_named([compile_id for _, compile_id in side.elements()])} only in {whose}"
        for side, whose in ((more, "tlparse"), (fewer, "compilediag"))
        if side
    ]
    counts = f"tlparse counts {theirs.total()} {what}, compilediag {ours.total()}"
    return [f"{counts}: {'; '.join(sides)}"]


def _named(ids: list[str]) -> str:
    shown = ", ".join(ids[:MOST_NAMED])
    return shown if len(ids) <= MOST_NAMED else f"{shown} and {len(ids) - MOST_NAMED} more"
