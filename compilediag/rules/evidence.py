"""Rules about the record itself (CD901 to CD905): no frame with a graph was seen, and why, as far
as the record says; what was lost; frames that ran eager unseen."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.reconcile import TEXT_SOURCES
from compilediag.receipt.schema.evidence import AnyEvidence, BreakEvidence
from compilediag.rules.make_finding import format_count, format_more, make_finding, shorten
from compilediag.rules.rule import Absorption, Analysis, AnalysisRule
from compilediag.timeline.compiles import Compile, FrameId
from compilediag.timeline.invocations import StanceCalls
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Process, Timeline
from compilediag_harness.wire import ATTACH, OLD_TORCH, FrameSkipped, Location

# --- CD901 --------------------------------------------------------------------------------------

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^']{1,200})'")
_TOO_OLD = "is older than 3.10"
"""In what the bootstrap notes of a Python that compilediag cannot observe."""

_WRAPPERS = re.compile(r"/torch/(?:nn/parallel|distributed)/")
_MODULES = re.compile(r"/torch/nn/modules/")


class BlindReason(NamedTuple):
    """A reason, and what to do about it."""

    kind: str
    """One word for machines; "unknown" where the record holds no reason."""
    title: str
    fix: str


_TRAIN_LOG = BlindReason(
    "train_log",
    "the output of a trainer does not show what torch.compile did",
    "analyze a TORCH_TRACE of the same run beside it, or run it under `compilediag run`",
)
_NOT_OBSERVED = BlindReason(
    "not_observed",
    "the record does not show what was compiled",
    "analyze a TORCH_TRACE of the run: a text log shows recompiles and breaks only",
)
_AHEAD_OF_TIME = BlindReason(
    "ahead_of_time",
    "the program compiles ahead of time only (torch.export, AOTInductor): no frame that could "
    "recompile, break or fall back",
    "nothing, if that is intended: compilediag judges torch.compile, which this program does not "
    "run",
)
_NEVER_CALLED = BlindReason(
    "never_ran",
    "nothing was compiled, though torch.compile was called",
    "call what torch.compile returns, not the function or module that it was given",
)
_ELSEWHERE = BlindReason(
    "elsewhere",
    "nothing was compiled in this run, though compiled functions were called",
    "they ran code that an earlier process compiled, or eager: run it where the code is compiled, "
    "with torch._dynamo.config.caching_precompile off",
)
_UNKNOWN = BlindReason(
    "unknown",
    "nothing was compiled",
    "call torch.compile on what should be compiled, and run it at least once",
)


def find_nothing_compiled(timeline: Timeline) -> Iterable[Finding]:
    """CD901: zero frames with a graph. Never clean: nothing was seen that could be judged."""
    if any(frame.graphs for frame in timeline.frames):
        return
    why = next(_iterate_reasons(timeline))
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


def _iterate_reasons(timeline: Timeline) -> Iterator[BlindReason]:
    """Iterate every reason that the record holds, the first one first."""
    lost = {loss.source: loss.reason for loss in reversed(timeline.lost)}
    if OLD_TORCH in lost:
        yield BlindReason("old_torch", lost[OLD_TORCH], "record the run with torch 2.7 or newer")
    if timeline.train_log is not None and not timeline.processes:
        yield _TRAIN_LOG
    yield from _find_failure(timeline)
    if not any(part.torch is not None for part in timeline.processes):
        yield _explain_missing_torch(timeline, lost.get(ATTACH))
    if not timeline.can_observe("metrics_rows"):
        yield _NOT_OBSERVED
    refused = sum(would_compile(skipped, timeline) for skipped in timeline.skipped)
    if eager := refused + sum(frame.ran_eager for frame in timeline.frames):
        yield BlindReason(
            "eager",
            f"nothing was compiled: no graph is left of {format_count(eager, 'frame')}",
            "see why torch.compile gave those frames up: no call of them is compiled",
        )
    yield from _find_torch_modules(timeline)
    if timeline.ahead_of_time or any(part.facts.get("exported") for part in timeline.processes):
        yield _AHEAD_OF_TIME
    yield from _find_disabled_compile(timeline)
    compiled = sum(frame.compiles > 0 for frame in timeline.frames)
    if compiled and timeline.breaks:  # none of them holds an operation: those are where it breaks
        yield BlindReason(
            "behind_breaks",
            f"nothing was compiled: every operation of {format_count(compiled, 'frame')} lies "
            "behind a graph break",
            "remove the graph breaks: all that they leave runs eager",
        )
    requested = any(part.facts.get("compile_requests") for part in timeline.processes)
    if timeline.invocations:
        yield _ELSEWHERE
    yield _NEVER_CALLED if requested else _UNKNOWN


def _find_failure(timeline: Timeline) -> Iterator[BlindReason]:
    """Find the exception that ended the program before anything was compiled: that comes first."""
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
    process, line = min(failed, key=lambda pair: "ChildFailedError" in pair[1])
    when = "anything was compiled" if process.torch is not None else "it imported torch"
    if line.startswith("KeyboardInterrupt"):
        yield BlindReason(
            "interrupted", f"the program was interrupted before {when}", "let it run longer"
        )
        return
    missing = _NO_MODULE.search(line)
    fix = "mend the exception first: nothing was compiled that could be judged"
    if missing is not None:
        python = process.started.executable if process.started is not None else ""
        fix = f"install {missing['name']!r} for {python or 'the Python of the target'}, run the "
        fix += "target with the Python that has it, or fix the import"
    yield BlindReason("failed", f"the program failed before {when}: {shorten(line, 200)}", fix)


def _explain_missing_torch(timeline: Timeline, unattached: str | None) -> BlindReason:
    if unattached is not None:
        fix = (
            "start Python without -E, -I and -S and with the environment it is given, or call "
            "compilediag.watch() in the program"
        )
        if _TOO_OLD in unattached:
            fix = "run the target with Python 3.10 or newer"
        return BlindReason("not_attached", unattached, fix)
    title = "torch was never seen in the run"
    fix = "check that the target imports torch and is not started with python -I, -E or -S"
    if any(process.started is not None for process in timeline.processes):
        title += ": no process that was observed imported it"
        fix = (
            "see what the target printed: it did not get as far as `import torch`; what it starts "
            "with python -I, -E or -S is not observed"
        )
    return BlindReason("no_torch", title, fix)


def _find_torch_modules(timeline: Timeline) -> Iterator[BlindReason]:
    """Dynamo runs the code of torch.nn as it is where that is the frame it is given."""
    roots = timeline.user_roots
    if any(classify_ownership(frame.where.file, roots) == "user" for frame in timeline.frames):
        return
    files = [skipped.frame.file for skipped in timeline.skipped]
    files += [site.file for site in timeline.breaks]
    if any(_WRAPPERS.search(file) for file in files):
        yield BlindReason(
            "torch_modules",
            "nothing was compiled: torch runs its own wrapper, such as DistributedDataParallel, as "
            "it is, and what it wraps has no code but torch.nn's",
            "compile the module inside the wrapper: DistributedDataParallel(torch.compile(module))",
        )
    elif any(_MODULES.search(file) for file in files):
        yield BlindReason(
            "torch_modules",
            "nothing was compiled: `.compile()` of a module of torch.nn, such as nn.Sequential, "
            "leaves only code of torch.nn to compile, which torch runs as it is",
            "call what `torch.compile(module)` returns instead of `module.compile()`: that is "
            "traced through torch.nn",
        )


def _find_disabled_compile(timeline: Timeline) -> Iterator[BlindReason]:
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
        yield BlindReason("switched_off", f"nothing was compiled: {what}", fix)


# --- CD902 to CD905 -----------------------------------------------------------------------------

_NOTHING_TO_COMPILE = (
    "no tensor-related objects found in frame",
    "frame was generated by exec()",
    "__setattr__",
    "Dynamo tracing is disabled",
    "tracing is non-recursively disabled",
    "already Dynamo-generated code",
    "frame is a namedtuple",
    "torch.optim __init__ frames",
    "skipping generator expression in",
    "frame has already started executing",
)
"""Reasons for which running a frame eager costs nothing, or is what the user requested.
Torch's words, matched anywhere in its text: reasons for skipping have no ids."""

_OPERATOR_FAILURES = ("BackendCompilerFailed", "TorchRuntimeError")
"""An exception of the backend, or of an operator run with fake tensors: CD210."""

_OPERATOR_FIXES = {
    r"fake impl|running with fake tensors|[Mm]eta kernel|'Meta' backend": (
        "register a fake implementation for the operator"
    ),
    r"\bout=": "call it without out=, and use what it returns",
    "_local_scalar_dense": "give it a Python number: `int(…)` or `float(…)` where the number is "
    "set (one of NumPy is a tensor in a graph), or before the compiled function",
    r"\bbackend=(?!'(?:aot_)?eager)|Backend compiler `(?!(?:aot_)?eager)": (
        'find out whose exception it is: compile with backend="aot_eager", then with "eager"'
    ),
    "example_value type: (?:int|float|bool)": "compute the number from Python numbers (`math`, "
    "comparisons), or before the compiled function: torch traces no operator that returns one",
    "": "torch does not trace this call: write it in another form, or make it outside of the "
    "compiled function",
}
"""By what torch's report says."""
_EAGER_FIX = "remove what torch names as the reason, or compile a smaller function around it"
_FALLS_BACK = (None, "Unsupported", "UserError", "SkipFrame")
"""Failures after which torch runs the frame eager; others it raises, unless set to suppress."""

_EXPLAINED_BY_CD901 = frozenset({ATTACH, OLD_TORCH})
"""Losses where nothing was observed, with which CD901 explains that."""

_PROFILE_SETTINGS = ("TORCH_COMPILE_JOB_ID", "job_id")
"""Names under which the environment facts hold torch's job id, which stores profiles."""

_PROFILE_SWITCHES = ("TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO", "local_profile")
_SHOWN = 8


@AnalysisRule
def find_torn_evidence(analysis: Analysis) -> Iterable[Finding]:
    """CD902: a hook removed, records dropped, a journal cut. A text log that the other sources make
    up for is not missed; the receipt's reasons name it all the same."""
    timeline = analysis.timeline
    spare = TEXT_SOURCES if analysis.agreement.text_is_spare else frozenset[str]()
    known = spare if any(frame.graphs for frame in timeline.frames) else spare | _EXPLAINED_BY_CD901
    missed = [loss for loss in timeline.lost if loss.source not in known]
    lost = [f"{loss.source}: {loss.reason}" for loss in missed]
    # What a collector of ours failed to record is as lost as what torch's loggers did not.
    faults = [fault for fault in timeline.faults if not fault.in_recording]
    fix = "keep the output directory writable and large enough, and torch's own functions in place"
    if faults and not lost:
        fix = f"report it: {faults[0].raised}"
    lost += [f"compilediag: an internal error in {fault.where}" for fault in faults]
    dropped = _count_dropped_records(timeline)
    if dropped:
        lost.append(f"journal: {dropped} records could not be written")
    if not lost:
        return
    yield make_finding(
        timeline,
        "CD902",
        f"part of the record was lost: {lost[0]}{format_more(len(lost))}",
        fix,
        count=len(lost),
        steps=(loss.step for loss in missed),
        evidence={"lost": lost[:_SHOWN], "losses": len(lost), "records_dropped": dropped},
    )


def _count_dropped_records(timeline: Timeline) -> int:
    return sum(p.ended.records_dropped for p in timeline.processes if p.ended is not None)


@AnalysisRule
def find_disagreement(analysis: Analysis) -> Iterable[Finding]:
    """CD903: the numbers of events, metrics and text log differ, and no record was dropped, which
    would be why."""
    agreement = analysis.agreement
    if not agreement.differences or _count_dropped_records(analysis.timeline):
        return
    yield make_finding(
        analysis.timeline,
        "CD903",
        f"the sources disagree: {agreement.differences[0]}",
        "run again; if it repeats, report it with the journal: a count may be wrong",
        count=len(agreement.differences),
        evidence={
            "differences": list(agreement.differences[:_SHOWN]),
            "numbers": dict(agreement.numbers),
            "sources": dict(agreement.sources),
        },
    )


def find_eager_frames(timeline: Timeline) -> Iterable[Finding]:
    """CD904: frames of the user or a third party that Dynamo tried or refused, and that ran eager.
    Frames over the recompile limit are CD152; torch's own frames are skipped by design."""
    compiles: dict[FrameId, list[Compile]] = {}
    for event in timeline.compiles:
        if event.forward:
            compiles.setdefault(event.key, []).append(event)
    for frame in timeline.frames:
        of_torch = classify_ownership(frame.where.file, timeline.user_roots) == "torch"
        if frame.ran_eager and frame.limit_hit_step is None and not of_torch:
            tried = compiles.get(frame.key, [])
            refused = [event for event in tried if not event.guarded] or tried
            reason = frame.eager_reason or "torch gave no reason"
            yield _make_eager_finding(timeline, frame.where, reason, refused)
    for skipped in timeline.skipped:
        if would_compile(skipped, timeline):
            finding = _make_eager_finding(timeline, skipped.frame, skipped.reason, ())
            yield replace(finding, steps=(skipped.step,))


def would_compile(skipped: FrameSkipped, timeline: Timeline) -> bool:
    """True where a frame that Dynamo refused would have been compiled but for the reason given."""
    owner = classify_ownership(skipped.frame.file, timeline.user_roots)
    if owner == "torch" or any(known in skipped.reason for known in _NOTHING_TO_COMPILE):
        return False
    # Nobody compiles the inside of `(x for x in y)`, or a package's generator: Dynamo meets it when
    # its consumer runs eager. Packages on its list are skipped by design, the user's file is not.
    by_design = owner != "user" and re.search("skipfiles|trace generator", skipped.reason)
    return skipped.frame.function != "<genexpr>" and not by_design


def choose_operator_fix(report: str) -> str:
    """Choose what to say of an operator that torch does not trace, or of a backend's exception."""
    return next(fix for words, fix in _OPERATOR_FIXES.items() if re.search(words, report))


def _make_eager_finding(
    timeline: Timeline, location: Location, reason: str, compiles: Sequence[Compile]
) -> Finding:
    """Make the finding of a frame that ran eager for torch's reason, after these compiles that left
    nothing to run."""
    fail_type = next((event.fail_type for event in compiles if event.fail_type), None)
    outcome = "ran eager" if fail_type in _FALLS_BACK else "could not be compiled"
    code = "CD210" if fail_type in _OPERATOR_FAILURES else "CD904"
    owner = classify_ownership(location.file, timeline.user_roots)
    return make_finding(
        timeline,
        code,
        f"{location.function or 'a frame'} {outcome}: {shorten(reason, 100)}",
        choose_operator_fix(reason) if code == "CD210" else _EAGER_FIX,
        location=location,
        severity="error" if owner == "user" else "warning",
        count=len(compiles) or 1,
        steps=(event.step for event in compiles),
        cost_s=sum(event.seconds for event in compiles) or None,
        evidence={
            "reason": reason[:4096],
            "fail_type": fail_type,
            "compile_ids": [event.compile_id for event in compiles],
            "function": location.function,
        },
    )


def make_eager_absorption(cause: str) -> Absorption:
    """Make the absorption by which findings of `cause` explain that a frame ran eager: they know
    what became of it, and whether the user requested it. Where torch names only the consequence (a
    break in a loop), they name no cause of their own."""

    def is_explained(broken: Finding, _: Finding) -> bool:
        known = BreakEvidence.parse(broken.evidence)
        return known.eager_frames is not None and not known.consequence_only

    return Absorption("CD904", cause, is_explained, keeps_severity=True, common=_list_eager_places)


def _list_eager_places(finding: Finding) -> Sequence[Hashable]:
    """List the frames that a break sends to eager; of a finding about such a frame, its place."""
    frames, at = BreakEvidence.parse(finding.evidence).eager_frames, finding.location
    if frames is not None or at is None:
        return frames or ()
    return [(at.file, at.line)]


def find_eager_stances(timeline: Timeline) -> Iterable[Finding]:
    """CD904: calls under a stance that compiles nothing. Dynamo offers no frame and reports nothing
    then, so no other source shows that they ran eager."""
    sums: dict[tuple[str, Location | None], list[StanceCalls]] = {}
    for row in timeline.stance_calls:
        if row.stance in _STANCES:  # a journal may be damaged
            sums.setdefault((row.stance, row.set_at), []).append(row)
    every = sum(invocation.calls for invocation in timeline.invocations)
    last = {process.facts.get("stance") for process in timeline.processes}
    for (stance, set_at), rows in sums.items():
        calls = sum(row.calls for row in rows)
        outcome, fix = _STANCES[stance]
        yield make_finding(
            timeline,
            "CD904",
            f'{calls} of {max(every, calls)} calls under the stance "{stance}"',
            fix,
            caveat=outcome,
            # A block that runs eager on purpose, such as a comparison, has an end.
            severity="info" if stance == "force_eager" and stance not in last else None,
            location=set_at or rows[0].function,
            count=calls,
            evidence={
                "stance": stance,
                "calls": calls,
                "functions": [row.function.function for row in rows][:_SHOWN],
            },
        )


_STANCES = {
    "force_eager": (
        "they ran eager",
        'set the stance back to "default" before the calls that are to run compiled',
    ),
    "eager_on_recompile": (
        "a call that no compiled graph fits ran eager; torch does not report which",
        (
            'set "fail_on_recompile" instead: it raises at the first of those calls and names its '
            "guard; warm up that call before the stance is set"
        ),
    ),
}
"""By stance: what it does with a call, and what to do about it."""


def find_stored_profiles(timeline: Timeline) -> Iterable[Finding]:
    """CD905: sizes seen in an earlier run decided what became dynamic in this one."""
    uses = list(timeline.text_log.profile_uses) if timeline.text_log else []
    uses += [w.text for w in timeline.warnings if "get_code_state" in w.text and " hit " in w.text]
    names: set[str] = set()
    for part in timeline.processes:
        off = any(str(_find_setting(part.facts, name)) == "0" for name in _PROFILE_SWITCHES)
        names |= {name for name in _PROFILE_SETTINGS if _find_setting(part.facts, name) and not off}
    if not uses and not names:
        return
    possible = "a dynamic-shape profile may be stored and used: TORCH_COMPILE_JOB_ID is set"
    yield make_finding(
        timeline,
        "CD905",
        "a stored dynamic-shape profile was used" if uses else possible,
        "for counts that can be compared, unset TORCH_COMPILE_JOB_ID or set "
        f"{_PROFILE_SWITCHES[0]}=0",
        confidence="exact" if uses else "text",
        evidence={"messages": uses[:_SHOWN], "settings": sorted(names)},
    )


def _find_setting(facts: dict[str, object], name: str) -> object:
    """Find a setting among the environment facts: at the top, or one level below."""
    groups = [cast(dict[str, object], group) for group in facts.values() if isinstance(group, dict)]
    return next((group[name] for group in (facts, *groups) if group.get(name)), None)


ABSORBS = (
    # Where torch reports only the consequence of a frame that ran eager, the break adds nothing.
    Absorption(
        "CD2",
        "CD904",
        lambda _eager, _broken: True,
        is_symptom=lambda broken: BreakEvidence.parse(broken.evidence).consequence_only,
        silent=True,
        common=_list_eager_places,
    ),
    # A break that is for information alone, such as one that was requested, leaves it blind.
    Absorption(
        "CD901",
        "CD2",
        lambda broken, nothing: (
            AnyEvidence.parse(nothing.evidence).why == "behind_breaks" and broken.severity != "info"
        ),
    ),
)
