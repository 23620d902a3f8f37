"""tlparse's counts of a trace, compared with the timeline of the same run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from compilediag.readers.journal import open_regular
from compilediag.readers.lenient_json import parse
from compilediag.timeline.timeline import Timeline

MAX_LINE_BYTES = 64 << 20
MAX_NAMED = 5
"""Ids named in one sentence."""
_ATTEMPT = re.compile(r"_\d+\Z")

_COUNTED = (b'"compilation_metrics"', b'"recompile_reasons"', b'"dynamo_graph_break_reason"')

Ids = Counter[tuple[int, str]]
"""How often each compile id of each process occurs; ids repeat after a reset."""


class TlparseCounts(NamedTuple):
    """The counts of one report, or the sum of several.

    They are of attempts: tlparse has a row for those that failed too, where `Timeline.counts` has
    compiles that ended with code.
    """

    rows: Ids
    """Metrics rows of forward compiles."""
    questions: Ids
    """Lists of recompile reasons."""
    directory: frozenset[str] = frozenset()
    """Compile ids that the report has a folder for."""
    breaks: frozenset[str] = frozenset()
    """Compile ids in which a graph broke."""


def read_counts(folder: str) -> TlparseCounts | None:
    """The counts of a report; None where its files are not what tlparse writes."""
    directory = open_regular(os.path.join(folder, "compile_directory.json"))
    if directory is None:
        return None
    with directory:
        listed = parse(directory.read(MAX_LINE_BYTES))
    file = open_regular(os.path.join(folder, "raw.jsonl"))
    if file is None:
        return None
    rows, questions, breaks = Ids(), Ids(), set[str]()
    with file:
        while line := file.readline(MAX_LINE_BYTES):
            _count(line, rows, questions, breaks)
    if not isinstance(listed, dict):
        return None
    keys = cast("dict[str, Any]", listed)
    ids = frozenset(_ATTEMPT.sub("", key.strip("[]")) for key in keys)
    return TlparseCounts(rows, questions, ids, frozenset(breaks))


def _count(line: bytes, rows: Ids, questions: Ids, breaks: set[str]) -> None:
    if not any(name in line for name in _COUNTED):
        return
    record = _object(parse(line))
    key = (_int(record.get("thread")), _compile_id(record))
    artifact = _object(record.get("artifact")).get("name")
    if isinstance(record.get("compilation_metrics"), dict):
        if _object(record["compilation_metrics"]).get("is_forward") is not False:
            rows[key] += 1
    elif artifact == "recompile_reasons":
        questions[key] += 1
    elif artifact == "dynamo_graph_break_reason":
        breaks.add(key[1])


def _object(value: Any) -> dict[str, Any]:
    """A JSON object; empty for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _compile_id(record: dict[str, Any]) -> str:
    autograd = record.get("compiled_autograd_id")
    own = f"{_int(record.get('frame_id'))}/{_int(record.get('frame_compile_id'))}"
    return own if autograd is None else f"!{_int(autograd)}/{own}"


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def differences(reports: Sequence[TlparseCounts], timeline: Timeline) -> list[str]:
    """Where tlparse's counts and the timeline's differ, in sentences; empty where they agree."""
    theirs, ours = _sum(reports), _counts_of(timeline)
    sentences = [
        *_differ("compiles", theirs.rows, ours.rows),
        *_differ("reasons to compile again", theirs.questions, ours.questions),
    ]
    # torch 2.7 leaves breaks out of its trace that are in its log: only the other way counts.
    if unseen := sorted(theirs.breaks - ours.breaks):
        sentences.append(f"tlparse has graph breaks that compilediag has not, in {_names(unseen)}")
    missing = sorted({compile_id for _, compile_id in ours.rows} - theirs.directory)
    if reports and missing:
        sentences.append(f"tlparse's directory has no entry for {_names(missing)}")
    return sentences


def _sum(reports: Sequence[TlparseCounts]) -> TlparseCounts:
    return TlparseCounts(
        sum((item.rows for item in reports), Ids()),
        sum((item.questions for item in reports), Ids()),
        frozenset[str]().union(*(item.directory for item in reports)),
        frozenset[str]().union(*(item.breaks for item in reports)),
    )


def _counts_of(timeline: Timeline) -> TlparseCounts:
    """What tlparse would count of the run."""
    pids = {item.index: item.started.pid for item in timeline.processes if item.started is not None}
    rows = (
        (pids.get(item.process, -1), _ATTEMPT.sub("", item.compile_id))
        for item in timeline.compiles
        if item.forward and item.has_row
    )
    questions = (
        (pids.get(item.process, -1), _ATTEMPT.sub("", item.compile_id))
        for item in timeline.recompiles
    )
    breaks = (_ATTEMPT.sub("", name) for site in timeline.breaks for name in site.compile_ids)
    return TlparseCounts(Ids(rows), Ids(questions), breaks=frozenset(breaks))


def _differ(what: str, theirs: Ids, ours: Ids) -> list[str]:
    if theirs == ours:
        return []
    sides = [
        f"{_names([compile_id for _, compile_id in side.elements()])} only in {whose}"
        for side, whose in ((theirs - ours, "tlparse"), (ours - theirs, "compilediag"))
        if side
    ]
    counts = f"tlparse counts {theirs.total()} {what}, compilediag {ours.total()}"
    return [f"{counts}: {'; '.join(sides)}"]


def _names(ids: list[str]) -> str:
    shown = ", ".join(ids[:MAX_NAMED])
    return shown if len(ids) <= MAX_NAMED else f"{shown} and {len(ids) - MAX_NAMED} more"
