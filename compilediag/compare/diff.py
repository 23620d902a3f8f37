"""The comparison of two receipts of one configuration: counts, causes, breaks, frames, facts.
Seconds are shown and never judged: two machines, or two moments of one, are not comparable.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from compilediag.compare.changed_data import (
    OPTION,
    CacheKeyChange,
    ChangedData,
    FieldChange,
    build_changed_data,
    find_changed_cache_keys,
    find_work_changes,
)
from compilediag.compare.changes import (
    CountChange,
    KnownChange,
    Place,
    Relocated,
    RunChanges,
    find_changes,
    format_place,
    relocate,
)
from compilediag.compare.keys import CHANGED_BY_FIXES, BreakKey, CauseKey, list_configuration_fields
from compilediag.compare.run_baseline import RunBaseline, build_run_baseline
from compilediag.errors import ConfigurationsNotComparable
from compilediag.json_document import Document
from compilediag.receipt.file import ADDED_TO_CONFIGURATION, parse_version
from compilediag.receipt.finding_keys import normalize_file, normalize_function
from compilediag.receipt.schema.compiles import FindingRecord, UserCallRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten
from compilediag.receipt.schema.tracked import TrackedRecord
from compilediag.receipt.user_line import find_leading_call, is_foreign

_VARYING = frozenset({"load_avg_1m", "TORCHINDUCTOR_CACHE_DIR"})
"""Facts that differ between any two runs; torch itself sets the variable when it compiles."""

PHASE_CHANGE_S = 0.1
"""Least change of a phase of compiling that is listed: a busy machine makes smaller ones."""

_SECONDS = {
    "wall": "goodput.wall_s",
    "goodput": "goodput.goodput_s",
    "compile": "compile.time_s.total",
    "recompile": "compile.time_s.recompile",
    "median step": "steps.median",
    "longest step": "steps.max",
}
_THROUGHPUT = (
    *("steps_per_s", "samples_per_s", "tokens_per_s", "tokens_per_s_per_device"),
    *("tflops_per_s_per_device", "mfu", "loss", "grad_norm"),
)
_MEASUREMENTS = {
    **{name: f"throughput.{name}" for name in _THROUGHPUT},
    "goodput_fraction": "goodput.fraction",
    "times_as_fast_as_eager": "against_eager.ratio.middle",
    "host_peak_bytes": "memory.host_peak_bytes",
    "allocated_peak_bytes": "memory.allocator.allocated_peak_bytes",
    "reserved_peak_bytes": "memory.allocator.reserved_peak_bytes",
}
"""Names as they are shown, and the fields of the receipt."""


class CauseChange(Struct, frozen=True):
    """One cause and the recompiles it had a part in."""

    key: CauseKey
    before: int
    after: int
    line: int | None  #: Where it is in the later receipt that has it.
    expected: str | None
    actual: str | None
    #: The call of the program's own that led there, if the place is in a library or in torch.
    call: UserCallRecord | None = None


class BreakChange(BreakKey, frozen=True):
    """One graph-break site, with file and reason as the receipt has them."""

    reason: str = field(name="reason")
    before: int  #: Sites like this one.
    after: int
    line: int  #: Of one of them, in the later receipt that has it.
    call: UserCallRecord | None = None  #: As in `CauseChange`.


class FrameChange(Struct, frozen=True):
    """One frame: compiles in both receipts, 0 where it is absent, and whether it ran eager."""

    file: str
    function: str
    before: int
    after: int
    eager_before: bool
    eager_after: bool
    present_before: bool
    present_after: bool


class TimingChange(Struct, frozen=True):
    """Seconds of both receipts; advisory: nothing may pass or fail because of it."""

    name: str
    before_s: float | None
    after_s: float | None
    comparable: bool = True  #: False: of runs that did other work.


class NumberChange(Struct, frozen=True):
    """A measurement in both receipts, its unit in its name; None where not measured. Advisory."""

    name: str
    before: float | None
    after: float | None
    comparable: bool = True  #: False: of runs that did other work.


class Comparison(Struct, frozen=True):
    """The changes from one receipt to another."""

    before_id: str
    after_id: str
    verdict: tuple[str | None, str | None]
    status: tuple[str, str]
    counts: tuple[CountChange, ...]  #: Every count, changed or not.
    causes_new: tuple[CauseChange, ...]
    causes_gone: tuple[CauseChange, ...]
    causes_same: tuple[CauseChange, ...]
    breaks_new: tuple[BreakChange, ...]
    breaks_gone: tuple[BreakChange, ...]
    breaks_same: tuple[BreakChange, ...]
    frames: tuple[FrameChange, ...]  #: Frames that came, went or were compiled otherwise or again.
    findings_new: tuple[str, ...]  #: Codes with their variable or location, "CD103 pos.pe".
    findings_gone: tuple[str, ...]
    environment: tuple[FieldChange, ...]
    provenance: tuple[FieldChange, ...]
    checks: tuple[FieldChange, ...]
    timings: tuple[TimingChange, ...]
    numbers: tuple[NumberChange, ...] = ()
    #: Configurations of tracked runs that differ: their measurements are not compared.
    tracked_configurations: tuple[FieldChange, ...] = field(default=(), name="tracked_lanes")
    #: The same keys elsewhere, by place: "forward of model.py".
    moves: tuple[FieldChange, ...] = ()
    #: Fields of the configuration that the version of the older receipt did not have.
    configuration_not_recorded: tuple[FieldChange, ...] = field(default=(), name="lane_not_told")
    command: tuple[FieldChange, ...] = ()  #: Arguments and environment variables that differ.
    #: Lookups of compile caches that missed, whose keys are not those of the earlier run.
    cache_keys: tuple[CacheKeyChange, ...] = ()
    changed_data: ChangedData | None = None  #: What was accepted as changed on purpose, if any.

    @property
    def changed(self) -> bool:
        """True if anything but code, environment and timings differs."""
        pairs = (*self.counts, *self.causes_same, *self.breaks_same)
        came = (*self.causes_new, *self.breaks_new, *self.findings_new)
        went = (*self.causes_gone, *self.breaks_gone, *self.findings_gone)
        same = all(pair.before == pair.after for pair in pairs)
        return bool(came or went or self.frames or not same or self.verdict[0] != self.verdict[1])


_Runs = tuple[RunBaseline, RunBaseline]


class DiffDocument(Document, frozen=True, kw_only=True):
    """A comparison with the answer to whether anything changed, for programs."""

    changed: bool
    comparison: Comparison


def compare(before: Receipt, after: Receipt, *, other_data: bool = False) -> Comparison:
    """Compare two receipts. With `other_data` the data, and what else a fix changes, may differ.

    Raises:
        ConfigurationsNotComparable: they differ in a field of the configuration, or in the work
            that was done; the message names it.
    """
    different, not_recorded = _diff_configurations(before, after)
    _refuse_other_configurations(different, other_data=other_data)
    data = build_changed_data(before, after, different) if other_data else None
    if data is None:
        _refuse_other_work(before, after)
    same_work = data is None or data.same_work
    runs = build_run_baseline(before), build_run_baseline(after)
    relocated = relocate(runs[0].baseline, runs[1].baseline)
    runs = _apply_moves(runs[0], relocated), runs[1]
    changes = find_changes(runs[0].baseline, runs[1].baseline)
    causes = [(diff.kind, _build_cause(runs, key, diff)) for key, diff in changes.causes.items()]
    breaks = [(diff.kind, _build_break(runs, key, diff)) for key, diff in changes.breaks.items()]
    back = {now: was for was, now in relocated.places.items()}
    return Comparison(
        before_id=before.receipt_id,
        after_id=after.receipt_id,
        verdict=(before.verdict, after.verdict),
        status=(before.status, after.status),
        counts=changes.counts,
        causes_new=tuple(cause for kind, cause in causes if kind == "new"),
        causes_gone=tuple(cause for kind, cause in causes if kind == "gone"),
        causes_same=tuple(cause for kind, cause in causes if kind not in ("new", "gone")),
        breaks_new=tuple(site for kind, site in breaks if kind == "new"),
        breaks_gone=tuple(site for kind, site in breaks if kind == "gone"),
        breaks_same=tuple(site for kind, site in breaks if kind not in ("new", "gone")),
        frames=tuple(_diff_frames(*runs, changes)),
        findings_new=_list_new(before, after, relocated.places),
        findings_gone=_list_new(after, before, back),
        configuration_not_recorded=not_recorded,
        moves=tuple(
            FieldChange(move.group, format_place(move.before), format_place(move.after))
            for move in relocated.moves
        ),
        environment=_diff_fields(before.environment, after.environment, "environment"),
        provenance=_diff_fields(before.header.provenance, after.header.provenance, "provenance"),
        checks=_diff_fields(before.checks, after.checks, "checks"),
        timings=tuple(_diff_timings(before, after, same_work=same_work)),
        numbers=_diff_numbers(before, after, comparable=same_work),
        tracked_configurations=tuple(
            diff
            for name, old, new in _pair_tracked_runs(before, after)
            for diff in _diff_fields(old.config, new.config, f"tracked.{name}")
        ),
        command=tuple(_diff_commands(before, after)),
        cache_keys=find_changed_cache_keys(before, after),
        changed_data=data,
    )


def _refuse_other_work(before: Receipt, after: Receipt) -> None:
    """Refuse two runs that are known to have done different work. Where the work of one is not
    known, or was measured on another callable, it is not compared."""
    for change in find_work_changes(before, after)[:1]:
        name = change.path.partition(".")[2]
        given = before.throughput.callable if before.throughput is not None else None
        raise ConfigurationsNotComparable(
            f"The receipts are of different budgets: {given} was given {change.before} {name} and "
            f"{change.after}. Run both over the same data, for example with --steps. {_IF_A_FIX}"
        )


def _apply_moves(run: RunBaseline, relocated: Relocated) -> RunBaseline:
    now = {move.before: move.after for move in relocated.moves}
    return replace(
        run,
        baseline=relocated.baseline,
        causes={now.get(key, key): records for key, records in run.causes.items()},
        breaks={now.get(key, key): records for key, records in run.breaks.items()},
        frames={now.get(key, key): records for key, records in run.frames.items()},
    )


def _diff_timings(before: Receipt, after: Receipt, *, same_work: bool) -> Iterable[TimingChange]:
    for name, path in _SECONDS.items():
        comparable = same_work or path.startswith("compile.")
        yield TimingChange(name, _read(before, path), _read(after, path), comparable=comparable)
    # Phases of compiling that took another time; none where one run has no phases.
    old, new = before.compile.seconds, after.compile.seconds
    if old is not None and new is not None:
        for name in dict.fromkeys((*old.by_phase, *new.by_phase)):
            was, now = old.by_phase.get(name, 0.0), new.by_phase.get(name, 0.0)
            if abs(now - was) >= PHASE_CHANGE_S:
                yield TimingChange(f"compile: {name}", was, now)


def _diff_configurations(
    before: Receipt, after: Receipt
) -> tuple[tuple[FieldChange, ...], tuple[FieldChange, ...]]:
    """Compare fields: those that differ (one that a receipt lacks differs as well), and those that
    the older version lacked: old receipts stay comparable when there are more fields."""
    changes = _diff_fields(before.header.configuration, after.header.configuration, "lane")
    old = min(before, after, key=lambda receipt: parse_version(receipt.schema_version) or (0, 0))
    if not changes or before.schema_version == after.schema_version:
        return changes, ()
    fields, written = list_configuration_fields(old), parse_version(old.schema_version) or (0, 0)
    later = {path for path, since in ADDED_TO_CONFIGURATION.items() if since > written}
    absent = {f"lane.{path}" for path in later if fields.get(path) is None}
    return (
        tuple(change for change in changes if change.path not in absent),
        tuple(change for change in changes if change.path in absent),
    )


def _refuse_other_configurations(different: Sequence[FieldChange], *, other_data: bool) -> None:
    # What no fix changes: other runs altogether.
    no_fix = [i for i in different if i.path.removeprefix("lane.") not in CHANGED_BY_FIXES]
    refused = no_fix if other_data else different
    if not refused:
        return
    named = "; ".join(f"{i.path} is {i.before!r} and {i.after!r}" for i in refused)
    allowed = "" if no_fix else f" {_IF_A_FIX}"
    raise ConfigurationsNotComparable(
        f"The receipts are of different configurations: {named}.{allowed}"
    )


_IF_A_FIX = (
    f"If a fix changed that (padding, drop_last, other sizes, dynamic=), add {OPTION}: counts and "
    "causes are compared then, and no times of other work."
)


def _diff_fields(before: object, after: object, path: str) -> tuple[FieldChange, ...]:
    left, right = (dict(flatten(value, path)) for value in (before, after))
    return tuple(
        FieldChange(name, left.get(name), right.get(name))
        for name in dict.fromkeys((*left, *right))
        if left.get(name) != right.get(name) and name.rpartition(".")[2] not in _VARYING
    )


def _diff_commands(before: Receipt, after: Receipt) -> Iterable[FieldChange]:
    """Compare what a fix without an edit changes: arguments, and settings of torch."""
    old, new = before.header.run, after.header.run
    if old.argv_redacted != new.argv_redacted:
        arguments = (" ".join(run.argv_redacted) for run in (old, new))
        yield FieldChange("run.arguments", *arguments)
    yield from _diff_fields(old.env_allowlisted, new.env_allowlisted, "run.environment")


def _build_cause(runs: _Runs, key: CauseKey, change: KnownChange[Any]) -> CauseChange:
    before, after = runs
    event, cause = (after.causes.get(key) or before.causes[key])[0]
    return CauseChange(
        # As the receipt has it: a person reads it.
        key=CauseKey(key.rule, cause.variable, cause.file, key.function),
        before=change.count_before,
        after=change.count_after,
        line=cause.line,
        expected=cause.expected,
        actual=cause.actual,
        call=event.entered_at if is_foreign(None, cause.file or event.frame.file) else None,
    )


def _build_break(runs: _Runs, key: BreakKey, change: KnownChange[Any]) -> BreakChange:
    before, after = runs
    site = (after.breaks.get(key) or before.breaks[key])[-1]
    return BreakChange(
        site.file,
        key.function,
        site.category,
        site.reason,
        before=change.count_before,
        after=change.count_after,
        line=site.line,
        call=find_leading_call(site),
    )


def _diff_frames(
    before: RunBaseline, after: RunBaseline, changes: RunChanges
) -> Iterable[FrameChange]:
    for key, change in changes.frames.items():
        old, new = before.frames.get(key), after.frames.get(key)
        eager_before, eager_after = (bool(total and total.ran_eager) for total in (old, new))
        if change.kind != "same" or eager_before != eager_after:
            yield FrameChange(
                file=(new or before.frames[key]).frame.file,
                function=key.function,
                before=change.count_before,
                after=change.count_after,
                eager_before=eager_before,
                eager_after=eager_after,
                present_before=old is not None,
                present_after=new is not None,
            )


def _list_new(before: Receipt, after: Receipt, places: Mapping[Place, Place]) -> tuple[str, ...]:
    """List findings of the later receipt that the earlier one has less often, in their order;
    `places`: where those of the earlier one are in the later."""
    left = Counter(_get_finding_key(finding, places) for finding in before.findings)
    # A part that is a finding now, or that became part of one, is neither new nor gone.
    left.update((part.rule, part.variable) for finding in before.findings for part in finding.parts)
    names: list[str] = []
    for finding in after.findings:
        key = _get_finding_key(finding, {})
        left[key] -= 1
        if left[key] < 0:
            where = finding.location
            place = f"{where.function} in {where.file}" if where is not None else ""
            names.append(f"{finding.rule} {finding.variable or place}".strip())
    return tuple(names)


def _get_finding_key(finding: FindingRecord, places: Mapping[Place, Place]) -> tuple[str, ...]:
    if finding.variable or finding.location is None:
        return finding.rule, finding.variable or ""
    place = normalize_file(finding.location.file), normalize_function(finding.location.function)
    return (finding.rule, *places.get(place, place))


def _diff_numbers(before: Receipt, after: Receipt, *, comparable: bool) -> tuple[NumberChange, ...]:
    """Compare what one of the two measured; of tracked runs only those of one configuration."""
    left, right = _collect_measured(before), _collect_measured(after)
    for name, old, new in _pair_tracked_runs(before, after):
        if old.config == new.config:
            left |= {f"{name}: {metric}": value for metric, value in _collect_metrics(old).items()}
            right |= {f"{name}: {metric}": value for metric, value in _collect_metrics(new).items()}
    names = dict.fromkeys((*left, *right))
    return tuple(
        NumberChange(name, left.get(name), right.get(name), comparable=comparable) for name in names
    )


def _collect_measured(receipt: Receipt) -> dict[str, float]:
    """Collect what was measured of the whole run, beside its counts, with units in the names."""
    measured = {name: _read(receipt, path) for name, path in _MEASUREMENTS.items()}
    if receipt.cost is not None:
        measured[f"cost_{receipt.cost.currency}"] = receipt.cost.amount
    return {name: value for name, value in measured.items() if value is not None}


def _read(receipt: Receipt, path: str) -> float | None:
    """Read a field of the receipt; None where a part of the path was not measured."""
    value: Any = receipt
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _collect_metrics(run: TrackedRecord) -> dict[str, float]:
    metrics: dict[str, float | None] = {metric.name: metric.mean for metric in run.metrics}
    metrics |= {f"{name}_per_s": value for name, value in run.per_s.items()}
    if run.peak_bytes is not None and run.peak_bytes != run.peak_at_start_bytes:
        metrics["peak_bytes"] = run.peak_bytes
    return {name: value for name, value in metrics.items() if value is not None}


def _pair_tracked_runs(
    before: Receipt, after: Receipt
) -> Iterable[tuple[str, TrackedRecord, TrackedRecord]]:
    """Pair the newest tracked runs that ended well, by the names that both receipts have."""
    left, right = (
        {run.name: run for run in receipt.tracked if run.state == "finished"}
        for receipt in (before, after)
    )
    return ((name, left[name], right[name]) for name in left if name in right)
