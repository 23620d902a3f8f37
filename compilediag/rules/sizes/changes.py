"""Changes that may remove recompiles for sizes: marks, dynamic sources, unbacked sizes.

A line that marks a tensor is followed literally: what the call itself computes is assigned to a
variable first, because a mark belongs to one tensor object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from compilediag.diagnosis.causes.group import Group, sizes_changed
from compilediag.diagnosis.codes import info
from compilediag.receipt.schema.compiles import EnteredAt, FindingRecord
from compilediag.rules import changes
from compilediag.rules.case import (
    FIRST_WITH_UNBACKED,
    PARAMETER,
    Case,
    changes_at_calls,
    edit_calls,
)
from compilediag.rules.changes import LISTABLE, SHAPES, SOURCES, Change, Edit
from compilediag.rules.facts import is_branched_on
from compilediag.rules.sizes.advice import SAME_TENSOR
from compilediag.rules.values import AS_TENSOR
from compilediag.rules.variables import joined
from compilediag_harness.wire import ArgumentChange, CompileOption

MARK = "maybe_mark_dynamic"
"""Leaves a size that the code needs as a number a constant; `mark_dynamic` raises an error then."""

_MODULES = {MARK: "torch._dynamo", "mark_unbacked": "torch._dynamo.decorators"}
_MAX_LENGTH = 80
"""Characters of an expression in a line."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A tensor of a call and the dimensions that are marked."""

    parameter: str
    path: str
    """Below the parameter: "['rows'][0]"; empty for the parameter itself."""
    dimensions: tuple[int, ...]

    @property
    def argument(self) -> str:
        """The name of the argument in receipts."""
        return f"{self.parameter}{self.path}"

    def calls(self, name: str, action: str = MARK) -> list[str]:
        """Format the statements that mark a variable."""
        return [f"{_MODULES[action]}.{action}({name}, {each})" for each in self.dimensions]


def marked(source: str, dimensions: Iterable[int]) -> Marked | None:
    """Parse the source of a tensor to mark; None for what is not part of an argument."""
    found = PARAMETER.fullmatch(source)
    if found is None or found[1] == "self":
        return None
    return Marked(found[1], found[2], tuple(dimensions))


DYNAMIC = "its sizes are dynamic: kernels may be slower, and a CUDA graph is recorded for each size"
_EVERY_SIZE = "every size and number of every compiled function is dynamic: kernels may be slower"
_UNBACKED = (
    "sizes that change are unbacked in every compiled function: torch raises an error where the "
    "code branches on one"
)
_DATA_DEPENDENT = "where the code branches on the size, torch raises an error"


def size_changes(case: Case) -> Iterator[Change]:
    """Propose marks, then everything dynamic; unbacked sizes; what a condition is about."""
    if info(case.finding.rule).changed == "condition":
        yield from _condition_changes(case)
    dimensions, small = dimensions_to_mark(case)
    if small:
        yield from _unbacked(case, case.source, dimensions)
        yield changes.dynamo("automatic_dynamic_shapes_mark_as", "unbacked", _UNBACKED, left=1)
    elif dimensions:
        if "_parameters[" in case.source:
            yield changes.dynamo("force_parameter_static_shapes", False, DYNAMIC, left=1)
        yield from _at_the_call(case, changed_sizes(case, dimensions), MARK, DYNAMIC)
        yield Change(
            "call",
            "torch.compile(..., dynamic=True)",
            _EVERY_SIZE,
            options=(CompileOption("dynamic", True),),
        )


def dimensions_to_mark(case: Case) -> tuple[list[int], bool]:
    """Find the dimensions of an argument whose sizes changed, and whether 0 or 1 was among the
    sizes: these are constants for a mark. None of either where a mark is no help."""
    if info(case.finding.rule).changed != "size" or case.kind == "marking":
        return [], False
    return sizes_changed(case.values)


_SIZE = re.compile(r"(L\['[A-Za-z_]\w*'\](?:\[[^\s\]]+\])*)\.size\(\)\[(\d+)\]")
_BOUND = re.compile(r"L\['([A-Za-z_]\w*)'\](?![\[.\w'])")


def _condition_changes(case: Case) -> Iterator[Change]:
    """Propose for a condition that torch put into the graph's guards other symbols for equal sizes,
    a number in its range as a tensor."""
    sizes = _SIZE.findall(case.guard)
    if case.kind == "zero_one" and len(sizes) == 1:
        source, dimension = sizes[0]
        yield from _unbacked(case, source, [int(dimension)])
    elif len(sizes) == 2 and "==" in case.guard:
        yield changes.dynamo(
            "use_duck_shape", False, "more symbols: compiles take longer", module=SHAPES
        )
    numbers = set(_BOUND.findall(case.guard))
    if len(numbers) == 1 and ".size()" not in case.guard and ".stride()" not in case.guard:
        yield from changes_at_calls(case, numbers.pop(), "tensor", "torch.tensor(_)", AS_TENSOR)


def _unbacked(case: Case, source: str, dimensions: Sequence[int]) -> Iterator[Change]:
    """Propose an unbacked size: 0 and 1 are constants of every graph, but not of one that takes the
    size for unknown."""
    if case.version >= FIRST_WITH_UNBACKED and PARAMETER.fullmatch(source) and "," not in source:
        value = _listed(source, dimensions)
        yield changes.variable("TORCH_COMPILE_UNBACKED_SOURCES", value, _DATA_DEPENDENT)
    tensor = marked(source, dimensions)
    if tensor is not None:
        yield from _at_the_call(case, [tensor], "mark_unbacked", _DATA_DEPENDENT)


def _listed(source: str, dimensions: Iterable[int]) -> str:
    """Format sizes for a list of sources, as torch takes them from 2.13 on."""
    return ",".join(f"{source}:{dimension}" for dimension in dimensions)


def changed_sizes(case: Case, dimensions: Iterable[int]) -> list[Marked]:
    """List the tensor of the finding, and those whose sizes changed with it: one that is not marked
    makes the same call compile again. Empty where the first is not an argument."""
    sizes = {case.source: set(dimensions)}
    for cause in (cause for event in case.compiles for cause in event.causes):
        changed, small = sizes_changed([(cause.expected, cause.actual)])
        if cause.finding == case.finding.id and changed and not small:  # constants, if marked too
            sizes.setdefault(cause.source, set()).update(changed)
    first, *others = (marked(source, sorted(found)) for source, found in sizes.items())
    return [] if first is None else [first, *(each for each in others if each is not None)]


def _at_the_call(case: Case, tensors: Sequence[Marked], action: str, risk: str) -> Iterator[Change]:
    """Propose marks on the arguments of every call of the function."""
    if case.function is None or not tensors:
        return
    before, names, passing = named_before(case, tensors)
    for each, name in zip(tensors, names, strict=True):
        before += each.calls(name, action)
    yield Change(
        "call",
        f"{'; '.join(before)}  # before the call{case.call_place}{passing}",
        risk,
        arguments=tuple(
            ArgumentChange(case.function, each.argument, action, dimension)
            for each in tensors
            for dimension in each.dimensions
        ),
    )


def named_before(case: Case, tensors: Sequence[Marked]) -> tuple[list[str], list[str], str]:
    """Name the tensors of a call: statements before it, the names of the tensors then, and for the
    end of the line the variables that the call has to pass in place of what they hold."""
    texts = [_passed(case.finding.entered_at, each) for each in tensors]
    names = _variables(
        each
        for each in texts
        if each is not None and len(each) <= _MAX_LENGTH and not SAME_TENSOR.fullmatch(each)
    )
    before = [f"{name} = {text}" for text, name in names.items()]
    passing = f", passing {' and '.join(names.values())}" if names else ""
    named = [
        tensor.argument if text is None else names.get(text, text)
        for tensor, text in zip(tensors, texts, strict=True)
    ]
    return before, named, passing


def _variables(texts: Iterable[str]) -> dict[str, str]:
    """Name the expressions that the call computes, by their text."""
    each = [*dict.fromkeys(texts)]
    return {text: f"given{at}" if len(each) > 1 else "given" for at, text in enumerate(each, 1)}


def _passed(entered: EnteredAt | None, tensor: Marked) -> str | None:
    """Find the expression of a tensor at the program's call; None where it is not known."""
    texts = {item.parameter: item.expression for item in entered.arguments} if entered else {}
    if tensor.argument in texts:
        return texts[tensor.argument]
    root = texts.get(tensor.parameter)
    return f"{root}{tensor.path}" if root is not None and root.isidentifier() else None


def mark_changes(case: Case) -> Iterator[Change]:
    """Propose marks as edits, before every call by which the function was compiled."""
    dimensions, small = dimensions_to_mark(case)
    tensors = changed_sizes(case, dimensions) if dimensions and not small else []
    places = [event.entered_at for event in case.compiles_of_frames] if tensors else []
    edits = dict.fromkeys(_mark_before(place, tensors) for place in places)
    made = [edit for edit in edits if edit is not None and case.is_own(edit.file)]
    if not made or len(made) < len(edits):
        return
    code = made[0].code
    passing = ""
    if made[0].kind == "assigned":  # a text, and what is done with its variable, in turn
        names = _variables(code[1::2])
        marks = [
            line.format(names[text]) for text, line in zip(code[1::2], code[2::2], strict=True)
        ]
        code = (*(f"{name} = {text}" for text, name in names.items()), *marks)
        passing = f", passing {' and '.join(names.values())}"
    yield edit_calls(made, f"{'; '.join(code)}  # before the call{passing}", DYNAMIC)


def _mark_before(entered: EnteredAt | None, tensors: Sequence[Marked]) -> Edit | None:
    """Make the edit that marks before a call; None for a call that is not known, or does not pass
    the first of them."""
    passed = [(each, text) for each in tensors if (text := _passed(entered, each)) is not None]
    if entered is None or not entered.file or not passed or passed[0][0] is not tensors[0]:
        return None
    if all(SAME_TENSOR.fullmatch(text) for _, text in passed):
        code = [line for each, text in passed for line in each.calls(text)]
        return Edit(entered.file, entered.line, "before", tuple(code))
    order = [item.expression for item in entered.arguments]
    passed.sort(key=lambda item: order.index(item[1]) if item[1] in order else len(order))
    pairs = [part for each, text in passed for line in each.calls("{}") for part in (text, line)]
    return Edit(entered.file, entered.line, "assigned", (entered.text or "", *pairs))


# --- dynamic sources ----------------------------------------------------------------------------

_OF_SEVERAL = ("condition", "values")
"""What changed where a finding names no source of its own: what two sizes have to do with each
other, and known values that met."""

_EVERY_NAMESAKE = "holds for every compiled function with variables of these names"


def together_changes(case: Case) -> Iterator[Change]:
    """Propose every dynamic source of the findings of its frames at once."""
    own, changed = _dynamic_sources(case.finding), info(case.finding.rule).changed
    if not own and _growing_source(case) is None and changed not in _OF_SEVERAL:
        return
    frames = {event.frame for event in case.compiles}
    events = [event for event in case.receipt.compile.events if event.frame in frames]
    about = {cause.finding for event in events for cause in event.causes}
    grows: list[str] = []
    every: list[str] = []
    for finding in case.receipt.findings:
        if finding.id in about and finding.severity != "info":
            every += _dynamic_sources(finding)
            source = _growing_source(replace(case, finding=finding))
            grows += [source] if source is not None else []
    value = joined((SOURCES, item) for item in (*grows, *every)).get(SOURCES, "")
    if value and set(value.split(",")) != {item for each in own for item in each.split(",")}:
        yield changes.dynamic_sources(value, _EVERY_NAMESAKE, left=int(bool(grows)))


def _dynamic_sources(finding: FindingRecord) -> list[str]:
    return [item.value for item in finding.fix.candidates if item.setting == SOURCES]


def _growing_source(case: Case) -> str | None:
    """Find a tensor of a module that grows, as a dynamic source: each growth is another branch, and
    the sizes after it are one graph. None where torch takes no dimensions, or takes the size for a
    constant."""
    if case.kind != "shape" or case.version < FIRST_WITH_UNBACKED:
        return None
    dimensions, small = sizes_changed(case.values)
    plain = bool(dimensions) and not small and "," not in case.source
    return _listed(case.source, dimensions) if plain else None


_STATIC = re.compile(r"\._(?:buffers|parameters)\[")
"""Their sizes are constants of every graph, whether the code needs that or not: torch's options
`force_nn_module_property_static_shapes` and `force_parameter_static_shapes`."""


def dynamic_size(group: Group, version: Version) -> str | None:
    """Find the sources of a size that a setting makes dynamic. 0 and 1 stay constants, and so does
    a size that the graph made one. A tensor of a module that grows where the code asks for its size
    is another branch while it does."""
    source, new = group.first.source, version >= FIRST_WITH_UNBACKED
    dimensions, small = group.sizes_changed
    if not dimensions or small or not LISTABLE.fullmatch(source):
        return None
    passed = group.changed == "size" and group.kind != "marking"
    # What a module gets in another size: a tensor that grows, a parameter that is replaced.
    held = new and group.kind in ("shape", "parameter") and not is_branched_on(group)
    if not passed and not held:
        return None
    if not _STATIC.search(source) and group.constant_dimensions:
        return None
    return _listed(source, dimensions) if new else source
