"""The steps, goodput, CUDA-graph, overhead and checks sections of a receipt."""

from __future__ import annotations

import re
from collections import Counter

from compilediag.diagnosis.figures.goodput import account
from compilediag.receipt.build.identity import lead_process, ranks_expected
from compilediag.receipt.build.memory import has_gpu
from compilediag.receipt.build.run_metadata import RunMetadata
from compilediag.receipt.build.train_log import logged_losses_finite
from compilediag.receipt.schema.receipt import Checks
from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.running import CudagraphSection, GoodputSection, Overhead
from compilediag.timeline.cudagraphs import skip_reason
from compilediag.timeline.timeline import Timeline, ranks_present
from compilediag.timeline.tracked import losses_finite

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|out of memory|DefaultCPUAllocator: can't allocate|oom-kill",
    re.IGNORECASE,
)


def goodput_section(timeline: Timeline, run: RunMetadata) -> GoodputSection | None:
    """Wall time taken apart; None when there was neither a wall time nor an event."""
    if not timeline.observes("steps"):
        return None  # a trace of compiles does not show where the rest of the time went
    ended = lead_process(timeline)
    orderly = run.status == "complete" or (ended is not None and ended.ended is not None)
    found = account(timeline, run.wall_s, orderly=orderly)
    if found is None:
        return None
    unmeasured = _unmeasured(timeline, run)
    return GoodputSection(
        wall_s=found.wall_ns / 1e9,
        goodput_s=None if found.goodput_ns is None else found.goodput_ns / 1e9,
        badput_s={
            name: None if taken is None or (not taken and name in unmeasured) else taken / 1e9
            for name, taken in found.badput_ns.items()
        },
        fraction=found.fraction,
    )


def _unmeasured(timeline: Timeline, run: RunMetadata) -> set[str]:
    """Categories that may hold time nobody measured: zero there would be a claim."""
    unmeasured = {"cudagraph_capture"} if has_gpu(timeline) is not False else set[str]()
    # Only of a first attempt it is certain that no progress was lost to a restart.
    return unmeasured | {"wasted"} if run.attempt > 1 else unmeasured


def cudagraph_section(timeline: Timeline) -> CudagraphSection:
    """Of the lead process. Not applicable without a CUDA device: torch then counts every graph as
    skipped."""
    applicable = has_gpu(timeline)
    lead = timeline.lead
    run = next((item for item in timeline.cudagraphs if item.process == lead), None)
    if applicable is False and (run is None or not run.recordings):
        return CudagraphSection(applicable=False)
    if run is None:
        # The trees were never imported: there was nothing to record.
        ended = (process := lead_process(timeline)) is not None and process.ended is not None
        none = 0 if applicable and ended else None
        return CudagraphSection(applicable=applicable, recordings=none, replays=none)
    if run.lost is not None:
        return CudagraphSection(applicable=applicable, pool_bytes=run.pool_bytes)
    return record_from(
        CudagraphSection,
        run,
        applicable=True,
        recordings_by_reason=run.reasons,
        skips_by_reason=_skips_by_reason(timeline),
        distinct_shapes=run.distinct_sizes,
        threads=len({item.thread for item in run.recorded}),
        padding_waste_fraction=_padding_in_graphs(timeline, lead),
    )


def _padding_in_graphs(timeline: Timeline, process: int) -> float | None:
    """Of one callable: rows of two may cost very different work, and are not added up."""
    own = [item for item in timeline.fixed_shapes if item.process == process]
    padded = [item.graph_padding for item in own if item.graph_calls]
    return padded[0] if len(padded) == 1 else None


def _skips_by_reason(timeline: Timeline) -> dict[str, int]:
    """As torch warned: it warns of most only once, and of some not at all."""
    reasons = (skip_reason(warning.text) for warning in timeline.warnings)
    return dict(Counter(reason for reason in reasons if reason is not None))


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
