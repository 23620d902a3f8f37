"""Python values that changed, wherever they are from (CD101, CD104, CD107, CD109, CD117), and the
state of torch, of an optimizer or of compiled autograd, which no variable of the program holds, or
that has no known cause (CD111, CD116, CD153, CD190): what happened, what to do, and what may be
tried."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace
from packaging.version import Version

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.findings import Finding
from compilediag.rules import facts
from compilediag.rules.changes import is_listable
from compilediag.rules.facts import INT_USES, TENSOR_USES, Facts
from compilediag.rules.fix_context import FIRST_WITH_UNBACKED
from compilediag.rules.make_finding import Advice, format_place, make_finding
from compilediag.rules.objects import CONTAINER, FIRST_CALL, ONE_KIND, describe_hook
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.rules.sizes.advice import EACH_SIDE
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, ValueUse

EACH_VALUE = Advice(
    "torch makes a graph for each value of {name}: leave it where the values are few; else choose "
    "outside of the compiled function what depends on it",
)
NUMBER = Advice(
    "torch makes a graph for each value of {name}: leave it where the values are few; else compute "
    "outside of the compiled function what needs it, or let a tensor hold it where every operator "
    "takes one",
)
MANY_NUMBERS = Advice(
    "torch makes a graph for each value of {name}: compute outside of the compiled function what "
    "needs it, or let a tensor hold it where every operator takes one",
)
NEEDED = Advice(
    "torch makes a graph for each value of {name}, because {needed}: leave it where the values are "
    "few; else {instead}",
)
SET_BEFORE = Advice(
    "the first call finds {name} unset and sets it, and the second compiles again: set it before, "
    "or call once outside of what is compiled"
)
PASSED_AS_TENSOR = Advice(
    "pass torch.tensor({expression}, dtype=torch.float32) for {name} at {places}",
    "float32, where Python computes in double: last digits may differ; beside float64 tensors use "
    "torch.tensor([number], dtype=torch.float64), never a 0-dim one",
    "tensor_argument",
)
SIDES = Advice(
    "torch makes a graph for the first value of {name}, then one for each side of the condition at "
    "{condition}: leave it where both are wanted; else decide outside of the compiled function, or "
    "compute both sides (torch.where)",
)
SYMBOL = Advice(
    "torch makes a graph for the first value of {name}, then one in which it is a symbol: leave "
    "it, or let a tensor hold it",
)
OTHER_TYPE = Advice(
    "torch makes a graph for the first value of {name}, one in which it is a symbol, and one for "
    "each other type of it: pass one type at every call",
)
INSTANCES = Advice(
    "torch makes a graph for each value of {name}, which tells instances of one class apart: leave "
    "it where they are fewer than the recompile limit; else compile what contains them, once",
)

_FEW = 4
"""Values that may be all there are."""

_INSTEAD = {
    "condition": "decide outside of the compiled function, or compute both sides (torch.where)",
    "loop": "loop outside of the compiled function, or over a fixed count with a mask",
    "index": "index with a tensor",
    "math": "use torch's function on a tensor",
    "text": "format it outside of the compiled function",
}
_NEEDS = {
    "condition": "a condition reads it",
    "loop": "a loop runs over it",
    "index": "it is an index",
    "text": "it goes into a text",
}


def _choose_advice(known: Facts) -> Advice:
    """Choose what to say about a value that changed: a recipe only where its facts are known."""
    group = known.group
    hook = describe_hook(known)
    if hook is not None:
        return hook
    filled = group.code in ("CD104", "CD109") and len(known.later) < len(group.causes)
    # Of what then changes on and on the first call alone is no remedy.
    if filled and known.first_call is not None and (not known.later or _are_used_ints(known)):
        return FIRST_CALL
    if filled and not known.later and all(cause.is_set_within for cause in group.causes):
        return SET_BEFORE
    if facts.is_container(group):
        return CONTAINER
    if group.first.guard.startswith("tensor '"):
        return ONE_KIND.fill(aspect="size" if group.sizes_changed[0] else "layout or dtype")
    values = facts.list_values(group)
    if not values or not all(map(facts.is_number, values)):
        needed = _find_need(known, frozenset(("condition",)))
        return EACH_VALUE if needed is None else _explain_need(needed)
    return _describe_number(known)


def _describe_number(known: Facts) -> Advice:
    """Say what works for a number by what the code does with it: a tensor in float32, or nothing
    where something needs a number."""
    group = known.group
    floats = not all(map(facts.is_integer, facts.list_values(group)))
    kinds = ("number", "scalar", "bound") if floats else ()
    needed = _find_need(known, {*_NEEDS, *kinds, "float", "math"})
    # torch takes a number for dynamic from its second value on, but those of modules and globals.
    dynamic = not known.is_static and (
        group.owner in ("argument", "closure", "optimizer") or known.holder == "object"
    )
    if needed is not None and needed.kind == "condition" and dynamic and not needed.callee:
        return SIDES.fill(condition=format_place(needed.file, needed.line))
    if needed is not None:
        return _explain_need(needed)
    # A graph with a symbol asks for the type alone, one with a constant for the value.
    if dynamic and any(cause.guard.startswith("___check_type_id(") for cause in group.causes):
        return OTHER_TYPE
    frames = {event.id.frame for event in group.recompiles}
    if dynamic and not floats and len(frames) == len(group.recompiles):  # once for each
        return SYMBOL
    passed = known.find_passed(group.variable) if group.code == "CD107" else None
    if not floats or passed is None or not facts.is_used_as(group, TENSOR_USES):
        return MANY_NUMBERS if len({*facts.list_values(group)}) > _FEW else NUMBER
    return PASSED_AS_TENSOR.fill(expression=passed)


def _find_need(known: Facts, kinds: Collection[str]) -> ValueUse | None:
    """Find the use for which torch needs the value itself, if the code has one of these kinds; that
    of the program's own code before that of others."""
    uses = [use for use in facts.list_uses(known.group) or () if use.kind in kinds]
    # A condition leaves a number dynamic where nothing else needs it.
    order = {use: (use.kind == "condition", not known.is_own(use.file)) for use in uses}
    return min(uses, key=order.__getitem__, default=None)


def _explain_need(use: ValueUse) -> Advice:
    needed = _NEEDS.get(use.kind, "its value is needed")
    needed = f"{use.callee} takes it as a number" if use.callee else needed
    place = format_place(use.file, use.line)
    instead = _INSTEAD.get(use.kind, "write what that computes with tensors")
    return NEEDED.fill(needed=f"{needed} at {place}", instead=instead)


# --- the state of torch and of optimizers ---------------------------------------------------------

BOTH_MODES = Advice("one graph for each mode: leave it where both are wanted")
ONE_STATE = Advice(
    "torch makes a graph for each {setting}: leave it where they are few; else set it once, before "
    "the first compiled call"
)
LR_TENSOR = Advice(
    "give the optimizer its lr as torch.tensor(...): torch's schedulers change it in place, and "
    "code of your own must, with fill_",
    "float32, where Python computes in double: last digits differ, and more of them as it trains; "
    "what assigns a number to it undoes it",
    "lr_tensor",
)
OPTIMIZERS = Advice(
    "torch makes a graph for each optimizer: leave it where they are fewer than the recompile limit"
)
SAME_OPTIMIZER = Advice(
    "torch guards on the optimizer's groups, options and set of gradients: keep them the same at "
    "every step"
)
FIRST_STATE = Advice(
    "torch guards on the optimizer's state: two compiles are normal, since the first step makes "
    "it; nothing to do unless its keys change later, too"
)
UNKNOWN = Advice("could not determine the cause; the guard is shown as torch prints it")
NO_REASON = Advice("could not determine: torch gave no reason; try TORCH_LOGS=recompiles_verbose")

_MODES = ("train_eval", "grad_mode", "inference_mode", "autocast")
_KEYS = re.compile(r"\d+ keys?|.*(?:absent|present)")
_DICT = re.compile(r"\.(?:param_groups\[\d+\]|state(?:\[key \d+\])?)$")
_STATE = re.compile(r"(?:^|\.)state(?:$|[.\[])")


def _describe_mode(known: Facts) -> TitleAndAdvice:
    kind = known.group.kind or ""
    mode = next((name for name in _MODES if name in kind), None)
    what = (mode or kind).replace("_", " ") or "global state of torch"
    title = "train or eval mode changed" if mode == "train_eval" else f"{what} changed"
    return title, ONE_STATE.fill(setting=what) if mode is None else BOTH_MODES


def _describe_optimizer(known: Facts) -> TitleAndAdvice:
    group, variable = known.group, known.group.variable
    title, values = f"{group.kind or 'a value'} of the optimizer changed", facts.list_values(group)
    if group.kind == "lr":
        return title, LR_TENSOR
    if group.first.guard.startswith("___check_obj_id("):
        return "another optimizer", OPTIMIZERS
    if re.search(r" (?:[<>]=?|%) ", group.first.guard):
        return title, EACH_SIDE
    if not known.later and known.first_call is not None:
        return title, FIRST_CALL.fill(name="the optimizer's state")
    if _DICT.search(variable) or any(map(_KEYS.fullmatch, values)):
        return title, FIRST_STATE if _STATE.search(variable) else SAME_OPTIMIZER
    numbers = bool(values) and all(map(facts.is_number, values))
    of_groups = not numbers or variable.endswith("param_groups")
    return title, SAME_OPTIMIZER if of_groups else _describe_number(known)


def _move_to_use(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """Move a finding to the first line that uses an option of the program's own or a library's
    optimizer: torch guards on all options where it reads the list of groups."""
    file = group.location.file
    uses = facts.list_uses(group) if ".param_groups[" in group.first.source else None
    use = next((use for use in uses or () if use.file == file), None)
    if use is None or classify_ownership(file, timeline.user_roots) == "torch":
        return finding
    return replace(finding, location=Location(file, use.line, ""))  # maybe of another function


def _describe_unknown(known: Facts) -> TitleAndAdvice:
    group = known.group
    if group.first.guard:
        return "recompile of unknown cause: {guard}", UNKNOWN
    return "recompile without a reason", NO_REASON


def find_autograd_recaptures(timeline: Timeline) -> Iterable[Finding]:
    """CD153: compiled autograd compiled a backward graph again. Once, in the second step, is
    normal: gradients exist then."""
    captures = [
        event
        for event in timeline.compiles
        if event.compile_id.startswith("!") and event.forward and event.guarded
    ]
    misses = [warning for warning in timeline.warnings if "Cache miss due to" in warning.text]
    again = captures[1:]
    if not again and len(misses) < 2:
        return
    yield make_finding(
        timeline,
        "CD153",
        f"compiled autograd compiled its backward graph {max(len(captures), 1)} times",
        "warm up two whole steps; keep shapes and the set of autograd nodes constant",
        caveat="the second step captures once more, because the gradients exist by then",
        severity="info" if len(again) < 2 and len(misses) < 3 else "warning",
        confidence="exact" if again else "text",
        # The captured graph is generated code: a line of it leads nowhere.
        location=next(
            (event.frame for event in again if event.frame.file[:1] not in ("", "<")), None
        ),
        count=len(again) or len(misses),
        steps=(event.step for event in (again or misses)),
        cost_s=sum(event.seconds for event in again) if again else None,
        evidence={
            "compile_ids": [event.compile_id for event in captures],
            "misses": [warning.text[:400] for warning in misses[:8]],
        },
        # the program's call of backward
        called_from=next(
            (event for event in again if event.entered_at or event.entered_from), None
        ),
    )


RULES = (
    RecompileRule("CD101", lambda known: ("captured value", _choose_advice(known))),
    RecompileRule("CD104", lambda known: ("attribute of an object", _choose_advice(known))),
    RecompileRule("CD107", lambda known: ("Python value as argument", _choose_advice(known))),
    RecompileRule("CD109", lambda known: ("global or environment value", _choose_advice(known))),
    RecompileRule("CD111", _describe_mode),
    RecompileRule("CD116", _describe_optimizer, (_move_to_use,)),
    RecompileRule("CD117", lambda _: ("instances share code and differ", INSTANCES)),
    RecompileRule("CD190", _describe_unknown),
)


# --- settings that need no edit ----------------------------------------------------------------

_NUMBERS = ("CD101", "CD104", "CD107", "CD109", "CD116", "CD117")


def find_dynamic_int(known: Facts, version: Version) -> str | None:
    """Find the source of an int to list: torch then takes it for dynamic from the first compile on.
    What needs its value keeps a guard on it, which recompiles all the same."""
    group, causes = known.group, known.later
    if group.code not in _NUMBERS or not causes:
        return None
    source = causes[0].source
    keyed = _OF_KEYED.search(source)
    if keyed is not None:  # an item of each of many dicts
        entries = (entry for event in group.recompiles for entry in event.entries)
        guards = [guard for entry in entries for guard in entry.guards]
        # Another item that changes beside it keeps the same recompiles.
        if any(g.leaf == "EQUALS_MATCH" and not g.source.endswith(keyed[1] + "]") for g in guards):
            return None
        source = f".*{keyed[1]}"
        return source if version >= FIRST_WITH_UNBACKED and _are_used_ints(known) else None
    if not is_listable(source):
        return None
    if source.startswith("G") and version < FIRST_WITH_UNBACKED:
        return None
    if "cell_contents" in source:  # a captured int is reached as a local of the compiled function
        return None
    return source if _are_used_ints(known) else None


_OF_KEYED = re.compile(r"dict\.keys\(.*\[('\w+')\]$")
_LEAST_SIZE = 2


def _are_used_ints(known: Facts) -> bool:
    """True for ints that the code may take as symbols: as sizes 0 and 1 are constants."""
    values = [text or "" for cause in known.later for text in (cause.expected, cause.actual)]
    if not values or not all(map(facts.is_integer, values)):
        return False
    small = min(map(int, values)) < _LEAST_SIZE
    return facts.is_used_as(known.group, INT_USES - {"number", "slice"} if small else INT_USES)
