"""Graph breaks (CD201–CD214, CD290), one finding per place and cause; what to change for each
category, as measured in docs/rules/CD2xx.md; and what may be tried: settings that torch's reports
name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain

from msgspec import structs

from compilediag.diagnosis.causes.merge_by_common_cause import ANOTHER_INSTANCE
from compilediag.diagnosis.codes import LIMIT, REGISTER, TEMPORARY
from compilediag.diagnosis.findings import Cause, CauseId, Finding
from compilediag.diagnosis.guards.size_limits import locate_size_limit
from compilediag.receipt.schema.compiles import CandidateRecord
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.breaks.break_report import (
    AS_WRAPPED,
    CODES,
    BreakReport,
    ReportedBreak,
    choose_severity,
    merge_broken,
    read_break_sites,
)
from compilediag.rules.changes import DYNAMO, OVERRIDES, ProgramChange, make_variable_change
from compilediag.rules.environment_variables import format_export
from compilediag.rules.evidence import choose_operator_fix, make_eager_absorption
from compilediag.rules.fix_context import FIRST_WITH_UNBACKED, FixContext
from compilediag.rules.make_finding import (
    Advice,
    format_count,
    format_place,
    make_finding,
    pick,
    replace_advice,
    shorten,
)
from compilediag.rules.rule import Absorption, Analysis, AnalysisRule, list_compile_ids
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.base.resumed_frames import get_whole_function
from compilediag_harness.wire import Location, SettingChange, UserCall


@AnalysisRule
def find_breaks(analysis: Analysis) -> Iterable[Finding]:
    """Find one finding per site. Explicit breaks are information: the user requested them."""
    timeline, made_by = analysis.timeline, analysis.causes.behind.breaks
    behind: dict[BreakLine, list[CompileId]] = {}
    for event in timeline.counted_recompiles:
        if event.id in made_by:
            behind.setdefault(made_by[event.id], []).append(event.id)
    # An id of one process, or before a reset, may be that of another frame elsewhere.
    others = {event.compile_id for event in timeline.recompiles if event.id not in made_by}
    known: dict[Location | BreakLine, list[ReportedBreak]] = {}
    for broken in read_break_sites(timeline):
        if broken.report.code not in LIMIT:
            known.setdefault(broken.report.failed_at or broken.site.at, []).append(broken)
    for parts in known.values():
        broken = merge_broken(parts)
        ids = [its for part in parts for its in behind.get(part.site.at, ())]
        about = tuple(part.site.at for part in parts)
        found = structs.replace(_make_break_finding(broken, timeline, ids, others), about=about)
        carried = [its for its in ids if _is_of_carried_value(analysis.causes.by_compile[its])]
        is_read = found.rule == "CD202" and broken.site.branch is None
        yield replace_advice(found, CARRIED) if is_read and carried[1:] else found


def _is_of_carried_value(causes: Iterable[Cause]) -> bool:
    """True where a value that the broken line made, which is no tensor, changed."""
    of_rest = (cause for cause in causes if cause.variable.startswith(TEMPORARY))
    return any(REGISTER[cause.rule].changed in ("scalar", "container") for cause in of_rest)


def _make_break_finding(
    broken: ReportedBreak, timeline: Timeline, behind: Sequence[CompileId], others: Collection[str]
) -> Finding:
    """Make the finding of a break. `behind`: the recompiles of frames that exist only because of
    the break; `others`: ids that recompiles of other frames have."""
    site, report, roots = broken.site, broken.report, timeline.user_roots
    location, stack = broken.find_location(timeline), broken.compiled_stack
    owner = classify_ownership(location.file, roots)
    # The program's own innermost line of what was compiled, which calls what breaks.
    call = site.entered_at
    own = next((at for at in reversed(stack) if classify_ownership(at.file, roots) == "user"), None)
    if call is None or own is None or (own.file, own.line) != (call.file, call.line):
        call = None
    is_own, in_package = classify_ownership(site.file, roots) == "user", owner == "third_party"
    branch = site.branch if CODES[report.category] == "CD202" else None
    report = report if branch is None else replace(report, options=())  # none helps there
    advice = _choose_advice(report, is_own=is_own, in_package=in_package, call=call)
    if branch is not None and advice == FIXES["CD202"]:
        advice = STATE_BRANCH if re.fullmatch(r"self\.\w+", branch.text) else BRANCH
        advice = advice.fill(place=format_place(site.file, branch.line), read=branch.text)
    # torch's title, with what it is about where the title does not name that.
    title = f"graph break: {shorten(report.title, 120) or 'torch gave no reason'}"
    if report.callee is not None and report.callee.name not in report.title:
        why = f" ({shorten(report.callee.why, 120)})" if report.callee.why else ""
        title += f": {report.callee.name}{why}"
    facts = _build_evidence(broken)
    if behind:
        title += f", with {format_count(len(behind), 'recompile')} behind it"
        ids = dict.fromkeys(recompile_id.compile_id for recompile_id in behind)
        facts["recompiles_behind"] = [compile_id for compile_id in ids if compile_id not in others]
    return make_finding(
        timeline,
        CODES[report.category],
        title,
        advice.fix,
        caveat=advice.caveat,
        recipe=advice.recipe,
        location=location,
        severity=choose_severity(broken, timeline),
        confidence="exact" if report.gb_id is not None else "text",
        count=site.count,
        steps=site.steps or (site.first_step,),
        evidence=facts,
    )


def _build_evidence(broken: ReportedBreak) -> dict[str, object]:
    site, report = broken.site, broken.report
    effect = "the frame is split into two graphs, and the code at the break runs eager"
    if broken.ran_eager:
        effect = "the whole frame runs eager: no graph is left of it"
    elif any(frame.graphs == 0 for frame in broken.frames):
        effect = "the frame is split, and its first part holds no tensor operation"
    facts: dict[str, object] = {
        **pick(report, "category", "gb_id", "gb_ids"),
        "reason": report.title,
        **pick(report, "explanation", "context"),
        "compile_ids": list(site.compile_ids),
        "reports": site.count,
        "ran_eager": broken.ran_eager,
        "eager_frames": [[f.where.file, f.where.line] for f in broken.eager_frames],
        "consequence_only": not report.code.startswith(BREAKS),
        "effect": effect,
        "frames": [f.where.function for f in broken.frames],
    }
    if broken.resumed:
        facts["resumed_frames"] = len(broken.resumed)
        facts["resumed_compiles"] = sum(frame.compiles for frame in broken.resumed)
    if site.others:
        facts["other_lines"] = [[call.file, call.line] for call in site.others]
    if report.options:
        facts["options"] = dict(report.options)
    if report.callee is not None:
        facts["callee"] = report.callee._asdict()
    if report.site is not None and report.stack:
        facts["stack"] = [asdict(line) for line in report.stack[-6:]]
    return facts


def _is_of_broken_code(finding: Finding) -> bool:
    """True for what one graph would not have guarded: the instances and calls within one step,
    their combinations, and what Dynamo itself carries over the break."""
    causes = [part for part in finding.about if isinstance(part, CauseId)]
    if not causes:
        return False
    owner = REGISTER[causes[0].rule].owner
    made = owner in ("instance", "several") or causes[0].kind == ANOTHER_INSTANCE
    return made or all(part.variable.startswith(TEMPORARY) for part in causes)


def _is_cause_of_recompiles(broken: Finding, again: Finding) -> bool:
    """True where all recompiles are of frames that a break made. What is carried over it is the
    break's own where it reads a value or size out of a tensor; else the size of an input."""
    root = next(part for part in again.about if isinstance(part, CauseId))
    carried = root.variable.startswith(TEMPORARY) and root.kind != ANOTHER_INSTANCE
    carried = carried and REGISTER[root.rule].changed != "identity"
    if broken.severity == "info" or (carried and broken.rule != "CD202"):
        return False
    ids = list_compile_ids(again)
    return bool(ids) and {*ids} <= {*BreakEvidence.parse(broken.evidence).recompiles_behind}


_MOVED_OUT = frozenset(("CD203", "CD204", "CD211", "CD212"))
"""Codes of breaks whose line is to be moved out of the compiled function."""


def _is_read_by_moved_line(broken: Finding, again: Finding) -> bool:
    """True where the line to be moved out of the compiled function is the one that reads a value,
    in frames that the break made: nothing else in them has the guard."""
    at, read = broken.location, again.location
    same = at is not None and read is not None and (at.file, at.line) == (read.file, read.line)
    ids = {*list_compile_ids(again)}
    behind = {*BreakEvidence.parse(broken.evidence).recompiles_behind}
    return broken.rule in _MOVED_OUT and same and bool(ids) and ids <= behind


ABSORBS = (
    # Frames that exist only because of a break guard what one graph would not.
    Absorption(
        "CD1", "CD2", _is_cause_of_recompiles, is_symptom=_is_of_broken_code, adds_cost=True
    ),
    Absorption("CD1", "CD2", _is_read_by_moved_line, adds_cost=True),
    make_eager_absorption("CD2"),
)


# --- what to change -----------------------------------------------------------------------------

FIXES = {
    "CD201": Advice(
        "where both sides give results of one shape, compute both and choose with torch.where; "
        "else decide before the compiled function",
        "torch.cond computes one side alone, but needs functions without side effects, and torch "
        "2.13 caches no graph with it",
    ),
    "CD202": Advice(
        "keep the value a tensor; or read it after the compiled function; or pass the Python "
        "number that it was made of",
    ),
    "CD203": Advice("call {it} outside the compiled function"),
    "CD204": Advice(
        "call {it} outside the compiled function: Dynamo skips that function on purpose"
    ),
    "CD205": Advice(
        "pass a list instead of a generator, and compile what consumes it",
        "a list holds all items at once",
    ),
    "CD206": Advice("open the context around the call of the compiled function"),
    "CD207": Advice(
        "use plain attributes, build objects outside and return values instead of mutating"
    ),
    "CD208": Advice("convert to a dense tensor (or jagged layout) before the compiled function"),
    "CD209": Advice(
        "call backward and autograd.grad, and register hooks, outside the compiled function",
        "backward hooks of modules need compiled autograd to stay in the graph",
    ),
    "CD211": Advice(
        "move {it} out of the compiled function; or put it under "
        "`if not torch.compiler.is_compiling()`",
        "under is_compiling() it no longer runs once compiled",
    ),
    "CD212": Advice("draw before the compiled function, and pass what was drawn as a tensor"),
    "CD213": Advice("check before the compiled function, and raise there"),
    "CD214": Advice("keep the operator's contract: pure functions, the same output structure"),
    "CD290": Advice("read torch's report in the evidence: this break fits no known category"),
}
BRANCH = Advice(
    "decide the branch at {place} outside of the compiled function",
    f"{DYNAMO}.capture_scalar_outputs = True does not help at a branch, but for an int64 or "
    "float64 scalar on the CPU that was not changed or made within",
)
STATE_BRANCH = Advice(
    f"{BRANCH.fix}; or keep what `{{read}}` says in a plain Python attribute too, set wherever it "
    "is set and where a state dict is loaded, and let one call before the compiled ones do what is "
    "done once",
    f"a graph for each value of a plain attribute: too many for a counter; {BRANCH.caveat}",
)
CARRIED = Advice(
    "torch makes a graph of the rest for each value that this line reads: read it outside of the "
    "compiled function, and compile what needs tensors alone in functions of its own",
)
SELECTED = Advice(
    "the size of the result depends on values: compute all of it and choose with "
    "torch.where(mask, x, y); or select outside of the compiled function",
)
WRAPPED = Advice(
    "compile it before it is wrapped, or call it outside the compiled function: Dynamo skips the "
    "wrapper, not the function",
)
BEFORE_SCHEDULER = Advice(
    "make `step = torch.compile(optimizer.step)` before the scheduler is made, which wraps it, and "
    "call that outside of compiled functions",
    "the scheduler does not see the call, and may warn of the order of calls",
    "compiled_before_wrapping",
)
_UNKNOWN_SHAPE = "Dynamic shape operator"
_SELECTS = re.compile("nonzero|masked_select|where|index|unique")
"""Operators whose result has the elements that a condition chooses."""
REORDERED = Advice(
    f"set {DYNAMO}.reorderable_logging_functions = {{print}} before the first compiled call",
    "text is printed after the graph has run: its order and the values of mutated tensors change",
    "reordered_output",
)
CAPTURED = Advice(
    "start it with: {line}",
    "the size is unknown in the graph: where the code branches on it, a break stays or torch "
    "raises an error",
    "captured_shapes",
)
PLAIN_BOOL = Advice(
    "pass a plain bool as `{name}`: `True if … else False` around its condition on a size",
    "torch makes a graph for each side of the condition",
    "plain_bool",
)
_SYMBOLIC_BOOL = re.compile(r"argument '(\w{1,80})' must be bool, not SymBool")
_BY_THE_CALLER = frozenset(("CD205", "CD208", "CD209", "CD290"))
"""Codes of what the caller passes or sets up: the advice holds whoever has the line."""
_OF_MANY_KINDS = frozenset(("CD205", "CD207", "CD208", "CD209", "CD214", "CD290"))
"""Codes of breaks of many kinds: torch knows better what each needs, where it gives a hint."""

EXPLICIT = Advice(
    "accept it; or remove the call; or move it to the edge of the compiled function",
    "without torch.compiler.disable the function is traced and guarded",
)
EXPLICIT_OF_OTHERS = Advice("accept it: the code that requests it is not part of the program")
OF_PACKAGE = Advice(
    "make the call of the package, `{call}` ({place}), outside the compiled function"
)
"""Where the program's own compiled code calls a package in whose code the break is."""

HINTED = Advice(
    f"{{before}}set {DYNAMO}.{{option}}, as torch's own hint says",
    "holds for every compiled function; torch supports it only in part",
)
UNROLLED = Advice(
    f"leave the recurrent layer eager: torch breaks the graph at it unless {DYNAMO}.allow_rnn is "
    "set, and unrolls it over the time steps then",
    "with allow_rnn each length is a graph of its own; torch 2.13 leaves out its dropout between "
    "layers, with any backend but eager, and on a CPU ends in an error where an LSTM computes "
    "gradients",
)
"""For `allow_rnn`: in torch/_decomp/decompositions.py `one_layer_rnn` loops in Python,
`_rnn_helper` drops dropout by a wrong comparison of layers, and AOT autograd cannot save what
`mkldnn_rnn_layer` keeps for its backward."""
WITHIN_PACKAGE = Advice("accept it: the line is a package's, and so is what calls it")


def _choose_advice(
    report: BreakReport, *, is_own: bool, in_package: bool, call: UserCall | None
) -> Advice:
    """Choose the advice, by whether torch names a line of the program's own, whether the line to
    change is a package's, and then the call of it in what the program compiles; None where the
    program calls something compiled of which all code is a package's."""
    if report.explicit:
        return EXPLICIT if is_own else EXPLICIT_OF_OTHERS
    advice = _choose_edit(report, is_own=is_own, in_package=in_package, call=call)
    hinted = ", ".join(f"{name} = {value}" for name, value in _list_options(report.options))
    if not hinted or advice.recipe is not None:
        return advice
    if "allow_rnn" in hinted:
        return UNROLLED
    # Of an operator that torch leaves out unless told, nothing else is known to help.
    before = "" if CODES[report.category] == "CD210" else f"{advice.fix}; or "
    return HINTED.fill(before=before, option=hinted)


def _choose_edit(
    report: BreakReport, *, is_own: bool, in_package: bool, call: UserCall | None
) -> Advice:
    code, at = CODES[report.category], report.site
    if code == "CD205" and at is not None and at.function.endswith("comp>"):
        code = "CD203"  # up to Python 3.11 a comprehension gets an iterator from the code around it
    if code == "CD212" and report.callee is not None and "rng_state" in report.callee.name:
        code = "CD203"  # nothing is drawn
    if in_package and code not in _BY_THE_CALLER:
        if call is None:
            return WITHIN_PACKAGE
        place = format_place(call.file, call.line)
        return OF_PACKAGE.fill(call=shorten(call.text, 80), place=place)
    if code == "CD211" and report.callee is not None and report.callee.name == "print":
        return REORDERED
    if code == "CD210" and (wanted := _SYMBOLIC_BOOL.search(report.context)) is not None:
        return PLAIN_BOOL.fill(name=wanted[1])
    if code == "CD210":
        text = f"{report.title} {report.explanation} {report.context}"
        return Advice(choose_operator_fix(text if is_own or report.failed_at else ""))
    why = "" if report.callee is None else report.callee.why or ""
    if code == "CD204" and why.startswith(AS_WRAPPED):
        return BEFORE_SCHEDULER if "lr_scheduler" in why else WRAPPED
    if code == "CD202" and _UNKNOWN_SHAPE in report.title:
        if report.callee is not None and _SELECTS.search(report.callee.name) is None:
            return FIXES["CD203"].fill(it=_name_callee(report, call))
        return SELECTED
    if code in _OF_MANY_KINDS and report.hints:
        # A hint of several lines is several, of which the later ones begin in lower case.
        text = " | ".join(hint.rstrip(".") for hint in report.hints)
        text = re.sub(r" \| (?=[a-z`])", " ", text).replace(" | ", "; or: ")
        return Advice(f"torch's hint: {text}")
    return FIXES[code].fill(it=_name_callee(report, call))


def _name_callee(report: BreakReport, call: UserCall | None) -> str:
    """Name what is called as the program does: torch's name may stand nowhere in it, as that of
    the class behind `Variable(...)`."""
    if report.callee is None:
        return "it"
    name = report.callee.name
    if call is None or any(part in call.text for part in name.split(".")):
        return f"`{name}`"
    return f"what {format_place(call.file, call.line)} calls, `{name}` to torch,"


# --- what may be tried --------------------------------------------------------------------------

BREAKS = "CD2"
"""How the codes of graph breaks begin."""


def is_unknown_size_needed(timeline: Timeline) -> bool:
    """True where the code behind a break reshapes, branches or loops by a size of what the break
    made: it breaks there, or raises, where that size is unknown."""
    guards = chain.from_iterable(timeline.size_guards.values())
    made = (g for g in guards if any(f"['{TEMPORARY}" in name for _, name in g.sizes))
    limits = (locate_size_limit(guard, timeline.user_roots) for guard in made)
    return any(limit.how in ("reshape", "branch", "loop", "number") for limit in limits)


def add_capture_recipe(finding: Finding, others: Iterable[Finding], *, is_needed: bool) -> Finding:
    """Make the setting for operators whose shape depends on data a candidate, and the recipe where
    torch traced the rest of the function: what else breaks in one that ran eager is not known.
    Reading a value raises where the size is unknown. `is_needed`: the program needs the number of
    such a size; the setting holds for all of them."""
    evidence = BreakEvidence.parse(finding.evidence)
    if _UNKNOWN_SHAPE not in (evidence.reason or "") or finding.location is None:
        return finding
    name, risk = "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS", CAPTURED.caveat or ""
    # Functions that torch compiled, whole or the rest of, when it met the break; or another one.
    whole = {*map(get_whole_function, evidence.frames)}
    reads = (BreakEvidence.parse(other.evidence) for other in others if other.rule == "CD202")
    read = (its.frames for its in reads if _UNKNOWN_SHAPE not in (its.reason or ""))
    others_in = whole.intersection(map(get_whole_function, chain.from_iterable(read)))
    traced = finding.location.function in whole and not (evidence.ran_eager or others_in)
    if traced and not is_needed:
        finding = replace_advice(finding, CAPTURED.fill(line=format_export(name, "1")))
    captured = CandidateRecord("environment", name, "1", risk)
    return structs.replace(finding, fix=structs.replace(finding.fix, candidates=(captured,)))


_UNFAITHFUL = frozenset(
    ("suppress_errors", "enable_faithful_generator_behavior", "use_numpy_random_stream")
)
_UNFAITHFUL_PREFIXES = ("_", "debug_", "skip_", "fail_on_")
"""Options that silence errors, leave something out, or change what is computed."""

_READ_OUTSIDE = frozenset(("compiled_autograd",))
"""Read where no frame is compiled: overriding them for frames has no effect."""


def _list_options(hinted: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """List the options that torch's hints want set and that change no results."""
    for name, value in hinted:
        unfaithful = name in _UNFAITHFUL or name.startswith(_UNFAITHFUL_PREFIXES)
        if value in ("True", "False") and not unfaithful:
            yield name, value


def propose_hinted_options(context: FixContext) -> Iterator[ProgramChange]:
    """Propose a change for each option that the report of the break wants set."""
    options = BreakEvidence.parse(context.finding.evidence).options or {}
    offered = " ".join(candidate.setting for candidate in context.finding.fix.candidates)
    risk = HINTED.caveat or ""
    for name, value in _list_options(options.items()):
        if name.upper() in offered:
            continue
        if context.version < FIRST_WITH_UNBACKED or name in _READ_OUTSIDE:
            setting = SettingChange(DYNAMO, name, value == "True")
            line = f"{DYNAMO}.{name} = {value}"
            yield ProgramChange("configuration", line, risk, settings=(setting,))
        else:
            yield make_variable_change(OVERRIDES, f">=0:{name}={value}", risk)
