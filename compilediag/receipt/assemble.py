"""Builds the receipt of a run: pure, redacted, and the same for the same events.

It also adds to a receipt what is found out beside its own run, by a second start or by pairs of
runs.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from compilediag._version import __version__
from compilediag.diagnosis.divergence import build_ranks_section
from compilediag.diagnosis.figures.caches import build_cache_section
from compilediag.diagnosis.figures.devices import (
    build_cudagraph_section,
    build_memory_section,
    build_syncs_section,
)
from compilediag.diagnosis.figures.goodput import build_goodput_section
from compilediag.diagnosis.figures.invocations import (
    build_invocations_section,
    build_shapes_section,
    build_throughput_section,
)
from compilediag.diagnosis.figures.recorded import (
    add_logged_throughput,
    are_logged_losses_finite,
    build_ablations_section,
    build_loops_section,
    build_tracked_section,
    describe_unlisted_runs,
    get_logged_counts,
    get_logged_steps,
    list_ablation_artifacts,
)
from compilediag.diagnosis.figures.steps import build_steps_section, list_timings
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.compiles import (
    MAX_FRAMES,
    build_compile_section,
    build_write_tracing,
    count_events_left_out,
    make_finding_record,
)
from compilediag.receipt.finding_keys import assign_keys
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.sanitize import list_working_directories, sanitize
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.identity import (
    Completeness,
    Configuration,
    Environment,
    Header,
    NumericsFlags,
    Producer,
    Redactions,
    Run,
    Sources,
)
from compilediag.receipt.schema.receipt import (
    MIN_READER_VERSION,
    SCHEMA,
    SCHEMA_VERSION,
    Checks,
    Failure,
    Receipt,
)
from compilediag.receipt.schema.record import Record, make_record
from compilediag.receipt.schema.running import Overhead
from compilediag.rules.candidates import list_changes
from compilediag.timeline.recorded import are_losses_finite
from compilediag.timeline.timeline import (
    Process,
    Timeline,
    find_lead_process,
    find_world_size,
    list_present_ranks,
)
from compilediag_harness.redaction.redactor import Redactor, list_secret_values
from compilediag_harness.wire import make_jsonable

if TYPE_CHECKING:
    from compilediag.rules.diagnose import Diagnosis


_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|out of memory|DefaultCPUAllocator: can't allocate|oom-kill",
    re.IGNORECASE,
)

MAX_TRIED = 200  #: Findings for which it is found out whether a change can be tried.
TAIL_BYTES = 8 * 1024  #: Longest log tail and failure reason stored.


def build_receipt(timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata) -> Receipt:
    """Build the receipt of one run. No string in it holds a secret that `redact` recognises.

    Raises:
        msgspec.ValidationError: a fact has another type than its field declares.
    """
    started = [process.started for process in timeline.processes if process.started is not None]
    of_processes = [secret for start in started for secret in list_secret_values(start.argv, {})]
    of_parent = list_secret_values(run.argv, run.environment)
    redactor = Redactor([*run.secret_values, *of_parent, *of_processes])
    unsafe = _build_unredacted(timeline, diagnosis, run, redactor)
    redactor.counts.clear()  # each placeholder is counted once, where it stands in the receipt
    receipt, finite = sanitize(unsafe, redactor, list_working_directories(timeline))
    findings = tuple(_lead_on(finding, receipt) for finding in assign_keys(receipt.findings))
    record = Redactions(count=sum(redactor.counts.values()), rules=tuple(sorted(redactor.counts)))
    header = receipt.header
    return replace(
        receipt,
        findings=findings,
        header=replace(header, run=replace(header.run, redactions=record)),
        checks=replace(receipt.checks, values_finite=finite),
    )


def _lead_on(finding: FindingRecord, receipt: Receipt) -> FindingRecord:
    """Lead from a finding to its explanation, where `fix` knows no change to try."""
    tries = finding.next is not None and finding.next.startswith("compilediag fix")
    if not tries or int(finding.id[1:]) > MAX_TRIED or list_changes(finding, receipt):
        return finding
    return replace(finding, next=f"compilediag explain {finding.id[1:]}")


def _build_unredacted(
    timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata, redactor: Redactor
) -> Receipt:
    lead = find_lead_process(timeline)
    ends = [process.ended for process in timeline.processes if process.ended is not None]
    # Calls that a recorded run makes again, with other inputs, come after the program's end.
    again_s = max((end.seconds for end in timeline.varying_ends), default=0.0)
    wall_s = None if run.wall_s is None else run.wall_s - again_s
    time = build_goodput_section(timeline, wall_s, complete=run.status == "complete")
    return Receipt(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        min_reader_version=MIN_READER_VERSION,
        receipt_id=run.receipt_id,
        status=run.status,
        verdict=cast(Any, diagnosis.verdict),
        completeness=build_completeness(timeline, diagnosis, run),
        header=build_header(timeline, run, redactor),
        environment=build_environment(timeline, run),
        compile=build_compile_section(timeline, diagnosis),
        findings=tuple(
            replace(
                make_finding_record(finding, repeatable=bool(run.argv)),
                excerpts=run.excerpts.get(finding.id, ()),
            )
            for finding in diagnosis.findings
        ),
        steps=build_steps_section(timeline, diagnosis.findings, run.warmup)
        or get_logged_steps(timeline, run.warmup),
        timings=list_timings(timeline),
        syncs=build_syncs_section(timeline),
        caches=build_cache_section(timeline),
        goodput=time,
        memory=build_memory_section(timeline),
        cudagraph=build_cudagraph_section(timeline),
        throughput=add_logged_throughput(build_throughput_section(timeline), timeline, run.warmup),
        invocations=build_invocations_section(timeline),
        shapes=build_shapes_section(timeline),
        pipeline=build_loops_section(timeline),
        ranks=build_ranks_section(timeline, diagnosis.causes, find_expected_ranks(timeline, run)),
        tracked=build_tracked_section(timeline),
        ablations=build_ablations_section(timeline),
        cost=None if run.prices is None else run.prices.compute_cost(timeline, wall_s, time),
        write_tracing=build_write_tracing(timeline),
        checks=build_checks(timeline, run),
        failure=_build_failure(timeline, run, redactor),
        overhead=make_record(
            Overhead,
            lead.ended if lead is not None else None,
            bytes_written=run.bytes_written,
            records_dropped=sum(end.records_dropped for end in ends) if ends else None,
        ),
        artifacts=(*list_ablation_artifacts(timeline), *run.artifacts),
        extensions=make_jsonable(dict(run.extensions)),
    )


def _build_failure(timeline: Timeline, run: RunMetadata, redactor: Redactor) -> Failure | None:
    """Build the failure, None for a whole run. Redacted, then cut: no half secret is left."""
    reported = (part.ended.failure for part in timeline.processes if part.ended is not None)
    reason = run.failure_reason or next(filter(None, reported), None)
    if run.status == "complete" and reason is None:
        return None
    return Failure(
        reason=None if reason is None else _cut_tail(redactor.redact_text(reason)),
        log_tail=None if run.log_tail is None else _cut_tail(redactor.redact_text(run.log_tail)),
    )


def _cut_tail(text: str) -> str:
    """Cut a text to its end, at most `TAIL_BYTES` of UTF-8, from the beginning of a line."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= TAIL_BYTES:
        return encoded.decode("utf-8")
    tail = encoded[-TAIL_BYTES:].decode("utf-8", "ignore")
    _, newline, rest = tail.partition("\n")
    return rest if newline and rest else tail


def build_checks(timeline: Timeline, run: RunMetadata) -> Checks:
    """Build the checks: yes or no, or None where nothing was observed."""
    expected, log, journal = find_expected_ranks(timeline, run), timeline.train_log, run.journal
    # Of the losses passed to a tracker, and of those that a trainer printed.
    finite = {are_losses_finite(timeline.tracked), are_logged_losses_finite(timeline)} - {None}
    failures = [part.ended.failure or "" for part in timeline.processes if part.ended is not None]
    last_words = (run.failure_reason or "", run.log_tail or "", *failures)
    no_oom = None
    if run.status != "complete":
        # Of a run that was killed for an unknown reason it is not known.
        no_oom = False if any(map(_OUT_OF_MEMORY.search, last_words)) else None
    elif timeline.can_observe("steps") and (timeline.processes or (log and log.finished)):
        no_oom = True
    # Nothing was torn, dropped, silenced or cut short in any process that imported torch.
    whole = journal is None or (not journal.torn_tail and not any(journal.records_lost.values()))
    attached = [
        (part.ended is not None and part.ended.records_dropped == 0 and not part.torch.lost)
        for part in timeline.processes
        if part.torch is not None
    ]
    return Checks(
        exit_code_zero=None if run.exit_code is None else run.exit_code == 0,
        steps_present=bool(timeline.steps or (log and (log.ended_steps or log.step_lines))),
        losses_finite=all(finite) if finite else None,
        no_oom=no_oom,
        evidence_complete=whole and bool(attached) and all(attached) and not timeline.lost,
        all_ranks_reported=None
        if expected is None
        else set(list_present_ranks(timeline)) >= set(range(expected)),
    )


LOST_REASONS = ("bad_json", "bad_payload_hash", "too_long", "unknown_kind")
"""Always in the receipt, in this order; a reader may add others."""


def build_completeness(timeline: Timeline, diagnosis: Diagnosis, run: RunMetadata) -> Completeness:
    """Build the section of how much of the evidence arrived."""
    journal, agreement = run.journal, diagnosis.agreement
    lost: dict[str, int] = dict.fromkeys(LOST_REASONS, 0)
    if journal is not None:
        lost.update(journal.records_lost)
    return Completeness(
        journal_records=journal.records if journal is not None else None,
        journal_torn_tail=journal.torn_tail if journal is not None else None,
        records_lost=lost,
        ranks_expected=find_expected_ranks(timeline, run),
        ranks_present=list_present_ranks(timeline),
        sources=msgspec.convert({**agreement.sources, "agree": agreement.agree}, Sources),
        differences=tuple(agreement.differences),
        numbers={**agreement.numbers, **get_logged_counts(timeline)},
        reasons=tuple(list_missing_evidence(timeline)),
    )


def find_expected_ranks(timeline: Timeline, run: RunMetadata) -> int | None:
    """Find the world size given to the launcher, else that of the processes."""
    if run.ranks_expected is not None:
        return run.ranks_expected
    return find_world_size(timeline) or (1 if timeline.processes else None)


def list_missing_evidence(timeline: Timeline) -> list[str]:
    """List what could not be observed and why, each once."""
    missing = [
        f"{hook}: {loss}"
        for process in timeline.processes
        if process.torch is not None
        for hook, loss in process.torch.lost.items()
    ]
    missing += [f"{loss.source}: {loss.reason}" for loss in timeline.lost]
    for process in timeline.processes:
        if process.journal_limit_bytes is None:
            continue
        # Large enough to be left out, and no loss: counts are made of the rest.
        left_out = process.ended.records_left_out if process.ended is not None else {}
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        missing.append(
            f"journal: over {process.journal_limit_bytes >> 20} MiB; it has every compile and "
            f"break, and not all steps, spans and reasons ({kinds or 'not counted'} left out)"
        )
    if timeline.text_log is not None and timeline.text_log.over_limit:
        missing.append(
            "torch_logs.txt: over its limit and not compared; the counts are of the events and of "
            "torch's metrics"
        )
    if timeline.train_log is not None:
        missing += [f"train_log: {note}" for note in timeline.train_log.notes]
    if (unlisted := describe_unlisted_runs(timeline)) is not None:
        missing.append(unlisted)
    if events := count_events_left_out(timeline):
        missing.append(f"compile.events: {events} later compiles are counted and not listed")
    if (frames := len(timeline.frames) - MAX_FRAMES) > 0:
        missing.append(f"compile.frames_detail: {frames} more frames are counted and not listed")
    return list(dict.fromkeys(missing))


def build_header(timeline: Timeline, run: RunMetadata, redactor: Redactor) -> Header:
    """Build the header: who wrote the receipt, of which code, in which configuration and run."""
    lead = find_lead_process(timeline)
    started = lead.started if lead is not None else None
    argv = run.argv or (started.argv if started is not None else ())
    # What `environment.py` of the harness recorded about numerics and speed, if anything.
    precision = lead.facts.get("precision") if lead is not None else None
    flags = {"precision": precision, **_get_dict(lead, "numerics_flags"), **_merge_requests(lead)}
    precision = flags["precision"]
    variables = {str(name): str(value) for name, value in _get_dict(lead, "env").items()}
    return Header(
        created_at_utc=run.created_at_utc,
        producer=Producer(name="compilediag", version=__version__),
        provenance=run.provenance,
        configuration=Configuration(
            name=run.configuration_name or _name_program(argv),
            precision=None if precision is None else str(precision),
            past_limit=any(part.facts.get("past_limit") for part in timeline.processes) or None,
            numerics_flags=NumericsFlags(**_convert_values(NumericsFlags, flags)),
        ),
        run=make_record(
            Run,
            run,
            rank=(lead.rank or 0) if lead is not None else None,
            world_size=find_world_size(timeline) or (1 if timeline.processes else None),
            argv_redacted=redactor.redact_argv(argv),
            env_allowlisted=redactor.redact_environment(run.environment or variables),
        ),
    )


def _merge_requests(lead: Process | None) -> dict[str, Any]:
    """Merge the arguments of all `torch.compile` calls of a process: those in common; where they
    differ, texts are listed and booleans left out."""
    recorded = lead.facts.get("compile_requests") if lead is not None else None
    requests = cast(list[Mapping[str, Any]], recorded) if isinstance(recorded, list) else []
    common: dict[str, Any] = {}
    for name in ("backend", "mode", "dynamic", "fullgraph", "cudagraphs"):
        values = list(dict.fromkeys(request.get(name) for request in requests))
        if len(values) == 1:
            common[name] = values[0]
        elif name in ("backend", "mode"):
            common[name] = ", ".join(sorted(str(value) for value in values if value is not None))
    return {name: value for name, value in common.items() if value not in (None, "")}


def _get_dict(process: Process | None, name: str) -> Mapping[str, Any]:
    """Get a fact of a process that is a mapping; empty where it was not read."""
    recorded = process.facts.get(name) if process is not None else None
    return cast(Mapping[str, Any], recorded) if isinstance(recorded, Mapping) else {}


_TYPES: Mapping[Any, Collection[type]] = {
    bool | None: (bool,),
    int | None: (int,),
    float | None: (int, float),
}


def _convert_values(kind: type[Record], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of a record's fields for text, booleans and numbers: None where a value is
    of another type, but the text of any value where text is declared."""
    converted: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = values.get(field.name)
        if field.type == str | None:
            converted[field.name] = None if value is None else str(value)
        elif field.type in _TYPES:
            converted[field.name] = value if type(value) in _TYPES[field.type] else None
    return converted


def _name_program(argv: Sequence[str]) -> str:
    """Name the script or module that a command line runs: comparable runs mostly share it."""
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


def build_environment(timeline: Timeline, run: RunMetadata) -> Environment:
    """Build the environment: machine and versions, as the lead process recorded them."""
    lead = find_lead_process(timeline)
    facts = {
        **(lead.facts if lead is not None else {}),
        **run.tool_versions,
        "num_threads": _get_dict(lead, "numerics_flags").get("num_threads"),
    }
    torch = lead.torch if lead is not None else None
    if torch is not None:
        facts |= {"torch": torch.torch, "torch_git": torch.torch_git}
    if lead is not None and lead.started is not None and facts.get("python") is None:
        facts["python"] = lead.started.python
    gpus = facts.get("gpus")
    return Environment(
        **_convert_values(Environment, facts),
        gpus=tuple(cast(Sequence[Any], make_jsonable(gpus)))
        if isinstance(gpus, (list, tuple))
        else None,
        hooks_available=dict(torch.hooks) if torch is not None else None,
        compile_flags=make_jsonable(dict(_get_dict(lead, "compile"))),
    )


def extend_receipt(
    receipt: Receipt,
    timeline: Timeline,
    findings: Iterable[Finding],
    secret_values: Sequence[str] = (),
    **sections: Record,
) -> Receipt:
    """Add these findings after the receipt's own, numbered from its last, and put these sections in
    place of its own; redacted and bounded like the rest. `timeline`: what it was made from."""
    numbered = enumerate(findings, start=len(receipt.findings) + 1)
    rows = [make_finding_record(replace(finding, id=f"F{number}")) for number, finding in numbered]
    redactor, directories = Redactor(tuple(secret_values)), list_working_directories(timeline)
    added, _ = sanitize(rows, redactor, directories)
    safe, finite = sanitize([*sections.values()], redactor, directories)
    checks = receipt.checks
    return replace(
        receipt,
        verdict="findings" if added and receipt.verdict == "clean" else receipt.verdict,
        findings=assign_keys((*receipt.findings, *added)),
        checks=checks if finite else replace(checks, values_finite=False),
        **dict(zip(sections, safe, strict=True)),
    )
