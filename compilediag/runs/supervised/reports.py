"""tlparse's reports of a run: made when the target has ended, linked, and compared with our counts.

Whatever goes wrong here costs the reports and is said; the receipt does not depend on them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from compilediag.readers.storage import is_uri
from compilediag.runs.run_directory import ARTIFACTS
from compilediag.runs.tools.tlparse import INDEX, LINKED, reports_of
from compilediag.runs.tools.tlparse_counts import counted_in, differences

if TYPE_CHECKING:
    from compilediag.runs.tools.tlparse import Report
    from compilediag.timeline.timeline import Timeline

TRACES = "torch_trace"
REPORTS = "tlparse"
"""Folders of the run's artifacts."""
NO_TRACE = (
    "tlparse has no trace of this run to report: torch wrote none into the run's folder, as is so "
    "where TORCH_TRACE names another one, or where nothing was compiled"
)
MOST_REPORTS = 16
"""Of the logs with the first names; a report a process is made."""

_ROLES = {
    "index.html": "tlparse_report",
    "raw.jsonl": "tlparse_raw",
    "compile_directory.json": "tlparse_directory",
    "chromium_events.json": "tlparse_timeline",
}


class Linked(NamedTuple):
    """What is to be said of the reports, to the user and in the receipt."""

    notes: tuple[str, ...] = ()
    extensions: Mapping[str, object] = {}


def traces_in(run_dir: str) -> list[str]:
    """The traces that a run kept."""
    return _files(os.path.join(run_dir, ARTIFACTS, TRACES))


def link_reports(
    logs: Sequence[str], run_dir: str, timeline: Timeline, known: Sequence[str]
) -> Linked:
    """Makes a report of every trace, and compares what they count with the timeline.

    Args:
        logs: the traces.
        run_dir: where the reports go, among the artifacts.
        timeline: what was counted while the program ran, or read from the same traces.
        known: values that are secret, replaced wherever they are.
    """
    try:
        return _linked(logs, run_dir, timeline, known)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:300]
        return Linked((f"tlparse's report is not linked, by a fault of compilediag: {said}",))


def _linked(logs: Sequence[str], run_dir: str, timeline: Timeline, known: Sequence[str]) -> Linked:
    if not logs:
        return Linked((NO_TRACE,))
    folder = os.path.join(run_dir, ARTIFACTS, REPORTS)
    reports = reports_of(logs[:MOST_REPORTS], folder, known)
    notes = [f"{os.path.basename(item.log)}: {item.problem}" for item in reports if item.problem]
    if len(logs) > MOST_REPORTS:
        notes.append(f"tlparse reports {MOST_REPORTS} of the {len(logs)} traces")
    compared = _compared(reports, timeline) if not notes else None
    made = [os.path.relpath(item.folder) for item in reports if item.folder is not None]
    if made:
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        notes.append(f"tlparse's report: {os.path.join(made[0], INDEX)}{more}")
    notes += [f"tlparse and compilediag disagree: {item}" for item in compared or ()]
    told = {
        "reports": [_told(item, run_dir) for item in reports],
        "compared": compared is not None,
        "differences": compared or [],
    }
    return Linked(tuple(notes), {"tlparse": told})


def _compared(reports: Sequence[Report], timeline: Timeline) -> list[str] | None:
    """The differences; None where not every report could be counted."""
    counts = [counted_in(item.folder) for item in reports if item.folder is not None]
    found = [item for item in counts if item is not None]
    return differences(found, timeline) if len(found) == len(reports) else None


def _told(report: Report, run_dir: str) -> dict[str, object]:
    return {
        "trace": report.log if is_uri(report.log) else os.path.relpath(report.log, run_dir),
        "report": report.folder and os.path.relpath(report.folder, run_dir),
        "problem": report.problem,
        "records_left_out": report.left_out,
    }


def linked_files(run_dir: str) -> list[str]:
    """Files of the reports that a receipt links; their indexes lead to the others."""
    folder = os.path.join(run_dir, ARTIFACTS, REPORTS)
    try:
        numbers = sorted((name for name in os.listdir(folder) if name.isdecimal()), key=int)
    except OSError:
        return []
    paths = [os.path.join(folder, number, name) for number in numbers for name in LINKED]
    return [path for path in paths if os.path.isfile(path)]


def role_of(uri: str) -> str | None:
    """The role of a linked file of a report; None for any other file."""
    parts = PurePath(uri).parts
    return _ROLES.get(parts[-1]) if parts[:2] == (ARTIFACTS, REPORTS) else None


def _files(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [item.path for item in entries if item.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)
