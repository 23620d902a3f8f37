"""CD901: no frame with a graph was seen: why, as far as the record says, and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.rules.evidence import costs_compiles
from compilediag.rules.make_finding import make_finding, plural, shorten
from compilediag.rules.rule import Absorption
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Process, Timeline
from compilediag_harness.wire import ATTACH, OLD_TORCH

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^']{1,200})'")
_UNREADABLE = re.compile(r"\b(?:Syntax|Indentation|Tab)Error: ")
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


_TRAIN_LOG = Why(
    "train_log",
    "the output of a trainer does not show what torch.compile did",
    "analyze a TORCH_TRACE of the same run beside it, or run it under `compilediag run`",
)
_NOT_OBSERVED = Why(
    "not_observed",
    "the record does not show what was compiled",
    "analyze a TORCH_TRACE of the run: a text log shows recompiles and breaks only",
)
_AHEAD_OF_TIME = Why(
    "ahead_of_time",
    "the program compiles ahead of time only (torch.export, AOTInductor): no frame that could "
    "recompile, break or fall back",
    "nothing, if that is intended: compilediag judges torch.compile, which this program does not "
    "run",
)
_NEVER_CALLED = Why(
    "never_ran",
    "nothing was compiled, though torch.compile was called",
    "call what torch.compile returns, not the function or module that it was given",
)
_UNKNOWN = Why(
    "unknown",
    "nothing was compiled",
    "call torch.compile on what should be compiled, and run it at least once",
)


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
    lost = {item.source: item.reason for item in reversed(timeline.lost)}
    if OLD_TORCH in lost:
        yield Why("old_torch", lost[OLD_TORCH], "record the run with torch 2.7 or newer")
    if timeline.train_log is not None and not timeline.processes:
        yield _TRAIN_LOG
    yield from _failed(timeline)
    if not any(process.torch is not None for process in timeline.processes):
        yield _no_torch(timeline, lost.get(ATTACH))
    if not timeline.observes("metrics_rows"):
        yield _NOT_OBSERVED
    refused = sum(costs_compiles(item, timeline) for item in timeline.skipped)
    if eager := refused + sum(frame.ran_eager for frame in timeline.frames):
        yield Why(
            "eager",
            f"nothing was compiled: no graph is left of {plural(eager, 'frame')}",
            "see why torch.compile gave those frames up: no call of them is compiled",
        )
    yield from _modules_of_torch(timeline)
    if timeline.ahead_of_time or any(item.facts.get("exported") for item in timeline.processes):
        yield _AHEAD_OF_TIME
    yield from _switched_off(timeline)
    compiled = sum(frame.compiles > 0 for frame in timeline.frames)
    if compiled and timeline.breaks:  # none of them holds an operation: those are where it breaks
        yield Why(
            "behind_breaks",
            f"nothing was compiled: every operation of {plural(compiled, 'frame')} lies behind a "
            "graph break",
            "remove the graph breaks: all that they leave runs eager",
        )
    if timeline.precompiled:
        yield Why(
            "never_ran",
            f"nothing was compiled, and of {plural(len(timeline.precompiled), 'function')} that "
            "was loaded with compiled code none ran it",
            "call what was loaded: the function itself runs eager",
        )
    requested = any(process.facts.get("compile_requests") for process in timeline.processes)
    yield _NEVER_CALLED if requested else _UNKNOWN


def _failed(timeline: Timeline) -> Iterator[Why]:
    """The program ended by an exception before anything was compiled: that comes first."""
    failed: list[tuple[Process, str]] = []
    for process in timeline.processes:
        text = "" if process.ended is None else (process.ended.failure or "").strip()
        if text:
            # The line that names the exception: the first, or the last one of a bare traceback.
            lines = text.splitlines()
            at = -1 if lines[0].startswith("Traceback (") else 0
            failed.append((process, lines[at].strip()))
    if not failed:
        return
    # What a launcher raises is no cause: the failure of its child is.
    process, line = min(failed, key=lambda item: "ChildFailedError" in item[1])
    when = "anything was compiled" if process.torch is not None else "it imported torch"
    if line.startswith("KeyboardInterrupt"):
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


def _no_torch(timeline: Timeline, unattached: str | None) -> Why:
    if unattached is not None:
        fix = (
            "start Python without -E, -I and -S and with the environment it is given, or call "
            "compilediag.watch() in the program"
        )
        if _TOO_OLD in unattached:
            fix = "run the target with Python 3.10 or newer"
        return Why("not_attached", unattached, fix)
    if any(process.started is not None for process in timeline.processes):
        return Why(
            "no_torch",
            "torch was never seen in the run: no process that was observed imported it",
            "see what the target printed: it did not get as far as `import torch`; what it starts "
            "with python -I, -E or -S is not observed",
        )
    return Why(
        "no_torch",
        "torch was never seen in the run",
        "check that the target imports torch and is not started with python -I, -E or -S",
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


def _switched_off(timeline: Timeline) -> Iterator[Why]:
    for process in timeline.processes:
        flags = process.facts.get("compile")
        known = cast("dict[str, object]", flags) if isinstance(flags, dict) else {}
        if known.get("disabled_by_environment"):
            what = "torch.compile is switched off by the environment"
            fix = "unset TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE"
        elif known.get("disable"):
            what = "torch._dynamo.config.disable is True"
            fix = "leave torch._dynamo.config.disable False"
        elif known.get("stance") == "force_eager":
            what = "torch.compiler.set_stance('force_eager') is in force"
            fix = "leave the stance at 'default' where compiled code should run"
        else:
            continue
        yield Why("switched_off", f"nothing was compiled: {what}", fix)


def _broke(cause: Finding, symptom: Finding) -> bool:
    """A break that is for information alone, such as one that was asked for, leaves it blind."""
    return AnyEvidence.of(symptom.evidence).why == "behind_breaks" and cause.severity != "info"


ABSORBS = (Absorption("CD901", "CD2", _broke),)
