"""tlparse's reports of a run: made when the target has ended, linked, and compared with our counts.

Whatever goes wrong here costs the reports and is reported; the receipt does not depend on them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compilediag.readers.compression import open_stream
from compilediag.readers.storage import is_uri
from compilediag.runs.run_directory import ARTIFACTS, REPORTS, TRACES
from compilediag.runs.tools.tlparse import INDEX, Report, reports_of
from compilediag.runs.tools.tlparse_counts import differences, read_counts
from compilediag.runs.tools.tlparse_log import TooLarge, copy_log
from compilediag.timeline.timeline import Timeline

NO_TRACE = (
    "tlparse has no trace of this run to report: torch wrote none into the run's folder, as is so "
    "where TORCH_TRACE names another one, or where nothing was compiled"
)
MAX_REPORTS = 16
"""One report a process; of more logs those with the first names."""


class LinkedReports(NamedTuple):
    """Notes on the reports for the user, and the receipt's extension."""

    notes: tuple[str, ...] = ()
    extensions: Mapping[str, object] = {}


def traces_in(run_dir: str) -> list[str]:
    """The traces that a run kept."""
    try:
        with os.scandir(os.path.join(run_dir, ARTIFACTS, TRACES)) as entries:
            return sorted(item.path for item in entries if item.is_file(follow_symlinks=False))
    except OSError:
        return []


def clean_traces(run_dir: str, attached: int, known: Sequence[str]) -> tuple[str, ...]:
    """Takes the secrets out of traces that a process wrote which compilediag was not attached to;
    an attached one writes its trace without them.

    Args:
        run_dir: the run's directory.
        attached: processes that do so themselves; each writes one trace at most.
        known: secret values.

    Returns sentences for the user.
    """
    traces = traces_in(run_dir)
    if len(traces) <= attached:
        return ()
    notes: list[str] = []
    for path in traces:
        cleaned = f"{path}.cleaned"
        try:
            with open(cleaned, "xb") as target:
                copy_log(open_stream(path).chunks(), target, known)
            os.replace(cleaned, path)
        except (OSError, TooLarge) as error:
            for name in (path, cleaned):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            notes.append(
                f"{os.path.basename(path)} was removed: compilediag was not attached to the "
                f"process that wrote it, and no copy without secrets could be made: {error}"
            )
    return tuple(notes)


def link_reports(
    logs: Sequence[str], run_dir: str, timeline: Timeline, known: Sequence[str]
) -> LinkedReports:
    """Makes a report of every trace, and compares their counts with the timeline.

    Args:
        logs: the traces.
        run_dir: where the reports go, among the artifacts.
        timeline: folded from the events of the run, or from the same traces.
        known: secret values, which are redacted.
    """
    if not logs:
        return LinkedReports((NO_TRACE,))
    try:
        return _linked(logs, run_dir, timeline, known)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:300]
        return LinkedReports(
            (f"tlparse's report is not linked, by a fault of compilediag: {fault}",)
        )


def _linked(
    logs: Sequence[str], run_dir: str, timeline: Timeline, known: Sequence[str]
) -> LinkedReports:
    folder = os.path.join(run_dir, ARTIFACTS, REPORTS)
    reports = reports_of(logs[:MAX_REPORTS], folder, known)
    notes = [f"{os.path.basename(item.log)}: {item.problem}" for item in reports if item.problem]
    if len(logs) > MAX_REPORTS:
        notes.append(f"tlparse reports {MAX_REPORTS} of the {len(logs)} traces")
    compared = _compared(reports, timeline) if not notes else None
    made = [os.path.relpath(item.folder) for item in reports if item.folder is not None]
    if made:
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        notes.append(f"tlparse's report: {os.path.join(made[0], INDEX)}{more}")
    notes += [f"tlparse and compilediag disagree: {item}" for item in compared or ()]
    section = {
        "reports": [
            {
                "trace": item.log if is_uri(item.log) else os.path.relpath(item.log, run_dir),
                "report": item.folder and os.path.relpath(item.folder, run_dir),
                "problem": item.problem,
                "records_left_out": item.left_out,
            }
            for item in reports
        ],
        "compared": compared is not None,
        "differences": compared or [],
    }
    return LinkedReports(tuple(notes), {"tlparse": section})


def _compared(reports: Sequence[Report], timeline: Timeline) -> list[str] | None:
    """The differences; None where the counts of some report cannot be read."""
    counts = [read_counts(item.folder) for item in reports if item.folder is not None]
    known = [item for item in counts if item is not None]
    return differences(known, timeline) if len(known) == len(reports) else None
