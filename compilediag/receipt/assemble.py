"""Builds the receipt of a run: pure, redacted, and the same for the same events; and adds to one
what is found out beside its own run, by a second start or by pairs of runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from compilediag._version import __version__
from compilediag.diagnosis.figures.caches import cache_section, precompiled_records
from compilediag.diagnosis.figures.devices import cudagraph_section, memory_section, syncs_section
from compilediag.diagnosis.figures.goodput import goodput_section
from compilediag.diagnosis.figures.invocations import (
    invocations_section,
    shapes_section,
    throughput_section,
)
from compilediag.diagnosis.figures.recorded import (
    ablation_artifacts,
    ablations_section,
    logged_losses_finite,
    logged_steps,
    loops_section,
    profiles_section,
    tracked_section,
    with_logged,
)
from compilediag.diagnosis.figures.steps import steps_section, timings_of
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.ranks.divergence import ranks_section
from compilediag.receipt.compiles import compile_section, finding_record, witness_section
from compilediag.receipt.identity import (
    completeness_of,
    environment_of,
    header_of,
    ranks_expected,
)
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.sanitize import sanitized, working_directories
from compilediag.receipt.schema.identity import Redactions
from compilediag.receipt.schema.receipt import (
    MIN_READER_VERSION,
    SCHEMA,
    SCHEMA_VERSION,
    Checks,
    Failure,
    Receipt,
)
from compilediag.receipt.schema.record import Record, record_from
from compilediag.receipt.schema.running import Overhead
from compilediag.timeline.recorded import losses_finite
from compilediag.timeline.timeline import Timeline, lead_process, ranks_present
from compilediag_harness.redaction.redactor import Redactor, secret_values
from compilediag_harness.wire import plain

if TYPE_CHECKING:
    from compilediag.rules.diagnose import Diagnosis


_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|out of memory|DefaultCPUAllocator: can't allocate|oom-kill",
    re.IGNORECASE,
)


TAIL_BYTES = 8 * 1024
"""Longest log tail and failure reason kept."""


def build(timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata) -> Receipt:
    """The receipt of one run. No string in it holds a secret that `redact` recognises."""
    started = [item.started for item in timeline.processes if item.started is not None]
    of_processes = [secret for each in started for secret in secret_values(each.argv, {})]
    of_parent = secret_values(run.argv, run.environment)
    redactor = Redactor([*run.secret_values, *of_parent, *of_processes])
    unsafe = _unredacted(timeline, diagnosis, run, redactor)
    redactor.counts.clear()  # each placeholder is counted once, where it stands in the receipt
    receipt, finite = sanitized(unsafe, redactor, working_directories(timeline))
    redactions = Redactions(
        count=sum(redactor.counts.values()), rules=tuple(sorted(redactor.counts))
    )
    header = receipt.header
    return replace(
        receipt,
        header=replace(header, run=replace(header.run, redactions=redactions)),
        checks=replace(receipt.checks, values_finite=finite),
    )


def _unredacted(
    timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata, redactor: Redactor
) -> Receipt:
    """The receipt before it is made safe to write."""
    time = goodput_section(
        timeline, run.wall_s, complete=run.status == "complete", attempt=run.attempt
    )
    return Receipt(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        min_reader_version=MIN_READER_VERSION,
        receipt_id=run.receipt_id,
        status=run.status,
        verdict=cast(Any, diagnosis.verdict),
        completeness=completeness_of(timeline, diagnosis, run),
        header=header_of(timeline, run, __version__, redactor),
        environment=environment_of(timeline, run),
        compile=compile_section(timeline, diagnosis),
        findings=tuple(
            finding_record(item, repeatable=bool(run.argv)) for item in diagnosis.findings
        ),
        steps=steps_section(timeline, diagnosis.findings, run.warmup)
        or logged_steps(timeline, run.warmup),
        timings=timings_of(timeline),
        syncs=syncs_section(timeline),
        caches=cache_section(timeline),
        precompiled=precompiled_records(timeline),
        goodput=time,
        memory=memory_section(timeline),
        cudagraph=cudagraph_section(timeline),
        throughput=with_logged(throughput_section(timeline), timeline, run.warmup),
        invocations=invocations_section(timeline),
        shapes=shapes_section(timeline),
        pipeline=loops_section(timeline),
        profiles=profiles_section(timeline),
        ranks=ranks_section(timeline, diagnosis.causes, ranks_expected(timeline, run), run.ranks),
        tracked=tracked_section(timeline),
        ablations=ablations_section(timeline),
        cost=None if run.prices is None else run.prices.cost(timeline, run.wall_s, time),
        witness=witness_section(timeline),
        checks=checks_of(timeline, run),
        failure=_failure(timeline, run, redactor),
        overhead=overhead_of(timeline, run),
        artifacts=(*ablation_artifacts(timeline), *run.artifacts),
        extensions=plain(dict(run.extensions)),
    )


def _failure(timeline: Timeline, run: RunMetadata, redactor: Redactor) -> Failure | None:
    """Both texts are redacted before they are cut, so that no half of a secret is left."""
    reported = (item.ended.failure for item in timeline.processes if item.ended is not None)
    reason = run.failure_reason or next(filter(None, reported), None)
    if run.status == "complete" and reason is None:
        return None
    return Failure(
        reason=None if reason is None else _last(redactor.text(reason)),
        log_tail=None if run.log_tail is None else _last(redactor.text(run.log_tail)),
    )


def _last(text: str) -> str:
    """The end of a text, at most `TAIL_BYTES` of UTF-8, from the beginning of a line."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= TAIL_BYTES:
        return encoded.decode("utf-8")
    tail = encoded[-TAIL_BYTES:].decode("utf-8", "ignore")
    _, newline, rest = tail.partition("\n")
    return rest if newline and rest else tail


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
    expected, log = ranks_expected(timeline, run), timeline.train_log
    # Of the losses passed to a tracker, and of those that a trainer printed.
    finite = {losses_finite(timeline.tracked), logged_losses_finite(timeline)} - {None}
    failures = [item.ended.failure or "" for item in timeline.processes if item.ended is not None]
    last_words = (run.failure_reason or "", run.log_tail or "", *failures)
    no_oom = None
    if run.status != "complete":
        # Of a run that was killed for an unknown reason it is not known.
        no_oom = False if any(map(_OUT_OF_MEMORY.search, last_words)) else None
    elif timeline.observes("steps") and (timeline.processes or (log and log.finished)):
        no_oom = True
    return Checks(
        exit_code_zero=None if run.exit_code is None else run.exit_code == 0,
        steps_present=bool(timeline.steps or (log and (log.ended_steps or log.step_lines))),
        losses_finite=all(finite) if finite else None,
        no_oom=no_oom,
        evidence_complete=evidence_complete(timeline, run),
        all_ranks_reported=None
        if expected is None
        else set(ranks_present(timeline)) >= set(range(expected)),
    )


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


def amended(
    receipt: Receipt,
    timeline: Timeline,
    findings: Iterable[Finding],
    secret_values: Sequence[str] = (),
    **sections: Record,
) -> Receipt:
    """The receipt with these findings after its own and these sections in place of its own;
    redacted and bounded like the rest.

    Args:
        receipt: of a run.
        timeline: what it was made from.
        findings: numbered from the last of the receipt.
        secret_values: what must not stand in a receipt.
        sections: by name.
    """
    numbered = enumerate(findings, start=len(receipt.findings) + 1)
    records = [finding_record(replace(each, id=f"F{number}")) for number, each in numbered]
    redactor, directories = Redactor(tuple(secret_values)), working_directories(timeline)
    added, _ = sanitized(records, redactor, directories)
    safe, finite = sanitized([*sections.values()], redactor, directories)
    checks = receipt.checks
    return replace(
        receipt,
        verdict="findings" if added and receipt.verdict == "clean" else receipt.verdict,
        findings=(*receipt.findings, *added),
        checks=checks if finite else replace(checks, values_finite=False),
        **dict(zip(sections, safe, strict=True)),
    )
