"""Tensors that changed in dtype, layout or other metadata (CD106), or grew in a buffer (CD103)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.guards.checks import parse_dispatch_keys
from compilediag.rules.changes import ProgramChange
from compilediag.rules.facts import infer_memory_format, is_field_of_argument
from compilediag.rules.fix_context import FixContext, parse_argument, propose_call_changes
from compilediag.rules.make_finding import Advice
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.rules.sizes.changes import name_tensors, parse_marked
from compilediag_harness.wire import ArgumentChange

FILLED_BEFORE = Advice(
    "fill {name}, with all that is set beside it, before the first compiled call: by one eager "
    "call with the largest input; or keep it at its largest size and write into it in place",
    "when the input length varies too, one recompile for that size remains (CD105)",
)
ONE_KIND = Advice(
    "pass {name} with one {aspect} at every call; or warm up each that the timed steps have",
    "one graph for each",
)
CHANNELS_LAST = Advice(
    "call .to(memory_format=torch.{format}) on {name} before the compiled call",
    "the layout of the first call; a copy of a tensor that has another",
)
GRADIENT_OF_INPUT = Advice(
    "warm up {name} with and without requires_grad; or, where blocks are stacked, call "
    ".requires_grad_() on the input of the first: the inputs of the others need gradients",
    "warming up keeps two graphs",
)
INFERENCE_TENSOR = Advice(
    "call .clone() on {name} inside torch.inference_mode(), as it was made there in the first "
    "call; or use torch.no_grad() instead of torch.inference_mode()",
    "a copy of the tensor per call",
)

_TITLES: Mapping[str | None, str] = {
    "dtype": "tensor of another dtype",
    "stride": "tensor of another layout",
    "device": "tensor on another device",
    "rank": "tensor of another rank",
    "requires_grad": "tensor with another requires_grad",
    "inference": "inference tensor",
    "parameter": "parameter changed",
    "conjugate": "conjugated tensor",
    "grad": "gradient present or missing",
    "type": "tensor of another type",
    "subclass": "tensor subclass",
    "identity": "another tensor at a static address",
}
_ASPECTS = {"stride": "layout", "parameter": "kind of parameter", "grad": "state of its gradient"}


def _describe_held(group: Group) -> TitleAndAdvice:
    # Created, and then grown, is grown.
    grown = any(cause.kind == "shape" for cause in group.causes)
    if is_field_of_argument(group):
        title = "tensor in an argument object created or grown"
    elif group.kind == "companion":
        title = "lazily filled cache"
    else:
        title = f"lazily {'created' if group.kind == 'created' and not grown else 'grown'} buffer"
    return title, FILLED_BEFORE


def _describe_metadata(group: Group) -> TitleAndAdvice:
    kind, first = group.kind, group.first
    title = _TITLES.get(kind, "tensor metadata changed")
    if kind == "parameter" and (first.expected or "").startswith("requires_grad"):
        title = "parameter frozen or released"
    if kind == "requires_grad":
        return title, GRADIENT_OF_INPUT
    if kind == "inference" and "ADInplaceOrView" not in parse_dispatch_keys(first.expected or ""):
        return "inference tensor expected", INFERENCE_TENSOR
    layout = infer_memory_format(first.expected or "") if kind == "stride" else None
    if layout is not None:
        return title, CHANNELS_LAST.fill(format=layout)
    aspect = _ASPECTS.get(kind or "", kind if kind in ("dtype", "device", "rank") else "type")
    return title, ONE_KIND.fill(aspect=aspect)


_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
_FLOATS = ("float64", "float32", "bfloat16", "float16")
_COPY = "a copy of the tensor per call, unless it already has this form"


def propose_tensor_copies(context: FixContext) -> Iterator[ProgramChange]:
    """Propose one layout or dtype at every call; a gradient for an input."""
    if context.finding.rule != "CD106":
        return
    argument = parse_argument(context.source) if context.values else None
    tensor = parse_marked(context.source, ()) if context.kind == "requires_grad" else None
    if tensor is not None and context.function is not None:
        before, (name,), passing = name_tensors(context, [tensor])
        code = "; ".join([*before, f"{name}.requires_grad_()"])
        yield ProgramChange(
            "call",
            f"{code}  # before the call{context.call_place}{passing}",
            "a gradient is computed for the input, which costs memory",
            arguments=(ArgumentChange(context.function, tensor.argument, "requires_grad"),),
        )
    elif argument is not None and context.kind == "stride":
        layout = infer_memory_format(context.values[0][0])
        if layout is not None:
            code = f"_.contiguous(memory_format=torch.{layout})"
            yield from propose_call_changes(context, argument, layout, code, _COPY)
        yield from propose_call_changes(context, argument, "contiguous", "_.contiguous()", _COPY)
    elif argument is not None and context.kind == "dtype":
        seen = {name.removeprefix("torch.") for name in context.seen}
        for names in (_INTEGERS, _FLOATS):
            if seen <= {*names} and not seen >= {"bfloat16", "float16"}:
                widest = "int64" if names is _INTEGERS else min(seen, key=names.index)
                action = f"to(torch.{widest})"
                yield from propose_call_changes(context, argument, action, f"_.{action}", _COPY)


RULES = (RecompileRule("CD103", _describe_held), RecompileRule("CD106", _describe_metadata))
