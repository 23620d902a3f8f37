"""Sizes of tensors that change, and what is done to a tensor before the call."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.fixes.candidates.case import FIRST_WITH_UNBACKED, PARAMETER, Case
from compilediag.fixes.candidates.options import DYNAMO, SHAPES, setting, variable
from compilediag.fixes.candidates.tensor_marks import (
    MARK,
    at_the_call,
    before_calls,
    changed_sizes,
    marked,
    named_before,
)
from compilediag.fixes.changes import Change
from compilediag_harness.wire import ArgumentChange, CompileOption

_SIZE = re.compile(r"(L\['[A-Za-z_]\w*'\](?:\[[^\s\]]+\])*)\.size\(\)\[(\d+)\]")

DYNAMIC = "its sizes are dynamic: kernels may be slower, and a CUDA graph is recorded for each size"
_EVERY_SIZE = "every size and number of every compiled function is dynamic: kernels may be slower"
_EXTRA_GRADIENT = "a gradient is computed for the input, which costs memory"
_UNBACKED = (
    "sizes that change are unbacked in every compiled function: torch raises an error where the "
    "code branches on one"
)
_DATA_DEPENDENT = "where the code branches on the size, torch raises an error"


def size_candidates(case: Case) -> Iterator[Change]:
    """Marks, unbacked sizes, other symbols for equal sizes, a gradient for an input."""
    yield from _dynamic_sizes(case)
    yield from _bound_sizes(case)
    yield from _requires_grad(case)


def mark_candidates(case: Case) -> Iterator[Change]:
    """Marks as edits, before every call by which the function was compiled."""
    dimensions, small = dimensions_to_mark(case)
    if dimensions and not small:
        yield from before_calls(case, changed_sizes(case, dimensions), DYNAMIC)


def dimensions_to_mark(case: Case) -> tuple[list[int], bool]:
    """The dimensions of an argument whose sizes changed, and whether 0 or 1 was among the sizes:
    these are constants for a mark. None where a mark is not what the finding needs."""
    if case.finding.rule != "CD105" or case.kind == "marking":
        return [], False
    changed = [item for pair in case.values for item in changed_dimensions(*pair)]
    small = any({item.before, item.after} & {"0", "1"} for item in changed)
    return sorted({item.dimension for item in changed}), small


def growing_source(case: Case) -> str | None:
    """A tensor of a module that grows, as a dynamic source: each growth is another branch, and the
    sizes after it are one graph. None where torch takes no dimensions, or takes the size for a
    constant."""
    if (case.finding.rule, case.kind) != ("CD103", "shape") or case.version < FIRST_WITH_UNBACKED:
        return None
    changed = [item for pair in case.values for item in changed_dimensions(*pair)]
    small = any({item.before, item.after} & {"0", "1"} for item in changed)
    if not changed or small or "," in case.source:
        return None
    return ",".join(f"{case.source}:{each}" for each in sorted({i.dimension for i in changed}))


def _dynamic_sizes(case: Case) -> Iterator[Change]:
    """Marks on the argument, then everything dynamic."""
    dimensions, small = dimensions_to_mark(case)
    if not dimensions:
        return
    if small:
        yield from _unbacked(case, case.source, dimensions)
        yield setting(DYNAMO, "automatic_dynamic_shapes_mark_as", "unbacked", _UNBACKED, left=1)
        return
    if "_parameters[" in case.source:
        yield setting(DYNAMO, "force_parameter_static_shapes", False, DYNAMIC, left=1)
    yield from at_the_call(case, changed_sizes(case, dimensions), MARK, DYNAMIC)
    yield Change(
        "call",
        "torch.compile(..., dynamic=True)",
        _EVERY_SIZE,
        options=(CompileOption("dynamic", True),),
    )


def _bound_sizes(case: Case) -> Iterator[Change]:
    """A condition between sizes that torch put into the graph's guards."""
    if case.finding.rule != "CD118":
        return
    guard = case.guard
    sizes = _SIZE.findall(guard)
    if case.kind == "zero_one" and len(sizes) == 1:
        source, dimension = sizes[0]
        yield from _unbacked(case, source, [int(dimension)])
    elif len(sizes) == 2 and "==" in guard:
        yield setting(SHAPES, "use_duck_shape", False, "more symbols: compiles take longer")


def _unbacked(case: Case, source: str, dimensions: list[int]) -> Iterator[Change]:
    """0 and 1 are constants of every graph, but for a size that is taken for unknown."""
    if case.version >= FIRST_WITH_UNBACKED and PARAMETER.fullmatch(source) and "," not in source:
        value = ",".join(f"{source}:{dimension}" for dimension in dimensions)
        yield variable("TORCH_COMPILE_UNBACKED_SOURCES", value, _DATA_DEPENDENT)
    tensor = marked(source, dimensions)
    if tensor is not None:
        yield from at_the_call(case, [tensor], "mark_unbacked", _DATA_DEPENDENT)


def _requires_grad(case: Case) -> Iterator[Change]:
    tensor = marked(case.source, ())
    if case.finding.rule != "CD106" or case.kind != "requires_grad":
        return
    if tensor is None or case.function is None:
        return
    before, (name,), passing = named_before(case, [tensor])
    code = "; ".join([*before, f"{name}.requires_grad_()"])
    yield Change(
        "call",
        f"{code}  # before the call{case.call_place}{passing}",
        _EXTRA_GRADIENT,
        arguments=(ArgumentChange(case.function, tensor.argument, "requires_grad"),),
    )
