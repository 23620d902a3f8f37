"""The completeness, header and environment of a receipt."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from compilediag.diagnosis.figures.recorded import logged_counts, unlisted_runs
from compilediag.receipt.compiles import FRAMES_KEPT, events_left_out
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.identity import (
    Completeness,
    Environment,
    Header,
    Lane,
    NumericsFlags,
    Producer,
    Run,
    Sources,
)
from compilediag.receipt.schema.record import Record, record_from
from compilediag.timeline.timeline import Process, Timeline, lead_process, ranks_present, world_size
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.wire import plain

if TYPE_CHECKING:
    from compilediag.rules.diagnose import Diagnosis

PRODUCER = "compilediag"

LOST_REASONS = ("bad_json", "bad_payload_hash", "too_long", "unknown_kind")
"""Always in the receipt, in this order; a reader may add others."""


def completeness_of(timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata) -> Completeness:
    """How much of the evidence arrived."""
    journal, agreement = run.journal, diagnosis.agreement
    lost: dict[str, int] = dict.fromkeys(LOST_REASONS, 0)
    if journal is not None:
        lost.update(journal.records_lost)
    return Completeness(
        journal_records=journal.records if journal is not None else None,
        journal_torn_tail=journal.torn_tail if journal is not None else None,
        records_lost=lost,
        ranks_expected=ranks_expected(timeline, run),
        ranks_present=ranks_present(timeline),
        sources=msgspec.convert({**agreement.sources, "agree": agreement.agree}, Sources),
        differences=tuple(agreement.differences),
        numbers={**agreement.numbers, **logged_counts(timeline)},
        reasons=tuple(missing_evidence(timeline)),
    )


def ranks_expected(timeline: Timeline, run: RunMetadata) -> int | None:
    """The world size given to the launcher, else that of the processes; None where nothing
    attached."""
    if run.ranks_expected is not None:
        return run.ranks_expected
    return world_size(timeline) or (1 if timeline.processes else None)


def missing_evidence(timeline: Timeline) -> list[str]:
    """What could not be observed and why, each once."""
    found = [
        f"{hook}: {loss}"
        for process in timeline.processes
        if process.torch is not None
        for hook, loss in process.torch.lost.items()
    ]
    found += [f"{item.source}: {item.reason}" for item in timeline.lost]
    for process in timeline.processes:
        if process.journal_limit_bytes is None:
            continue
        # Large enough to be left out, and no loss: counts are made of the rest.
        left_out = process.ended.records_left_out if process.ended is not None else {}
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        found.append(
            f"journal: over {process.journal_limit_bytes >> 20} MiB; it has every compile and "
            f"break, and not all steps, spans and reasons ({kinds or 'not counted'} left out)"
        )
    if timeline.text_log is not None and timeline.text_log.over_limit:
        found.append(
            "torch_logs.txt: over its limit and not compared; the counts are of the events and of "
            "torch's metrics"
        )
    if timeline.train_log is not None:
        found += [f"train_log: {note}" for note in timeline.train_log.notes]
    if (unlisted := unlisted_runs(timeline)) is not None:
        found.append(unlisted)
    if events := events_left_out(timeline):
        found.append(f"compile.events: {events} later compiles are counted and not listed")
    if (frames := len(timeline.frames) - FRAMES_KEPT) > 0:
        found.append(f"compile.frames_detail: {frames} more frames are counted and not listed")
    if counted := len(timeline.counted_ranks):
        found.append(f"ranks: {counted} ranks are in the section of ranks, and in no other")
    return list(dict.fromkeys(found))


def header_of(timeline: Timeline, run: RunMetadata, version: str, redactor: Redactor) -> Header:
    """Who wrote the receipt, of which code, in which lane and run."""
    lead = lead_process(timeline)
    started = lead.started if lead is not None else None
    argv = run.argv or (started.argv if started is not None else ())
    # What `environment.py` of the harness recorded about numerics and speed, if anything.
    precision = lead.facts.get("precision") if lead is not None else None
    flags = {"precision": precision, **_mapping(lead, "numerics_flags"), **_requested(lead)}
    precision = flags["precision"]
    variables = {str(name): str(value) for name, value in _mapping(lead, "env").items()}
    return Header(
        created_at_utc=run.created_at_utc,
        producer=Producer(name=PRODUCER, version=version),
        provenance=run.provenance,
        lane=Lane(
            name=run.lane_name or _name_from(argv),
            preset=run.preset,
            precision=None if precision is None else str(precision),
            numerics_flags=NumericsFlags(**_coerced(NumericsFlags, flags)),
        ),
        run=record_from(
            Run,
            run,
            rank=(lead.rank or 0) if lead is not None else None,
            world_size=world_size(timeline) or (1 if timeline.processes else None),
            argv_redacted=redactor.argv(argv),
            env_allowlisted=redactor.environment(run.environment or variables),
        ),
    )


def _requested(lead: Process | None) -> dict[str, Any]:
    """The arguments that all `torch.compile` calls of a process had in common; where they differ,
    texts are listed and booleans left out."""
    found = lead.facts.get("compile_requests") if lead is not None else None
    requests = cast(list[Mapping[str, Any]], found) if isinstance(found, list) else []
    if not requests:
        return {}
    common: dict[str, Any] = {}
    for name in ("backend", "mode", "dynamic", "fullgraph", "cudagraphs"):
        values = list(dict.fromkeys(request.get(name) for request in requests))
        if len(values) == 1:
            common[name] = values[0]
        elif name in ("backend", "mode"):
            common[name] = ", ".join(sorted(str(value) for value in values if value is not None))
    return {name: value for name, value in common.items() if value not in (None, "")}


def _mapping(process: Process | None, name: str) -> Mapping[str, Any]:
    """A fact of a process that is a mapping; empty where it was not read."""
    found = process.facts.get(name) if process is not None else None
    return cast(Mapping[str, Any], found) if isinstance(found, Mapping) else {}


def _coerced(kind: type[Record], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record's fields for text, booleans and numbers: None where a value is of
    another type, but the text of any value where text is declared."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = values.get(field.name)
        if field.type == str | None:
            found[field.name] = None if value is None else str(value)
        elif field.type in _TYPES:
            found[field.name] = value if type(value) in _TYPES[field.type] else None
    return found


def _name_from(argv: Sequence[str]) -> str:
    """The script or module that a command line runs: comparable runs mostly share it."""
    words = iter(argv)
    for word in words:
        if word == "-m":
            return next(words, "unknown")
        if word == "-c":
            return "-c"
        if word and not word.startswith("-"):
            name = os.path.basename(word)
            if not name.startswith("python"):
                return name
    return "unknown"


def environment_of(timeline: Timeline, run: RunMetadata) -> Environment:
    """The machine and the versions, as the lead process recorded them."""
    lead = lead_process(timeline)
    facts = {
        **(lead.facts if lead is not None else {}),
        **run.tool_versions,
        "num_threads": _mapping(lead, "numerics_flags").get("num_threads"),
    }
    torch = lead.torch if lead is not None else None
    if torch is not None:
        facts |= {"torch": torch.torch, "torch_git": torch.torch_git}
    if lead is not None and lead.started is not None and facts.get("python") is None:
        facts["python"] = lead.started.python
    gpus = facts.get("gpus")
    return Environment(
        **_coerced(Environment, facts),
        gpus=tuple(cast(Sequence[Any], plain(gpus))) if isinstance(gpus, (list, tuple)) else None,
        hooks_available=dict(torch.hooks) if torch is not None else None,
        compile_flags=plain(dict(_mapping(lead, "compile"))),
    )


_TYPES: Mapping[Any, Collection[type]] = {
    bool | None: (bool,),
    int | None: (int,),
    float | None: (int, float),
}
