"""Tensors that changed in dtype, layout or other metadata (CD106), or grew in a buffer (CD103)."""

from __future__ import annotations

from collections.abc import Mapping

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.guards.checks import parse_dispatch_keys
from compilediag.rules.facts import Facts, infer_memory_format, list_values, parse_strides
from compilediag.rules.make_finding import Advice
from compilediag.rules.objects import FIRST_CALL
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice

GROWN = Advice(
    "torch guards on the size of {name}: make it at its largest size before the first call and "
    "write into it in place, or leave it where it grows only a few times",
)
ONE_KIND = Advice(
    "torch makes a graph for each {aspect} of {name}: leave it where they are few; else pass one "
    "{aspect} at every call"
)
COPIED = Advice(
    "pass {expression}{copy} for {name} at {places}",
    "a copy of a tensor that has another {aspect}",
    "one_form",
)
GRADIENT_OF_INPUT = Advice(
    "torch makes a graph with and one without requires_grad of {name}: leave it where both are "
    "wanted; where blocks are stacked, .requires_grad_() on the input of the first makes them "
    "alike",
    "a gradient is computed for that input then, which costs memory",
)
VIEWED = Advice(
    "torch guards on the tensor that a view was taken of: leave it where views and other tensors "
    "are both wanted; else pass one kind at every call: of a view its .clone()",
    "a copy of the tensor",
)
INFERENCE_TENSOR = Advice(
    "torch tells tensors made inside of torch.inference_mode() apart: make {name} in the mode that "
    "it is used in at every call, or use torch.no_grad()",
)

_TITLES: Mapping[str | None, str] = {
    "requires_grad": "tensor with another requires_grad",
    "inference": "inference tensor",
    "parameter": "parameter changed",
    "conjugate": "conjugated tensor",
    "grad": "gradient present or missing",
    "subclass": "tensor subclass",
    "identity": "another tensor at a static address",
    "view": "tensor that is a view or none",
}
_ASPECTS = {"stride": "layout", "parameter": "kind of parameter", "grad": "state of its gradient"}


def _describe_held(known: Facts) -> TitleAndAdvice:
    # Created, and then grown, is grown.
    grown = any(cause.kind == "shape" for cause in known.group.causes)
    filled = not grown and not known.later and known.first_call is not None
    return "lazily created or grown tensor", FIRST_CALL if filled else GROWN


def _describe_metadata(known: Facts) -> TitleAndAdvice:
    group = known.group
    kind, first = group.kind, group.first
    aspect = _ASPECTS.get(kind or "", kind if kind in ("dtype", "device", "rank") else "type")
    title = _TITLES.get(kind, f"tensor of another {aspect}")
    if kind == "parameter" and (first.expected or "").startswith("requires_grad"):
        title = "parameter frozen or released"
    if kind == "view":
        return title, VIEWED
    if kind == "requires_grad":
        return title, GRADIENT_OF_INPUT
    if kind == "inference" and "ADInplaceOrView" not in parse_dispatch_keys(first.expected or ""):
        return "inference tensor expected", INFERENCE_TENSOR
    copy, passed = _find_copy(group), known.find_passed(group.variable)
    advice = ONE_KIND if copy is None or passed is None else COPIED.fill(copy=copy)
    return title, advice.fill(aspect=aspect, expression=f"({passed})")


def _find_copy(group: Group) -> str | None:
    """Find the method that gives tensors of other layouts, or ints of other types, one; None where
    it would change what is computed, or a size of 1 leaves several strides open."""
    values = list_values(group)
    if group.kind == "stride":
        numbers = [parse_strides(text) for text in values]
        layout = infer_memory_format(values[0])
        if layout is not None:
            return f".to(memory_format=torch.{layout})"
        contiguous = numbers[0] == sorted(numbers[0], reverse=True)
        return ".clone(memory_format=torch.contiguous_format)" if contiguous else None
    dtypes = {text.removeprefix("torch.") for text in values}
    return ".to(torch.int64)" if group.kind == "dtype" and dtypes <= {*_INTEGERS} else None


_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
RULES = (RecompileRule("CD103", _describe_held), RecompileRule("CD106", _describe_metadata))
