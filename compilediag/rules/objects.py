"""Containers, objects and optional arguments that changed, and which of several objects was passed
(CD102, CD108, CD110, CD112 to CD115); what changed and no guard sees (CD119), or no graph does
(CD652)."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.guards.source import format_variable, parse_path
from compilediag.rules.facts import Facts, is_of_hook
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
    "torch guards on the length and keys of {name}: return what is put into it and collect it "
    "outside of the compiled function, or fill it before the first call",
    "filling it helps only where it then stays as it is",
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
    titles = {"dead_object": "a guarded object died", "type": "argument of another type"}
    return titles.get(group.kind or "", "another function or class was passed"), ONE_OBJECT


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
        by_name.setdefault((name.partition("[list(dict.keys(")[0], effect.kind), []).append(effect)
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


RULES = (
    RecompileRule("CD102", _describe_captured),
    RecompileRule("CD108", lambda _: ("container argument changed", SAME_STRUCTURE)),
    RecompileRule("CD110", _describe_object),
    RecompileRule("CD112", lambda _: ("same code, another backend object", ONE_BACKEND)),
    RecompileRule("CD113", lambda _: ("inputs alias differently", DISTINCT)),
    RecompileRule("CD114", lambda _: ("argument is None in some calls", OPTIONAL)),
    RecompileRule("CD115", lambda _: ("number of hooks changed", HOOKS_BEFORE)),
)
