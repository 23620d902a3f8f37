"""Settings and changes that may remove a finding, the cheapest first: variables of the environment,
options of torch, what is done at the call, and edits of the program.

Each was seen to work for its kind of value and version of torch (by `test_levers.py`); whether it
does here, a trial shows. Options that drop guards are none. Without effect: dynamic sources for
floats, bools, strings and strides; `dynamic=True` for ints of modules and globals;
`recompile_limit` for single frames.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace
from packaging.version import Version

from compilediag.diagnosis.causes.cause_group import find_changed_dims, find_changed_sizes
from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.codes import REGISTER, SIZES
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.diagnosis.guards.size_limits import locate_size_limit
from compilediag.receipt.schema.compiles import (
    SETTING,
    CandidateRecord,
    FindingRecord,
    FixRecord,
    UserCallRecord,
)
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import fixed_shapes, values
from compilediag.rules.breaks import rule as breaks
from compilediag.rules.changes import (
    SOURCES,
    Edit,
    ProgramChange,
    is_listable,
    is_said_in,
    make_variable_change,
    parse_callee,
)
from compilediag.rules.environment_variables import format_export, join_values
from compilediag.rules.facts import STATIC, Facts, is_branched_on, is_integer, is_number
from compilediag.rules.fix_context import (
    FIRST_WITH_UNBACKED,
    PARAMETER,
    FixContext,
    make_context,
    parse_torch_version,
)
from compilediag.rules.make_finding import Advice, format_place, replace_advice
from compilediag.rules.objects import FIRST_CALL
from compilediag.rules.sizes.advice import SAME_TENSOR
from compilediag.timeline.compiles import Recompile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import ArgumentChange, CompileOption

# --- tensors that grow --------------------------------------------------------------------------

GROWING = Advice(
    "start it with: {line}",
    "a graph stays for each side of a branch on these sizes; dynamic graphs may run slower",
    "dynamic_growth",
)
_HELD = "CD103"


def describe_growth(known: Facts, version: Version) -> Advice | None:
    """Describe the setting for a tensor that is held and grows; None where the frame is compiled
    again for something else too, or a size is 0 or 1."""
    group = known.group
    if group.code not in (*SIZES, _HELD) or version < FIRST_WITH_UNBACKED:
        return None
    frames = {(event.process, event.frame) for event in group.all_recompiles}
    sizes: dict[str, None] = {}
    created: list[Recompile] = []
    counted = known.timeline.counted_recompiles
    events = [event for event in counted if (event.process, event.frame) in frames]
    if len(events) <= len(group.all_recompiles):  # one may be a side of the branch, and stays
        return None
    for event in events:
        for guard in (guard for entry in event.entries for guard in entry.guards):
            changes = find_changed_dims(guard.expected, guard.actual)
            if any({change.before, change.after} & {"0", "1"} for change in changes):
                return None
            sizes |= dict.fromkeys(f"{guard.source}:{change.dimension}" for change in changes)
            if guard.leaf == "EQUALS_MATCH" and is_integer(guard.actual):  # the size that it has
                sizes[guard.source] = None
            elif guard.expected == "None" and (guard.actual or "").startswith("Tensor"):
                created.append(event)
            elif not changes and "size()" not in guard.text:
                return None
    limits = (
        locate_size_limit(guard, known.timeline.user_roots)
        for compiled in known.compiles
        for guard in known.timeline.size_guards.get(compiled.id, ())
    )
    branches = {(limit.inside or limit.place) for limit in limits if limit.how == "branch"}
    if len(branches) > 1:  # each keeps a graph for each of its sides
        return None
    held = created or any("." in size for size in sizes)
    listable = all(is_listable(size.partition(":")[0]) for size in sizes)
    if not sizes or not held or not listable:
        return None
    advice = GROWING.fill(line=format_export(SOURCES, ",".join(sorted(sizes))))
    if not created:
        return advice
    if known.first_call is None or not known.is_second_call(created[0]):
        return None
    places = dict.fromkeys(format_place(call.file, call.line) for call in known.first_call)
    first = FIRST_CALL.fill(places=" and ".join(places), name="what is made in it")
    return Advice(
        f"{advice.fix}, and {first.fix}", f"{advice.caveat}; {first.caveat}", advice.recipe
    )


# --- sizes ---------------------------------------------------------------------------------------

MARK = "maybe_mark_dynamic"
"""Leaves a size that the code needs as a number a constant; `mark_dynamic` raises an error then."""

UNBACKED = "TORCH_COMPILE_UNBACKED_SOURCES"

_MODULES = {MARK: "torch._dynamo", "mark_unbacked": "torch._dynamo.decorators"}


@dataclasses.dataclass(frozen=True, slots=True)
class MarkedTensor:
    """A tensor of a call and the dimensions that are marked."""

    parameter: str
    path: str
    """Below the parameter: "['rows'][0]"; empty for the parameter itself."""
    dimensions: tuple[int, ...]

    @property
    def argument(self) -> str:
        """The name of the argument in receipts."""
        return f"{self.parameter}{self.path}"

    @property
    def source(self) -> str:
        """The source that torch's guards have of it."""
        return f"L['{self.parameter}']{self.path}"

    def format_calls(self, name: str, action: str = MARK) -> list[str]:
        """Format the statements that mark a variable."""
        return [f"{_MODULES[action]}.{action}({name}, {dim})" for dim in self.dimensions]


def parse_marked(source: str, dimensions: Iterable[int]) -> MarkedTensor | None:
    """Parse the source of a tensor to mark; None for what is not part of an argument."""
    match = PARAMETER.fullmatch(source)
    if match is None or match[1] == "self":
        return None
    return MarkedTensor(match[1], match[2], tuple(dimensions))


DYNAMIC = "its sizes are dynamic: kernels may be slower, and a CUDA graph is recorded for each size"
_EVERY_SIZE = "every size and number of every compiled function is dynamic: kernels may be slower"
_THESE_SIZES = "every size and number of it is dynamic: kernels may be slower"
_DATA_DEPENDENT = "where the code branches on the size, torch raises an error"
_DYNAMIC = "dynamic=True"
_ALL_DYNAMIC = ProgramChange(
    "call",
    f"torch.compile(..., {_DYNAMIC})",
    _EVERY_SIZE,
    options=(CompileOption("dynamic", True),),
    same_as=_DYNAMIC,
)


def propose_size_changes(context: FixContext) -> Iterator[ProgramChange]:
    """Propose marks, then everything dynamic; unbacked sizes."""
    sizes = _SIZE.findall(context.evidence.guard or "")
    is_condition = REGISTER[context.finding.rule].changed == "condition"
    if is_condition and context.kind == "zero_one" and len(sizes) == 1:
        source, dimension = sizes[0]
        yield from _propose_unbacked(context, source, [int(dimension)])
    dimensions, small = find_dimensions_to_mark(context)
    if small:
        yield from _propose_unbacked(context, context.source, dimensions)
    elif dimensions:
        yield from _propose_marks(context, list_changed_tensors(context, dimensions), MARK, DYNAMIC)
        yield from _propose_dynamic(context)


def propose_dynamic_floats(context: FixContext) -> Iterator[ProgramChange]:
    """Propose everything dynamic for a float, on which dynamic sources have no effect. One that
    compiled a frame twice stays a constant of each graph, as inductor makes it."""
    values = [text for change in context.values for text in change]
    floats = bool(values) and all(map(is_number, values)) and not any(map(is_integer, values))
    frames = {event.frame for event in context.compiles}
    if floats and len(frames) == len(context.compiles):
        yield from _propose_dynamic(context)


def _propose_dynamic(context: FixContext) -> Iterator[ProgramChange]:
    """Propose everything dynamic: as an edit where what the program calls is compiled under a plain
    name in the same file, else wherever it compiles."""
    call = context.finding.entered_at
    called = parse_callee(call) if call is not None and context.is_own(call.file) else None
    if call is not None and isinstance(called, ast.Name):
        line = f"{call.file}: {_ALL_DYNAMIC.line}  # where {called.id} is compiled"
        edit = Edit(call.file, call.line, "compile_option", (called.id, _DYNAMIC))
        made = dataclasses.replace(_ALL_DYNAMIC, kind="source", line=line, options=())
        yield dataclasses.replace(made, risk=_THESE_SIZES, edits=(edit,))
    yield _ALL_DYNAMIC


def find_dimensions_to_mark(context: FixContext) -> tuple[list[int], bool]:
    """Find the dimensions of an argument whose sizes changed, and whether 0 or 1 was among the
    sizes: these are constants for a mark. None of either where a mark is no help."""
    needs_number = (context.evidence.size_needed or {}).get("kind") == "constant"
    changed = REGISTER[context.finding.rule].changed
    if changed != "size" or context.kind == "marking" or needs_number:
        return [], False
    return find_changed_sizes(context.values)


_SIZE = re.compile(r"(L\['[A-Za-z_]\w*'\](?:\[[^\s\]]+\])*)\.size\(\)\[(\d+)\]")


def _propose_unbacked(
    context: FixContext, source: str, dimensions: Sequence[int]
) -> Iterator[ProgramChange]:
    """Propose an unbacked size: 0 and 1 are constants of every graph, but not of one that takes the
    size for unknown."""
    if context.version >= FIRST_WITH_UNBACKED and PARAMETER.fullmatch(source) and "," not in source:
        value = _format_sources(source, dimensions)
        yield make_variable_change(UNBACKED, value, _DATA_DEPENDENT)
    tensor = parse_marked(source, dimensions)
    if tensor is not None:
        yield from _propose_marks(context, [tensor], "mark_unbacked", _DATA_DEPENDENT)


def _format_sources(source: str, dimensions: Iterable[int]) -> str:
    """Format sizes for a list of sources, as torch takes them from 2.13 on."""
    return ",".join(f"{source}:{dimension}" for dimension in dimensions)


def list_changed_tensors(context: FixContext, dimensions: Iterable[int]) -> list[MarkedTensor]:
    """List the tensor of the finding, and those whose sizes changed with it: one that is not marked
    makes the same call compile again. Empty where the first is not an argument."""
    sizes = _find_sizes_changed_too(context, dimensions)
    first, *others = (parse_marked(source, dims) for source, dims in sizes.items())
    return [] if first is None else [first, *(tensor for tensor in others if tensor is not None)]


def _find_sizes_changed_too(context: FixContext, dimensions: Iterable[int]) -> dict[str, list[int]]:
    """Find the dimensions of each tensor whose size changed with that of the finding's own."""
    sizes = {context.source: set(dimensions)}
    for cause in (cause for event in context.compiles for cause in event.causes):
        changed, small = find_changed_sizes([(cause.expected, cause.actual)])
        if cause.finding == context.finding.id and changed and not small:  # else constants
            sizes.setdefault(cause.source, set()).update(changed)
    return {source: sorted(dims) for source, dims in sizes.items()}


def _propose_marks(
    context: FixContext, tensors: Sequence[MarkedTensor], action: str, risk: str
) -> Iterator[ProgramChange]:
    """Propose marks on the arguments of every call of the function; where the program's call gives
    a tensor no name, which a mark needs, the setting that does the same."""
    call = context.finding.entered_at
    if context.function is None or not tensors or context.is_compiled(call):
        return
    names = [_find_name(call, tensor) for tensor in tensors]
    listed = context.version >= FIRST_WITH_UNBACKED and all(is_listable(t.source) for t in tensors)
    if action == MARK and listed and None in names:
        yield make_variable_change(SOURCES, _format_marked(tensors), _RISK)
        return
    at = f", {call.file}:{call.line}" if call is not None else ""
    marks = [
        line
        for tensor, name in zip(tensors, names, strict=True)
        for line in tensor.format_calls(name or tensor.argument, action)
    ]
    yield ProgramChange(
        "call",
        f"{'; '.join(marks)}  # before the call{at}",
        risk,
        arguments=tuple(
            ArgumentChange(context.function, tensor.argument, action, dimension)
            for tensor in tensors
            for dimension in tensor.dimensions
        ),
        same_as=_name_setting(tensors, action),
    )


def _name_setting(tensors: Sequence[MarkedTensor], action: str = MARK) -> str:
    """Name the setting that does what marks do."""
    variable = SOURCES if action == MARK else UNBACKED
    return make_variable_change(variable, _format_marked(tensors), "").same_as


def _format_marked(tensors: Iterable[MarkedTensor]) -> str:
    return ",".join(_format_sources(its.source, its.dimensions) for its in tensors)


def _find_name(call: UserCallRecord | None, tensor: MarkedTensor) -> str | None:
    """Find the name of a tensor at the program's call: a mark is an attribute of one object, which
    an item or a result of a call may not be."""
    text = _find_passed(call, tensor)
    return text if text is not None and SAME_TENSOR.fullmatch(text) else None


def _find_passed(call: UserCallRecord | None, tensor: MarkedTensor) -> str | None:
    """Find the expression of a tensor at the program's call; None where it is not known."""
    texts = {argument.parameter: argument.expression for argument in call.arguments} if call else {}
    if tensor.argument in texts:
        return texts[tensor.argument]
    root = texts.get(tensor.parameter)
    return f"{root}{tensor.path}" if root is not None and root.isidentifier() else None


def propose_mark_edits(context: FixContext) -> Iterator[ProgramChange]:
    """Propose marks as edits, before every call by which the function was compiled."""
    dimensions, small = find_dimensions_to_mark(context)
    tensors = list_changed_tensors(context, dimensions) if dimensions and not small else []
    places = [event.entered_at for event in context.compiles_of_frames] if tensors else []
    if any(map(context.is_compiled, places)):
        return
    edits = dict.fromkeys(_make_mark_edit(place, tensors) for place in places)
    made = [edit for edit in edits if edit is not None and context.is_own(edit.file)]
    if not made or len(made) < len(edits):
        return
    others = len(made) - 1
    more = f" (and at {others} other call{'s' * (others > 1)})" if others else ""
    line = f"{made[0].file}:{made[0].line}: {'; '.join(made[0].code)}  # before the call{more}"
    yield ProgramChange("source", line, DYNAMIC, edits=tuple(made), same_as=_name_setting(tensors))


def _make_mark_edit(call: UserCallRecord | None, tensors: Sequence[MarkedTensor]) -> Edit | None:
    """Make the edit that marks before a call; None for a call that is not known, or does not pass
    the first of them, and where one is made for the call alone."""
    given = [(tensor, arg) for tensor in tensors if (arg := _find_passed(call, tensor)) is not None]
    if call is None or not call.file or not given or given[0][0] is not tensors[0]:
        return None
    if not all(SAME_TENSOR.fullmatch(arg) for _, arg in given):
        return None
    code = [line for tensor, arg in given for line in tensor.format_calls(arg)]
    return Edit(call.file, call.line, "before", tuple(code))


# --- dynamic sources ----------------------------------------------------------------------------

_OF_SEVERAL = ("condition", "values")
"""What changed where a finding names no source of its own: what two sizes have to do with each
other, and known values that met."""

_EVERY_NAMESAKE = "holds for every compiled function with variables of these names"


def propose_joint_sources(context: FixContext) -> Iterator[ProgramChange]:
    """Propose every dynamic source of the findings of its frames at once."""
    own = _list_sources(context.finding)
    changed = REGISTER[context.finding.rule].changed
    if not own and not _list_growing_sources(context) and changed not in _OF_SEVERAL:
        return
    frames = {event.frame for event in context.compiles}
    events = [event for event in context.receipt.compile.events if event.frame in frames]
    about = {cause.finding for event in events for cause in event.causes}
    found = [f for f in context.receipt.findings if f.id in about and f.severity != "info"]
    each = (_list_growing_sources(dataclasses.replace(context, finding=one)) for one in found)
    grows = [source for listed in each for source in listed]
    every = [source for one in found for source in _list_sources(one)]
    value = join_values((SOURCES, source) for source in (*grows, *every)).get(SOURCES, "")
    if value and set(value.split(",")) != {entry for listed in own for entry in listed.split(",")}:
        yield make_variable_change(SOURCES, value, _EVERY_NAMESAKE, left=int(bool(grows)))


def _list_sources(finding: FindingRecord) -> list[str]:
    return [candidate.value for candidate in finding.fix.candidates if candidate.setting == SOURCES]


def _list_growing_sources(context: FixContext) -> list[str]:
    """List a tensor of a module that grows, and what grows with it, as dynamic sources: each growth
    is another branch, and the sizes after it are one graph. Empty where torch takes no dimensions,
    or takes the size of the first for a constant."""
    first, small = find_changed_sizes(context.values)
    new = context.kind == "shape" and context.version >= FIRST_WITH_UNBACKED
    if not new or not first or small:
        return []
    sizes = _find_sizes_changed_too(context, first)
    return [_format_sources(source, dims) for source, dims in sizes.items() if "," not in source]


def find_dynamic_size(known: Facts, version: Version) -> str | None:
    """Find the sources of a size that a setting makes dynamic. 0 and 1 stay constants, and so does
    a size that the graph made one. A tensor of a module that grows where the code asks for its size
    is another branch while it does."""
    group = known.group
    source, new = group.first.source, version >= FIRST_WITH_UNBACKED
    dimensions, small = group.sizes_changed
    if not dimensions or small or not is_listable(source):
        return None
    passed = group.changed == "size" and group.kind != "marking"
    # What a module gets in another size: a tensor that grows, a parameter that is replaced.
    held = new and group.kind in ("shape", "parameter") and not is_branched_on(group)
    if not passed and not held:
        return None
    if (not STATIC.search(source) and group.constant_dimensions) or known.is_split:
        return None
    return _format_sources(source, dimensions) if new else source


# --- settings that need no edit of the program, for those who run code that they cannot change ---

_SOURCES: tuple[Callable[[Facts, Version], str | None], ...] = (
    values.find_dynamic_int,
    find_dynamic_size,
)
"""The sources that torch takes for dynamic, with which a setting removes a group of causes."""

_RISK = "holds for every compiled function with a variable of this name"


def add_candidates(
    findings: Sequence[Finding], timeline: Timeline, causes: RunCauses
) -> Iterator[Finding]:
    """Add to each finding the settings that remove it in the run's version of torch."""
    seen = {process.torch.torch for process in timeline.processes if process.torch is not None}
    version = parse_torch_version(seen.pop()) if len(seen) == 1 else None  # processes may differ
    groups = {group.id: group for of_code in causes.groups.values() for group in of_code}
    is_needed = breaks.is_unknown_size_needed(timeline)
    for finding in findings:
        if version is None or finding.severity == "info":
            yield finding
            continue
        if finding.rule.startswith(breaks.BREAKS):  # a recompile behind one goes with it
            yield breaks.add_capture_recipe(finding, findings, is_needed=is_needed)
            continue
        about = [cause_id for cause_id in finding.about if isinstance(cause_id, CauseId)]
        own = [groups[cause_id] for cause_id in about if cause_id in groups]
        parts = [part for group in own for part in group.parts]
        listed: dict[str, None] = {}
        for find_sources in _SOURCES:
            found = [find_sources(Facts(part, timeline), version) for part in parts]
            known = [sources for sources in dict.fromkeys(found) if sources is not None]
            # Only what removes every cause: the sources of all of them in one variable.
            if known and None not in found:
                listed[",".join(known)] = None
        growth = describe_growth(Facts(own[0], timeline), version) if own else None
        # A line that needs the number of a size needs it under any setting.
        needed = GuardEvidence.parse(finding.evidence).size_needed
        if growth is not None and finding.fix.recipe is None:
            yield replace_advice(finding, growth)
        elif needed or not listed:
            yield finding
        else:
            helps = not Facts(own[0], timeline).begins_within  # else it may help
            yield replace(finding, fix=_add_sources(finding.fix, [*listed], helps=helps))


def _add_sources(fix: FixRecord, listed: Sequence[str], *, helps: bool) -> FixRecord:
    """Add values of the setting, and make the first, if it helps, the recipe where there is none;
    one for what changes after the first call stands beside what that call is to do."""
    candidates = (CandidateRecord("environment", SOURCES, value, _RISK) for value in listed)
    fix = replace(fix, candidates=tuple(candidates))
    line = f"start it with: {format_export(SOURCES, listed[0])}"
    if fix.recipe == FIRST_CALL.recipe and helps:
        return replace(fix, summary=f"{line}, and {fix.summary}", caveat=f"{fix.caveat}; {_RISK}")
    is_recipe = helps and not fix.recipe
    return replace(fix, summary=line, caveat=_RISK, recipe=SETTING) if is_recipe else fix


# --- changes ------------------------------------------------------------------------------------

_EXPORT = re.compile(rf'export {SOURCES}="([^"]+)"')


def propose_candidates(context: FixContext) -> Iterator[ProgramChange]:
    """Propose the settings that the finding names, in its recipe or beside it."""
    fix = context.finding.fix
    for value in _EXPORT.findall(fix.summary if fix.recipe == GROWING.recipe else ""):
        yield make_variable_change(SOURCES, value, fix.caveat or "", left=1)
    for candidate in fix.candidates:
        yield make_variable_change(candidate.setting, candidate.value, candidate.risk)


_MAKERS: tuple[Callable[[FixContext], Iterator[ProgramChange]], ...] = (
    breaks.propose_hinted_options,
    propose_candidates,
    propose_joint_sources,
    propose_size_changes,
    propose_dynamic_floats,
    propose_mark_edits,
    fixed_shapes.propose_bucket_changes,
)
"""In the order of trying: what torch itself names is first."""


def list_changes(finding: FindingRecord, receipt: Receipt) -> tuple[ProgramChange, ...]:
    """List what may remove a finding in the receipt's version of torch, in the order of trying: its
    own recipe before all others."""
    context = make_context(finding, receipt)
    made = [] if context is None else [change for make in _MAKERS for change in make(context)]
    recipe = finding.fix.summary if finding.fix.recipe is not None else ""
    return tuple(sorted(dict.fromkeys(made), key=lambda change: not is_said_in(change, recipe)))
