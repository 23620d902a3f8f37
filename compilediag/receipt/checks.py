"""Answers of a receipt that are yes or no, and what measuring cost."""

from __future__ import annotations

import re

from compilediag.diagnosis.figures.train_log import logged_losses_finite
from compilediag.receipt.identity import ranks_expected
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Checks
from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.running import Overhead
from compilediag.timeline.timeline import Timeline, lead_process, ranks_present
from compilediag.timeline.tracked import losses_finite

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|out of memory|DefaultCPUAllocator: can't allocate|oom-kill",
    re.IGNORECASE,
)


def overhead_of(timeline: Timeline, run: RunMetadata) -> Overhead:
    """What measuring cost: seconds of the lead process, records of all."""
    ends = [process.ended for process in timeline.processes if process.ended is not None]
    lead = lead_process(timeline)
    return record_from(
        Overhead,
        lead.ended if lead is not None else None,
        bytes_written=run.bytes_written,
        records_dropped=sum(end.records_dropped for end in ends) if ends else None,
    )


def checks_of(timeline: Timeline, run: RunMetadata) -> Checks:
    """Yes or no, or None where nothing was observed."""
    expected = ranks_expected(timeline, run)
    return Checks(
        exit_code_zero=None if run.exit_code is None else run.exit_code == 0,
        steps_present=bool(timeline.steps) or _steps_logged(timeline),
        losses_finite=_losses_finite(timeline),
        no_oom=_no_oom(timeline, run),
        evidence_complete=evidence_complete(timeline, run),
        all_ranks_reported=None
        if expected is None
        else set(ranks_present(timeline)) >= set(range(expected)),
    )


def _steps_logged(timeline: Timeline) -> bool:
    log = timeline.train_log
    return log is not None and bool(log.ended_steps or log.step_lines)


def _losses_finite(timeline: Timeline) -> bool | None:
    """Of the losses passed to a tracker, and of those that a trainer printed."""
    known = {losses_finite(timeline.tracked), logged_losses_finite(timeline)} - {None}
    return all(known) if known else None


def _no_oom(timeline: Timeline, run: RunMetadata) -> bool | None:
    """False when the run ran out of memory; None when it was killed for an unknown reason."""
    if run.status != "complete" and any(map(_OUT_OF_MEMORY.search, _last_words(timeline, run))):
        return False
    log = timeline.train_log
    seen_to_end = bool(timeline.processes) or (log is not None and log.finished)
    return True if run.status == "complete" and timeline.observes("steps") and seen_to_end else None


def _last_words(timeline: Timeline, run: RunMetadata) -> list[str]:
    ended = [item.ended.failure or "" for item in timeline.processes if item.ended is not None]
    return [run.failure_reason or "", run.log_tail or "", *ended]


def evidence_complete(timeline: Timeline, run: RunMetadata) -> bool:
    """Nothing was torn, dropped, silenced or cut short in any process that imported torch."""
    journal = run.journal
    whole = journal is None or (not journal.torn_tail and not any(journal.records_lost.values()))
    attached = [process for process in timeline.processes if process.torch is not None]
    ended = all(
        process.ended is not None and process.ended.records_dropped == 0 for process in attached
    )
    silenced = any(process.torch is not None and process.torch.lost for process in attached)
    return whole and bool(attached) and ended and not silenced and not timeline.lost
