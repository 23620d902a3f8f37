"""Containers, objects and optional arguments that changed, and which of several objects was passed
(CD102, CD108, CD110, CD112 to CD115); tensors that grew in a buffer (CD103), or changed in dtype,
layout or other metadata (CD106); what changed and no guard sees (CD119), or no graph does (CD652).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.guards.checks import parse_dispatch_keys
from compilediag.diagnosis.guards.source import format_variable, parse_path
from compilediag.rules.facts import (
    Facts,
    infer_memory_format,
    is_of_hook,
    list_values,
    parse_strides,
)
from compilediag.rules.make_finding import Advice, make_finding, pick
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EffectLost, GuardFacts, UnguardedChanged

FIRST_CALL = Advice(
    "make the first call eager, at {places} under `with torch.compiler.set_stance("
    '"force_eager"):`, so that it sets {name} before anything is compiled',
    "the first call is not compiled",
    "first_call_eager",
)
DISABLED_HOOK = Advice(
    "put torch.compiler.disable on {function}",
    "costs a graph break per call site, and the loop that calls it runs eager",
    "disabled_hook",
)
CONTAINER = Advice(
    "torch guards on the length and keys of {name}: change it before the first call only, or "
    "return what is put into it and collect it outside of the compiled function",
)
OF_HOOK = Advice(
    "torch guards on what a hook reads: keep {name} as it is, or leave the hook to Python "
    "(torch.compiler.disable)",
    DISABLED_HOOK.caveat,
)
SAME_STRUCTURE = Advice(
    "torch makes a graph for each type, length and set of keys of {name}: leave it where these are "
    "few; else pass one of them at every call",
)
OPTIONAL = Advice(
    "torch makes a graph with and one without {name}: leave it where both are wanted; else "
    "pass a value of one type and shape at every call, one without effect where it has none",
)
ONE_TYPE = Advice(
    "torch makes a graph for each type of {name}: leave it where these are few; else pass one type "
    "at every call",
)
ONE_OBJECT = Advice(
    "torch guards on which object {name} is: make it once, outside of the loop, and keep it",
)
ONE_BACKEND = Advice(
    "torch guards on the backend object: create it and its options once, at module level, and "
    "compile {function} once",
    "a functools.partial made per call does not help",
)
DISTINCT = Advice(
    "torch guards on which of {inputs} are one tensor: pass distinct ones, .clone() of one of them",
    "a copy of the tensor per call; what is written into one is not seen in the other",
)
HOOKS_BEFORE = Advice(
    "torch guards on the number of hooks: register all of them before the first compiled call, and "
    "keep them"
)


def describe_hook(known: Facts) -> Advice | None:
    """Say what to do where a hook reads the value; None where no hook does."""
    if not is_of_hook(known.group):
        return None
    return DISABLED_HOOK if known.is_own(known.group.location.file) else OF_HOOK


def _describe_captured(known: Facts) -> TitleAndAdvice:
    advice = FIRST_CALL if not known.later and known.first_call is not None else CONTAINER
    return "closure container", describe_hook(known) or advice


def _describe_object(known: Facts) -> TitleAndAdvice:
    group = known.group
    if group.kind == "type":
        return "argument of another type", ONE_TYPE
    title = "another function or class was passed"
    return "a guarded object died" if group.kind == "dead_object" else title, ONE_OBJECT


_NOUNS = {
    "forward_hook": "forward hook",
    "forward_pre_hook": "forward pre-hook",
    "class_method": "method of the class",
    "instance_method": "method of the instance",
}


def find_unguarded_changes(timeline: Timeline) -> Iterable[Finding]:
    """CD119: a hook or method that changed after the compile is ignored, and nothing recompiles."""
    by_target: dict[tuple[str, str], list[UnguardedChanged]] = {}
    for change in timeline.unguarded:
        by_target.setdefault((change.what, change.target), []).append(change)
    for (what, target), changes in by_target.items():
        action = "register it" if "hook" in what else "replace it"
        yield make_finding(
            timeline,
            "CD119",
            f"{_NOUNS.get(what, what.replace('_', ' '))} changed after compile and is ignored",
            f"{action} before the first compiled call, or call torch._dynamo.reset() after it",
            caveat="reset() compiles everything again",
            variable=target,
            location=next((change.where for change in changes if change.where), changes[0].frame),
            count=len(changes),
            steps=(change.step for change in changes),
            evidence={
                "kind": what,
                "target": target,
                "frames": [
                    pick(frame, "function", "file", "line")
                    for frame in dict.fromkeys(change.frame for change in changes)
                ],
            },
        )


LEFT_OUT = Advice(
    "torch drops what is done in place to a 0-dim float64 tensor on the CPU where nothing uses the "
    "result: assign a new tensor, make it float32 or of shape (1,), or leave the function eager",
    "torch 2.7 to 2.14 do so, 2.15 does not; float32 has fewer digits",
)
REPEATED = Advice(
    "torch draws once, while it compiles, and each call of the graph repeats that: draw before it "
    "and pass a tensor, or draw with torch.rand",
    "torch 2.15 does so only from a shuffle or sample on; torch.rand draws other numbers",
)
MISREAD = Advice(
    "inductor is given the float64 number and reads its bytes as float32: draw before the compiled "
    "call and pass a tensor, or draw with torch.rand",
    "torch 2.7 to 2.14 do so, 2.15 does not; torch.rand draws other numbers",
)
MERGED = Advice(
    "torch takes equal draws of a graph that computes gradients for one: set "
    "torch._functorch.config.cse = False before the first compiled call, or draw with torch.rand "
    "or torch.randn",
    "torch.rand and torch.randn draw other numbers",
)
_EFFECTS = {
    "left out": ("in-place `{}` left out of the graph", LEFT_OUT),
    "repeated": ("`{}` of a random.Random draws once for all calls", REPEATED),
    "merged": ("equal draws of a graph have the same numbers", MERGED),
    "misread": ("the graph computes with another number than `{}` drew", MISREAD),
}
"""Title, with the operation, and advice, by kind."""


def find_lost_effects(timeline: Timeline) -> Iterable[Finding]:
    """CD652: what the code does, and a graph made from it does not, without a word from torch."""
    by_name: dict[tuple[str, str], list[EffectLost]] = {}
    for effect in timeline.lost_effects:
        path = parse_path(effect.source)
        name = effect.source if path is None else format_variable(path, GuardFacts())
        # An item is no more than a number there, of an optimizer's state for example.
        by_name.setdefault((name.partition("[key ")[0], effect.kind), []).append(effect)
    for (name, kind), effects in by_name.items():
        first, (title, advice) = effects[0], _EFFECTS[kind]
        yield make_finding(
            timeline,
            "CD652",
            title.format(first.operation),
            advice.fix,
            caveat=advice.caveat,
            variable=name,
            location=first.where,
            count=len({(each.process, each.epoch, each.compile_id) for each in effects}),
            steps=(effect.step for effect in effects),
            evidence={"compile_ids": [*dict.fromkeys(effect.compile_id for effect in effects)]},
        )


# --- tensors ------------------------------------------------------------------------------------

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
FROZEN = Advice(
    "torch makes a graph with and one without the gradient of {name}: leave it where both are "
    "wanted; else freeze or release it before the first call only",
)
GRADIENT_OF_INPUT = Advice(
    "torch makes a graph with and one without requires_grad of {name}: leave it where both are "
    "wanted; else call .requires_grad_() at every call that passes it without",
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
    "view": "tensor that is a view in some calls",
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
        return "parameter frozen or released", FROZEN
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


RULES = (
    RecompileRule("CD102", _describe_captured),
    RecompileRule("CD103", _describe_held),
    RecompileRule("CD106", _describe_metadata),
    RecompileRule("CD108", lambda _: ("container argument changed", SAME_STRUCTURE)),
    RecompileRule("CD110", _describe_object),
    RecompileRule("CD112", lambda _: ("same code, another backend object", ONE_BACKEND)),
    RecompileRule("CD113", lambda _: ("inputs alias differently", DISTINCT)),
    RecompileRule("CD114", lambda _: ("argument is None in some calls", OPTIONAL)),
    RecompileRule("CD115", lambda _: ("number of hooks changed", HOOKS_BEFORE)),
)
