"""CD901: no frame with a graph was seen: why, as far as the record says, and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.rules.absorption import Absorption
from compilediag.rules.evidence import costs_compiles
from compilediag.rules.make_finding import make_finding, plural, shorten
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Process, Timeline
from compilediag_harness.wire import ATTACH, OLD_TORCH

_OF_A_CHILD = "ChildFailedError"
"""What a launcher raises: the failure of its child is the cause."""

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^']{1,200})'")
_UNREADABLE = re.compile(r"\b(?:Syntax|Indentation|Tab)Error: ")
_INTERRUPTED = "KeyboardInterrupt"
_TOO_OLD = "is older than 3.10"
"""In what the bootstrap notes of a Python that compilediag cannot observe."""

_NO_REASON = frozenset({"ahead_of_time", "never_ran", "unknown"})
"""Reasons that are none where compiled code ran that was loaded."""

_WRAPPERS = re.compile(r"/torch/(?:nn/parallel|distributed)/")
_MODULES = re.compile(r"/torch/nn/modules/")


class Why(NamedTuple):
    """A reason, and what to do about it."""

    kind: str
    """One word for machines; "unknown" where the record holds no reason."""
    title: str
    fix: str


def find_nothing_compiled(timeline: Timeline) -> Iterable[Finding]:
    """CD901: zero frames with a graph. Never clean: nothing was seen that could be judged, unless
    code that another process compiled was seen to run, and none to run eager."""
    if any(frame.graphs for frame in timeline.frames):
        return
    why = next(_reasons(timeline))
    if why.kind in _NO_REASON and any(item.called for item in timeline.precompiled):
        return
    yield make_finding(
        timeline,
        "CD901",
        why.title,
        why.fix,
        evidence={
            "why": why.kind,
            "torch_seen": any(process.torch is not None for process in timeline.processes),
            "processes": len(timeline.processes),
            "frames": len(timeline.frames),
            "frames_eager": sum(frame.ran_eager for frame in timeline.frames),
            "ahead_of_time": len(timeline.ahead_of_time),
        },
    )


def _reasons(timeline: Timeline) -> Iterator[Why]:
    """Every reason that the record holds, the first one first."""
    yield from _not_recorded(timeline)
    yield from _failed(timeline)
    yield from _no_torch(timeline)
    yield from _not_observed(timeline)
    yield from _ran_eager(timeline)
    yield from _modules_of_torch(timeline)
    yield from _ahead_of_time(timeline)
    yield from _switched_off(timeline)
    yield from _all_behind_breaks(timeline)
    yield _never_ran(timeline)


def _loss(timeline: Timeline, source: str) -> str | None:
    return next((item.reason for item in timeline.lost if item.source == source), None)


def _not_recorded(timeline: Timeline) -> Iterator[Why]:
    old = _loss(timeline, OLD_TORCH)
    if old is not None:
        yield Why("old_torch", old, "record the run with torch 2.7 or newer")
    if timeline.train_log is not None and not timeline.processes:
        yield Why(
            "train_log",
            "the output of a trainer does not show what torch.compile did",
            "analyze a TORCH_TRACE of the same run beside it, or run it under `compilediag run`",
        )


def _failed(timeline: Timeline) -> Iterator[Why]:
    """The program ended by an exception before anything was compiled: that comes first."""
    failed = [
        (_OF_A_CHILD in line, process, line)
        for process in timeline.processes
        if process.ended is not None and process.ended.failure
        for line in (_exception_in(process.ended.failure),)
    ]
    if not failed:
        return
    _, process, line = min(failed, key=lambda item: item[0])
    when = "anything was compiled" if process.torch is not None else "it imported torch"
    if line.startswith(_INTERRUPTED):
        yield Why("interrupted", f"the program was interrupted before {when}", "let it run longer")
        return
    missing = _NO_MODULE.search(line)
    fix = "fix that first: nothing was compiled that could be judged"
    if _UNREADABLE.search(line):
        fix = "fix the source: Python could not read it"
    elif missing is not None:
        python = process.started.executable if process.started is not None else ""
        fix = f"install {missing['name']!r} for {python or 'the Python of the target'}, run the "
        fix += "target with the Python that has it, or fix the import"
    elif "ImportError" in line.partition(":")[0]:
        fix = "fix the import: it fails without compilediag too"
    yield Why("failed", f"the program failed before {when}: {shorten(line, 200)}", fix)


def _exception_in(failure: str) -> str:
    """The line that names the exception: the first one, or the last one of a bare traceback."""
    lines = failure.strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback (") else 0].strip() if lines else ""


def _no_torch(timeline: Timeline) -> Iterator[Why]:
    if any(process.torch is not None for process in timeline.processes):
        return
    unattached = _loss(timeline, ATTACH)
    if unattached is not None:
        too_old = _TOO_OLD in unattached
        yield Why(
            "not_attached",
            unattached,
            "run the target with Python 3.10 or newer"
            if too_old
            else "start Python without -E, -I and -S and with the environment it is given, or call "
            "compilediag.watch() in the program",
        )
    elif any(process.started is not None for process in timeline.processes):
        yield Why(
            "no_torch",
            "torch was never seen in the run: no process that was observed imported it",
            "see what the target printed: it did not get as far as `import torch`; what it starts "
            "with python -I, -E or -S is not observed",
        )
    else:
        yield Why(
            "no_torch",
            "torch was never seen in the run",
            "check that the target imports torch and is not started with python -I, -E or -S",
        )


def _not_observed(timeline: Timeline) -> Iterator[Why]:
    if not timeline.observes("metrics_rows"):
        yield Why(
            "not_observed",
            "the record does not show what was compiled",
            "analyze a TORCH_TRACE of the run: a text log shows recompiles and breaks only",
        )


def _ran_eager(timeline: Timeline) -> Iterator[Why]:
    refused = sum(costs_compiles(item, timeline) for item in timeline.skipped)
    if eager := refused + sum(frame.ran_eager for frame in timeline.frames):
        yield Why(
            "eager",
            f"nothing was compiled: no graph is left of {plural(eager, 'frame')}",
            "see why torch.compile gave those frames up: no call of them is compiled",
        )


def _modules_of_torch(timeline: Timeline) -> Iterator[Why]:
    """Dynamo runs the code of torch.nn as it is where that is the frame it is given."""
    roots = timeline.user_roots
    if any(ownership_of(frame.where.file, roots) == "user" for frame in timeline.frames):
        return
    files = [skipped.frame.file for skipped in timeline.skipped]
    files += [site.file for site in timeline.breaks]
    if any(_WRAPPERS.search(file) for file in files):
        yield Why(
            "torch_modules",
            "nothing was compiled: torch runs its own wrapper, such as DistributedDataParallel, as "
            "it is, and what it wraps has no code but torch.nn's",
            "compile the module inside the wrapper: DistributedDataParallel(torch.compile(module))",
        )
    elif any(_MODULES.search(file) for file in files):
        yield Why(
            "torch_modules",
            "nothing was compiled: `.compile()` of a module of torch.nn, such as nn.Sequential, "
            "leaves only code of torch.nn to compile, which torch runs as it is",
            "call what `torch.compile(module)` returns instead of `module.compile()`: that is "
            "traced through torch.nn",
        )


def _ahead_of_time(timeline: Timeline) -> Iterator[Why]:
    if timeline.ahead_of_time or any(item.facts.get("exported") for item in timeline.processes):
        yield Why(
            "ahead_of_time",
            "the program compiles ahead of time only (torch.export, AOTInductor): no frame that "
            "could recompile, break or fall back",
            "nothing, if that is intended: compilediag judges torch.compile, which this program "
            "does not run",
        )


def _switched_off(timeline: Timeline) -> Iterator[Why]:
    for process in timeline.processes:
        flags = process.facts.get("compile")
        known = cast("dict[str, object]", flags) if isinstance(flags, dict) else {}
        if known.get("disabled_by_environment"):
            yield Why(
                "switched_off",
                "nothing was compiled: torch.compile is switched off by the environment",
                "unset TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE",
            )
        elif known.get("disable"):
            yield Why(
                "switched_off",
                "nothing was compiled: torch._dynamo.config.disable is True",
                "leave torch._dynamo.config.disable False",
            )
        elif known.get("stance") == "force_eager":
            yield Why(
                "switched_off",
                "nothing was compiled: torch.compiler.set_stance('force_eager') is in force",
                "leave the stance at 'default' where compiled code should run",
            )


def _all_behind_breaks(timeline: Timeline) -> Iterator[Why]:
    """Frames were compiled, and none of them holds an operation: those are where it breaks."""
    compiled = sum(frame.compiles > 0 for frame in timeline.frames)
    if compiled and timeline.breaks:
        yield Why(
            "behind_breaks",
            f"nothing was compiled: every operation of {plural(compiled, 'frame')} lies behind a "
            "graph break",
            "remove the graph breaks: all that they leave runs eager",
        )


def _never_ran(timeline: Timeline) -> Why:
    if timeline.precompiled:
        return Why(
            "never_ran",
            f"nothing was compiled, and of {plural(len(timeline.precompiled), 'function')} that "
            "was loaded with compiled code none ran it",
            "call what was loaded: the function itself runs eager",
        )
    if any(_was_requested(process) for process in timeline.processes):
        return Why(
            "never_ran",
            "nothing was compiled, though torch.compile was called",
            "call what torch.compile returns, not the function or module that it was given",
        )
    return Why(
        "unknown",
        "nothing was compiled",
        "call torch.compile on what should be compiled, and run it at least once",
    )


def _was_requested(process: Process) -> bool:
    return bool(process.facts.get("compile_requests"))


RULES: tuple[Rule, ...] = (find_nothing_compiled,)


def _broke(cause: Finding, symptom: Finding) -> bool:
    """A break that is for information alone, such as one that was asked for, leaves it blind."""
    return AnyEvidence.of(symptom.evidence).why == "behind_breaks" and cause.severity != "info"


ABSORBS = (Absorption("CD901", "CD2", _broke),)
