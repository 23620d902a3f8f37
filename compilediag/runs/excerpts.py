"""Excerpts of source: the lines that findings are about, as the run had them, for its receipt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial

from compilediag.diagnosis.codes import LIMIT, get_code_info
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import compute_sha256, open_regular
from compilediag.receipt.schema.compiles import ExcerptRecord, FindingRecord, Place
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.record import make_record
from compilediag.receipt.user_line import find_leading_call
from compilediag.runs.checkout import iterate_imported
from compilediag.timeline.timeline import Timeline

AROUND = 2
"""Lines before and behind the one to look at."""
MAX_FINDINGS = 200
MAX_BYTES = 4 << 20
MAX_CHARS = 300
"""Of a line; one that is longer is left out: half of it could be half of a secret."""

Excerpts = tuple[ExcerptRecord, ...]


def read_excerpts(
    findings: Iterable[FindingRecord], timeline: Timeline, digests: Mapping[str, str]
) -> dict[str, Excerpts]:
    """Read the line that each finding is about, and the one that changes its value, by finding id.

    An event comes from anywhere, and a receipt is shared: only source below the folder of the
    program is read, what it imported that is not installed, and files that its run has `digests`
    of, by their path from that folder. What is gone, or changed since the program started, is left
    out.
    """
    started = [process.started for process in timeline.processes if process.started is not None]
    folder = started[0].cwd if started else ""
    start_s = parse_unix_s(started[0].started_utc) if started else None
    imported = frozenset(map(os.path.realpath, iterate_imported(timeline)))
    read = partial(_read_lines, folder=folder, start_s=start_s, imported=imported, digests=digests)
    texts: dict[str, list[str]] = {}
    by_finding: dict[str, Excerpts] = {}
    for finding in [*findings][:MAX_FINDINGS] if folder else ():
        made: list[ExcerptRecord] = []
        for place in _list_places(finding):
            if place.file not in texts:
                texts[place.file] = read(place.file)
            made += _cut_excerpt(place, texts[place.file])
        if made:
            by_finding[finding.id] = tuple(made)
    return by_finding


def _list_places(finding: FindingRecord) -> list[Place]:
    """List the line to look at, of an argument the call that passes it; and the line that changes
    the value, where it is another."""
    passed = get_code_info(finding.rule).owner in ("argument", "process")
    at = (finding.entered_at if passed else None) or find_leading_call(finding) or finding.location
    writers = [w for w in GuardEvidence.parse(finding.evidence).writers if not isinstance(w, str)]
    single = len({(writer.file, writer.function) for writer in writers}) == 1
    changed = finding.changed_at or finding.common_cause or (writers[0] if single else None)
    lines = {(one.file, one.line): one for one in (changed, at) if one is not None and one.line > 0}
    return (
        [] if finding.rule in LIMIT else [make_record(Place, x) for x in reversed(lines.values())]
    )


def _cut_excerpt(place: Place, lines: list[str]) -> Excerpts:
    if not place.line <= len(lines) or len(lines[place.line - 1]) > MAX_CHARS:
        return ()
    first, last = max(1, place.line - AROUND), min(len(lines), place.line + AROUND)
    while any(len(line) > MAX_CHARS for line in lines[first - 1 : place.line]):
        first += 1
    while any(len(line) > MAX_CHARS for line in lines[place.line : last]):
        last -= 1
    return (make_record(ExcerptRecord, place, first=first, lines=tuple(lines[first - 1 : last])),)


def _read_lines(
    file: str,
    *,
    folder: str,
    start_s: float | None,
    imported: frozenset[str],
    digests: Mapping[str, str],
) -> list[str]:
    """Read the lines of a file; none where they may be others than those that ran."""
    root, path = os.path.realpath(folder), os.path.realpath(os.path.join(folder, file))
    digest = digests.get(os.path.relpath(path, root).replace(os.sep, "/"))
    known = digest is not None or path in imported or path.startswith(os.path.join(root, ""))
    stream = open_regular(path) if known else None
    if stream is None:
        return []
    with stream:
        status = os.fstat(stream.fileno())
        same = path.endswith(".py") and start_s is not None and int(status.st_mtime) <= start_s
        if digest is not None and status.st_size <= MAX_BYTES:
            same = compute_sha256(stream) == digest
            stream.seek(0)
        if not same or status.st_size > MAX_BYTES:
            return []
        # As Python counts lines, which a form feed or a separator of Unicode does not end.
        text = stream.read().decode("utf-8", "replace")
        return text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
