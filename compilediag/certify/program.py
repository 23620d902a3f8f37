"""The points "program" and "exercised": both executions are of the same program, each of its own
state, and the change was executed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from compilediag.certify.calls import CallComparison, ProcessKey, identify_processes
from compilediag.certify.change import Change
from compilediag.certify.points import ExecutedState, JudgedPoint, Outcome
from compilediag.receipt.finding_keys import normalize_file
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.rules.make_finding import format_count
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness import wire
from compilediag_harness.wire import CallVaried

_SAME = (
    "os",
    "python",
    "torch",
    "torch_git",
    "triton",
    "cuda",
    "driver",
    "cpu_model",
    "gpus",
    "num_threads",
)
"""Fields of `Environment` that must be equal, where both are known."""

_PRECISION = (
    "matmul_precision",
    "allow_tf32_matmul",
    "allow_tf32_cudnn",
    "cudnn_deterministic",
    "deterministic",
    "default_dtype",
    "autocast_cpu",
    "autocast_cuda",
)
"""Fields of `NumericsFlags` by which results are coarser or finer."""

_TEST_FILE = re.compile(r"(?:/conftest|/test_[^/]*|_test)\.py$")

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)', re.MULTILINE)
"""A line of a traceback."""

_RECORDED = frozenset(
    kind.__name__
    for kind in (
        wire.CallsRecorded,
        wire.LinesPrinted,
        wire.ValuesSaved,
        wire.StateRead,
        wire.RandomStateRead,
        wire.SourcesLoaded,
        wire.LinesRun,
        wire.CallVaried,
    )
)
"""Kinds of records of which none may be left out."""


def check_program(
    before: ExecutedState, after: ExecutedState, change: Change, calls: CallComparison
) -> JudgedPoint:
    """Check that both states ran the same program to the same end, each with its own sources."""
    alike = before.problem == after.problem
    if before.problem is not None and not alike:
        why = f"the old state does not end well: {_describe_end(before)}"
        return JudgedPoint("program", "undecided", why)
    alone = sorted(change.before.keys() ^ change.after.keys())
    command = " ".join(after.receipt.header.run.argv_redacted)
    if "pytest" in command and (tests := [path for path in alone if _TEST_FILE.search(path)]):
        why = f"{tests[0]} is in one state only, and pytest looks for tests on disk"
        return JudgedPoint("program", "undecided", why)
    if after.problem is not None and not alike:
        why = f"the new state does not end well: {_describe_end(after)}"
        return JudgedPoint("program", "fails", why)
    compiles = before.receipt.compile.compiles + after.receipt.compile.compiles
    if after.problem is not None and not compiles:
        why = f"both states end before anything is compiled: {_describe_end(after)}"
        return JudgedPoint("program", "undecided", why)
    how = "" if before.problem is None else f", with {before.problem}"
    different = next(_iterate_differences(before, after, calls), None)
    if different is not None:
        return JudgedPoint("program", "fails", different)
    for what, timeline, digests in (
        ("old", before.timeline, change.before),
        ("new", after.timeline, change.after),
    ):
        lacking = _find_lack(timeline) or _find_other_source(timeline, change, digests)
        if lacking is not None:
            return JudgedPoint("program", "undecided", f"{what} state{how}: {lacking}")
    other = _find_changed_outside(before, after, change)
    other = other or _find_unlike_source(before, after, change)
    other = other or find_other_environment(before, after)
    if other is not None:
        return JudgedPoint("program", "undecided", other)
    steps, processes = len(before.timeline.steps), len(identify_processes(before.timeline))
    counts = f"{format_count(steps, 'step')}, {format_count(processes, 'process')}"
    return JudgedPoint(
        "program", "holds", f"both end alike{how}: {counts.replace('processs', 'processes')}"
    )


def _describe_end(state: ExecutedState) -> str:
    """Describe how a state ended: the line that raised comes first, the program's own where one is
    in the traceback."""
    failure = state.receipt.failure
    frames = _FRAME.findall(failure.reason or "") if failure is not None else []
    own = [frame for frame in frames if classify_ownership(frame[0]) == "user"]
    where = [f"{normalize_file(file)}:{line}: " for file, line in (own or frames)[-1:]]
    return "".join([*where, state.problem or ""])


def _iterate_differences(
    before: ExecutedState, after: ExecutedState, calls: CallComparison
) -> Iterator[str]:
    runs = before.receipt.header.run, after.receipt.header.run
    if runs[0].exit_code != runs[1].exit_code:
        yield f"exit code {runs[0].exit_code} → {runs[1].exit_code}"
    old, new = (identify_processes(state.timeline) for state in (before, after))
    if sorted(old.values()) != sorted(new.values()):
        yield f"processes with torch {len(old)} → {len(new)}"
    steps, others = _count_steps(before.timeline), _count_steps(after.timeline)
    for process in sorted({*steps, *others}):
        (count, source), (other, _) = steps[process], others[process]
        # A step that only a call marks moves with the boundary of what is compiled.
        if count != other and not (source == "call" and calls.mismatch is not None):
            yield f"steps {count} → {other}"
    flags = [s.receipt.header.configuration.numerics_flags for s in (before, after)]
    for name in _PRECISION:
        ours, theirs = (getattr(flag, name) for flag in flags)
        if ours != theirs:
            yield f"another precision: {name} {ours} → {theirs}"


def _count_steps(timeline: Timeline) -> dict[ProcessKey, tuple[int, str]]:
    keys = identify_processes(timeline)
    counts = Counter(step.process for step in timeline.steps)
    sources = {step.process: step.source for step in timeline.steps}
    return {key: (counts[index], sources.get(index, "")) for index, key in keys.items()}


def _find_lack(timeline: Timeline) -> str | None:
    """Find why the record of an execution is not whole."""
    recorded = {record.process for record in timeline.recordings}
    if not recorded:
        return "no process was recorded that imports torch"
    calling = {record.process for record in timeline.recorded_calls}
    for process in timeline.processes:
        if process.index in calling and process.ended is None:
            return "a process with compiled calls ended before its end could be recorded"
        left_out = process.ended.records_left_out if process.ended is not None else {}
        if _RECORDED & left_out.keys() or (process.ended and process.ended.records_dropped):
            return "the record is not whole: it was over its limit"
    fault = next((fault for fault in timeline.faults if fault.in_recording), None)
    if fault is None:
        return None
    # `where`, after "recording: " or "recorder: ", and what was raised: for a report of it.
    what = fault.where.partition(": ")[2]
    return f"a fault of compilediag's own in the recording ({what}): {fault.raised}"


def _list_loaded(timeline: Timeline) -> set[tuple[str, str]]:
    """List the program's own sources that became code: file and digest."""
    return {
        (file, digest)
        for record in timeline.loaded
        for file, digest in zip(record.files, record.digests, strict=True)
    }


def _find_other_source(
    timeline: Timeline, change: Change, digests: Mapping[str, str]
) -> str | None:
    """Find a source that was loaded from somewhere else, or is not that of the state."""
    loaded = _list_loaded(timeline)
    paths = {*change.before, *change.after}
    touched = {path for path in paths if change.before.get(path) != change.after.get(path)}
    files = {file for file, _ in loaded}
    for file, digest in sorted(loaded):
        if file in paths and digest != digests.get(file):
            return f"{file} was loaded with another text than it has in this state"
    for path in sorted(touched - files):
        package = path.split("/")[-2:]
        copy = next((f for f in sorted(files - touched) if f.split("/")[-2:] == package), None)
        if copy is not None:
            return f"{'/'.join(package)} was loaded from {copy}, which the change does not touch"
    return None


def _find_changed_outside(
    before: ExecutedState, after: ExecutedState, change: Change
) -> str | None:
    """Find a source that belongs to neither state, and was another one in each execution."""
    old, new = _list_loaded(before.timeline), _list_loaded(after.timeline)
    known = {file for file, _ in old} - {*change.before, *change.after}
    for file, _ in sorted(pair for pair in new - old if pair[0] in known):
        return f"{file} has changed, and is not below the folder whose states are compared"
    return None


def _find_unlike_source(before: ExecutedState, after: ExecutedState, change: Change) -> str | None:
    """Find a changed file that ran and was not imported, as one that a program reads and executes
    itself: then both states had the file on disk."""
    run = {record.file for record in after.timeline.lines_run if record.run}
    for state, digests in ((before, change.before), (after, change.after)):
        files = {file for record in state.timeline.loaded for file in record.files}
        for path in sorted(run & digests.keys() - files):
            return f"{path} ran, and was not imported by each state"
    return None


def find_other_environment(before: ExecutedState, after: ExecutedState) -> str | None:
    """Find a part of the environment, an argument or a seed that two executions do not share."""
    receipts = before.receipt, after.receipt
    for name in _SAME:
        ours, theirs = (getattr(receipt.environment, name) for receipt in receipts)
        if ours is not None and theirs is not None and ours != theirs:
            return f"executed with another environment: {name} {ours} → {theirs}"
    argv = [receipt.header.run.argv_redacted for receipt in receipts]
    if argv[0] != argv[1]:
        return f"executed with other arguments: {' '.join(argv[0])} → {' '.join(argv[1])}"
    seeds = [{record.seed for record in state.timeline.recordings} for state in (before, after)]
    return None if seeds[0] == seeds[1] else "executed with other seeds"


def check_exercised(
    before: ExecutedState,
    after: ExecutedState,
    change: Change,
    equal: tuple[Iterable[CallVaried], Iterable[CallVaried]] = ((), ()),
) -> JudgedPoint:
    """Check that every changed line that can run did, code beside each that was removed, and in the
    old state what a branch did that is gone, or is taken by another condition. `equal`: calls that
    were made again in each state, and gave the same: what ran in these was compared, too."""
    if not change.files and not change.others:
        return JudgedPoint("exercised", "undecided", "no file differs; name a setting by --env")
    if not change.files:
        what = "; ".join(change.others)
        return JudgedPoint("exercised", "holds", f"no line of Python changed: {what}")
    again_before, again = map(_collect_called, equal)
    run, was = _collect_run(after) | again, _collect_run(before) | again_before
    graphs = _collect_traced(after)
    lines = [(file.file, line) for file in change.files for line in file.lines]
    missed = [at for at in lines if at not in run]
    removals = [(file.file, near) for file in change.files for near in file.removed]
    unseen = [(file, near) for file, near in removals if not any((file, n) in run for n in near)]
    gone = [
        (file.file, line)
        for file in change.files
        for entry, line in file.branches
        if (file.file, line) not in was
        if not before.is_watched or not entry or (file.file, entry) in was  # else nobody called it
    ]
    in_graphs = sum(at in graphs for at in lines)
    alone = len({*lines} - graphs - again)
    figures = (
        ProofFigure("changed lines", float(len(lines)), float(len(lines) - len(missed))),
        ProofFigure("in graphs", float(len(lines)), float(in_graphs)),
    )
    outcome: Outcome = "undecided" if missed or unseen or gone else "holds"
    sentence = f"{format_count(len(lines), 'changed line')} ran, {in_graphs} in graphs"
    # Outside of what was called again, as in constructors, nothing had other inputs.
    sentence += f", {alone} with this run's values alone" if alone else ""
    if missed:
        counts = f"{len(lines) - len(missed)} of {format_count(len(lines), 'changed line')}"
        sentence = f"proved for what ran: {counts}; not run (--also could): {_list_lines(missed)}"
    elif unseen:
        places = [(file, min(near, default=1)) for file, near in unseen]
        sentence = f"not run: code around what was removed at {_list_lines(places)}"
    elif gone:
        where = f"the branch at {_list_lines(gone)} of the old state"
        sentence = f"never run, so not compared (--also could): {where}"
        if not before.is_watched:  # another point is open, or an execution follows
            sentence = f"{where} may never have run: no execution of it has looked"
    details = [f"not run: {file}:{line}" for file, line in missed]
    details += [f"not run in the old state: {_list_lines([at])}" for at in gone]
    details += sorted({record.problem for record in after.timeline.lines_run if record.problem})
    return JudgedPoint("exercised", outcome, sentence, figures, tuple(details))


def leave_out_unloaded(change: Change, after: ExecutedState) -> Change:
    """Leave out files that the old state did not have and no process of the new one loaded: notes
    and other programs that lie beside this one."""
    loaded = {file for file, _ in _list_loaded(after.timeline)}
    loaded |= {record.file for record in after.timeline.lines_run if record.run}
    files = (its for its in change.files if its.file in change.before or its.file in loaded)
    return replace(change, files=tuple(files))


def is_traced(after: ExecutedState, change: Change) -> bool:
    """True if Dynamo traced every line that changed, and code beside each that was removed, and
    none writes what other code may read: then the change put nothing outside of graphs."""
    traced = _collect_traced(after)
    places = [
        [(file.file, line) for line in near]
        for file in change.files
        for near in (*((line,) for line in file.lines), *file.removed)
    ]
    may_switch = bool(change.others) or any(file.writes_otherwise for file in change.files)
    return bool(places) and not may_switch and all(map(traced.intersection, places))


def _collect_traced(state: ExecutedState) -> set[tuple[str, int]]:
    return {(record.file, line) for record in state.timeline.lines_run for line in record.in_graph}


def _collect_run(state: ExecutedState) -> set[tuple[str, int]]:
    return {(record.file, line) for record in state.timeline.lines_run for line in record.run}


def _collect_called(calls: Iterable[CallVaried]) -> set[tuple[str, int]]:
    """Collect the watched lines that ran in calls that were made again."""
    return {(its.file, n) for call in calls for its in call.lines for n in its.lines}


def _list_lines(lines: list[tuple[str, int]]) -> str:
    """List lines by file: "model.py:41, 42", and the way past an `if` as "30 not taken"."""
    by_file: dict[str, list[str]] = {}
    for file, line in lines:
        shown = str(line) if line > 0 else f"{-line} not taken"
        by_file.setdefault(file.rpartition("/")[2], []).append(shown)
    return "; ".join(f"{file}:{', '.join(numbers[:8])}" for file, numbers in by_file.items())
