"""Decides which family (code) a false guard belongs to: one order, first match wins. Facts of the
live process come before the text; without them it is the family that the text makes most likely."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from compilediag.diagnosis.guards.checks import Guard
from compilediag.diagnosis.guards.source import GuardPath, strip_quotes
from compilediag_harness.wire import GuardFacts, Location

Owner = Literal["closure", "global", "argument", "module", "attribute", "nothing"]

_ARGUMENT_PARTS = ("__defaults__", "__kwdefaults__", "keywords", "args", "func")
_SLICE_PARTS = ("start", "stop", "step")
_LIKELY_SLICE_PARTS = ("start", "stop")
"""Without facts: `.step` is far oftener a counter of the user's than the step of a slice."""


_CONTAINERS = (
    "list", "tuple", "dict", "set", "frozenset", "deque", "range", "slice", "mappingproxy",
    "OrderedDict", "collections.OrderedDict", "collections.deque", "defaultdict",
    "collections.defaultdict", "torch.Size",
)  # fmt: skip
STRUCTURE = ("length", "members", "keys", "missing")
"""Checks of what a container holds."""
_SCALARS = ("bool", "int", "float", "complex", "str", "bytes", "torch.dtype", "torch.device")
_TENSORS = ("torch.Tensor", "Tensor", "torch.nn.parameter.Parameter", "torch.nn.Parameter")
_LENGTH_WORDS = frozenset(("len", "length", "size", "seq", "positions", "count", "max"))
_GROUP_OPTIONS = ("lr", "weight_decay", "momentum", "betas", "eps")
_OPTIMIZER_FILE = re.compile(r"(?:^|[/\\])torch[/\\]optim[/\\]|^optim[/\\]")
"""Printed reasons shorten torch's own files to "optim/adam.py"."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The family of one false guard."""

    code: str
    kind: str | None
    order: int
    """Rank in the order of decision: of several causes the lowest is shown first."""


@dataclass(frozen=True, slots=True)
class GuardContext:
    """Facts that are known around a guard expression."""

    facts: GuardFacts = field(default_factory=GuardFacts)
    place: Location | None = None
    """The user's line."""
    frame: Location | None = None
    """The frame that recompiled."""
    user_line: str | None = None
    """The text of that line, where torch printed it."""
    explanation: str | None = None
    """What torch printed behind a shape condition."""
    actual: str | None = None
    writers: tuple[Location, ...] = ()
    """Functions that write the guarded variable."""


def decide(guard: Guard, known: GuardContext) -> Decision:
    """Decide the family of a guard, by the order of the catalogue (docs/rules): first match wins;
    CD190 where nothing matches."""
    for order, rule in enumerate(_ORDER, 1):
        matched = rule(guard, known)
        if matched is not None:
            return Decision(matched[0], matched[1], order)
    return Decision("CD190", None, len(_ORDER) + 1)


FamilyMatch = tuple[str, "str | None"] | None


_OF_CHECKS: dict[str, FamilyMatch] = {
    "backend": ("CD112", None),
    "unexpected": ("CD190", None),
    "dead": ("CD110", "dead_object"),
}


def _match_no_guard(guard: Guard, known: GuardContext) -> FamilyMatch:
    return _OF_CHECKS.get(guard.check)


def _match_mode(guard: Guard, known: GuardContext) -> FamilyMatch:
    if guard.check == "state":
        return "CD111", guard.aspect
    if guard.check == "tensor" and guard.aspect == "functorch":
        return "CD111", "functorch"
    if guard.aspect == "inference" and known.facts.inference_mode is not None:
        return "CD111", "inference_mode"
    is_value = guard.check in ("value", "identity")
    if is_value and guard.path is not None and guard.path.member == "training":
        return "CD111", "train_eval"
    return None


def _match_aliasing(guard: Guard, known: GuardContext) -> FamilyMatch:
    # Of two modules that were one object, it is not known which of them is another one now.
    code = "CD190" if guard.aspect == "module" else "CD113"
    return (code, None) if guard.check == "aliasing" else None


def _match_other_instance(guard: Guard, known: GuardContext) -> FamilyMatch:
    """Match another instance. Only objects that share code count: `self`, and modules. A fresh list
    or dataclass passed as an argument is another object at every call and no instance of anything
    compiled."""
    path, facts = guard.path, known.facts
    if not facts.instance_changed or path is None or not path.hops:
        return None
    shares_code = path.root in ("self", "fn") or any(
        hop.text in ("_modules", "_buffers", "_parameters") for hop in path.hops
    )
    if shares_code or facts.holder_kind in ("module", "optimizer"):
        return "CD117", guard.aspect
    return None


def _match_optimizer(guard: Guard, known: GuardContext) -> FamilyMatch:
    path = guard.path
    in_file = any(
        place is not None and _OPTIMIZER_FILE.search(place.file) is not None
        for place in (known.place, known.frame)
    )
    hops = path.hops if path is not None else ()
    own = any(hop.text == "param_groups" for hop in hops)
    # The state is keyed by parameters, which torch can only print by their position.
    state = len(hops) > 1 and hops[0].text == "state" and hops[1].text.startswith("list(dict.keys")
    if own or state or in_file or known.facts.holder_kind == "optimizer":
        names = [strip_quotes(hop.text) for hop in hops if hop.kind == "item"]
        return "CD116", next((name for name in names if name in _GROUP_OPTIONS), None)
    return None


def _match_hook_set(guard: Guard, known: GuardContext) -> FamilyMatch:
    structural = guard.check in STRUCTURE
    last = guard.path.last if guard.path is not None else None
    return ("CD115", None) if structural and last is not None and last.is_hooks else None


def _match_captured(guard: Guard, known: GuardContext) -> FamilyMatch:
    if classify_owner(guard.path, known.facts) != "closure" or guard.check in ("marking", "shape"):
        return None
    if guard.check in STRUCTURE:
        return "CD102", guard.check
    kinds = {"tensor": "tensor", "tensor_type": "tensor", "identity": "object", "type": "object"}
    if guard.check == "identity" and _is_singleton(guard, known):
        return "CD101", "value"
    return "CD101", kinds.get(guard.check, "value")


def _match_global(guard: Guard, known: GuardContext) -> FamilyMatch:
    if classify_owner(guard.path, known.facts) != "global" or guard.check in ("marking", "shape"):
        return None
    hops = guard.path.hops if guard.path is not None else ()
    return "CD109", "environment" if "environ" in [hop.text for hop in hops] else None


def _match_sizes(guard: Guard, known: GuardContext) -> FamilyMatch:
    if guard.check == "marking":
        return "CD105", "marking"
    if guard.check != "shape":
        return None
    if guard.aspect == "equal" and "duck sizing" in (known.explanation or ""):
        return "CD118", "duck_equal"
    return "CD118", guard.aspect


def _match_tensor(guard: Guard, known: GuardContext) -> FamilyMatch:
    if guard.check not in ("tensor", "tensor_type"):
        return None
    path, owner = guard.path, classify_owner(guard.path, known.facts)
    if path is not None and (path.registry == "_parameters" or path.member == "grad"):
        return "CD106", "parameter"
    if path is not None and path.member == "_base":
        return "CD106", "view"
    held = owner in ("attribute", "module") and not _is_filled_outside(guard, known)
    if guard.check == "tensor":
        if held and guard.aspect in ("size", "rank"):
            return "CD103", "shape"
        return ("CD105", "size") if guard.aspect == "size" else ("CD106", guard.aspect)
    if guard.type_name in ("NoneType", "None"):
        return ("CD103", "created") if held else ("CD114", None)
    if guard.type_name in _SCALARS:
        return ("CD104", None) if held else ("CD107", "value")
    return "CD106", "type"


def _match_value(guard: Guard, known: GuardContext) -> FamilyMatch:
    check, path = guard.check, guard.path
    if check == "tensor_item":
        return "CD107", "tensor_index"
    if check == "identity" and path is not None and path.member == "grad":
        return "CD106", "grad"
    by_value = check == "identity" and _is_singleton(guard, known)
    if not by_value and check not in ("value", "none", "not_none", "attribute"):
        return None
    if path is not None and path.member == "grad":
        return "CD106", "grad"
    if check in ("none", "attribute") and _is_tensor_now(guard, known):
        outside = check == "none" and _is_filled_outside(guard, known)
        return ("CD114", None) if outside else ("CD103", "created")
    if check == "attribute":
        return "CD104", "attribute_set"
    if classify_owner(path, known.facts) != "argument":
        # A buffer holds a tensor or None, and tensors are not guarded by value.
        if path is not None and path.registry == "_buffers":
            return "CD103", "created"
        # An attribute of an object that the call passes is its size, and no fill of a cache.
        passed = known.facts.holder_kind == "object" and (path and path.root) not in ("self", "fn")
        companion = not passed and _is_cache_count(guard)
        return ("CD103", "companion") if companion else ("CD104", guard.aspect)
    was_none = check in ("none", "not_none") or (by_value and guard.expected == "None")
    is_none = known.facts.value_type == "NoneType"
    return ("CD114", None) if was_none or is_none else ("CD107", guard.aspect or "value")


def _match_container(guard: Guard, known: GuardContext) -> FamilyMatch:
    if guard.check not in STRUCTURE:
        return None
    if guard.path is not None and guard.path.member == "_buffers":
        return "CD103", "created"
    argument = classify_owner(guard.path, known.facts) == "argument"
    return ("CD108" if argument else "CD104"), guard.check


def _match_identity(guard: Guard, known: GuardContext) -> FamilyMatch:
    if guard.check not in ("identity", "type"):
        return None
    path, facts = guard.path, known.facts
    names = {guard.type_name, guard.expected, known.actual, facts.value_type} - {None}
    if classify_owner(path, facts) != "argument":
        registry = path.registry if path is not None else None
        if registry == "_buffers" and guard.check == "identity":
            return "CD103", "created"
        return "CD104", "type" if guard.check == "type" else None
    if guard.check == "type" and facts.value_type == "NoneType":
        return "CD114", None
    if guard.check == "type" and any(name in _CONTAINERS for name in names):
        return "CD108", "type"
    if names & set(_TENSORS):
        return "CD106", "identity" if guard.check == "identity" else "type"
    if guard.check == "type" and any(name in _SCALARS for name in names):
        return "CD107", "value"
    code = path is not None and path.last is not None and path.last.text == "__code__"
    return "CD110", "code" if code else guard.check


def _is_singleton(guard: Guard, known: GuardContext) -> bool:
    """True if an identity check guards a value: an enum member; True, False, None on torch 2.7."""
    facts = known.facts
    if facts.is_enum or (guard.type_name or "").startswith("enum."):
        return True
    if guard.expected in ("True", "False", "None") or facts.value_type in ("bool", "NoneType"):
        return True
    if facts.value_type is not None or guard.path is None:
        return False
    if guard.path.last is not None and guard.path.last.text in ("__code__", "__class__"):
        return False
    if guard.type_name is None:
        # torch <= 2.9 prints no type: it guards bools by identity far oftener than objects.
        return classify_owner(guard.path, facts) in ("argument", "closure")
    name = guard.type_name.rpartition(".")[2]
    # The user's line names a member of the class: `mode is Mode.TRAIN`.
    return re.search(rf"\b{re.escape(name)}\.\w", known.user_line or "") is not None


def _is_cache_count(guard: Guard) -> bool:
    """True if an int is named as the fill of a cache: `cached_freqs_seq_len`, `max_seq_len_cached`.
    The cache itself may be preallocated, and then no tensor shows that it is filled lazily."""
    member = guard.path.member if guard.path is not None else None
    if member is None or not (guard.expected or "").lstrip("-").isdigit():
        return False
    words = set(member.strip("_").split("_"))
    return bool(words & {"cache", "cached"}) and bool(words & _LENGTH_WORDS)


def _is_tensor_now(guard: Guard, known: GuardContext) -> bool:
    """True if the value, or the attribute that was absent, is a tensor now."""
    facts = known.facts
    now = facts.member_type if guard.check == "attribute" else facts.value_type
    if now is None or (guard.check == "attribute" and guard.expected != "absent"):
        return False
    return now in _TENSORS and classify_owner(guard.variable_path, facts) in ("attribute", "module")


def _is_filled_outside(guard: Guard, known: GuardContext) -> bool:
    """True if it is a field of an argument object that lives on, and that no method of its class
    writes: the caller puts other tensors into it between the calls. A cache fills itself."""
    path, facts = guard.path, known.facts
    if path is None or path.root in ("self", "fn") or facts.holder_kind != "object":
        return False
    methods = f"{facts.holder_type}."
    return bool(known.writers) and not any(w.function.startswith(methods) for w in known.writers)


# Invariant: the position is a cause's rank (`Decision.order`); a new family goes where it decides.
_ORDER = (
    _match_no_guard,
    _match_mode,
    _match_aliasing,
    _match_other_instance,
    _match_optimizer,
    _match_hook_set,
    _match_captured,
    _match_global,
    _match_sizes,
    _match_tensor,
    _match_value,
    _match_container,
    _match_identity,
)


def classify_owner(path: GuardPath | None, facts: GuardFacts) -> Owner:
    """Classify the owner of the value a path leads to, after the last callable it passes."""
    if path is None or path.scope == "state":
        return "nothing"
    if path.below_module:
        return "module"
    if path.callable_end:
        return "closure"
    is_module = facts.holder_kind == "module" and path.member is not None
    if facts.root == "free_variable":
        return "module" if is_module else "closure"
    if path.scope == "global" or facts.root == "global":
        return "module" if is_module else "global"
    if _is_argument(path, facts):
        return "argument"
    return "module" if is_module else "attribute"


def _is_argument(path: GuardPath, facts: GuardFacts) -> bool:
    """True if it is an argument, or a part of one: an element of its containers, or a field of an
    object that is another one at every call. On the way to other arguments is no attribute, but
    those of named tuples, slices, and the defaults and keywords of functions."""
    own = path.root in ("self", "fn")
    kinds = ("module", "optimizer", "class", "python_module", "callable")
    if facts.instance_changed and not own and facts.holder_kind not in kinds:
        # Whoever makes the object for one call decides on its fields: they hold no state.
        return True
    for hop in path.hops[:-1]:
        if hop.kind == "call" or (hop.kind == "attr" and hop.text not in _ARGUMENT_PARTS):
            return False
    last = path.last
    if last is None or last.kind != "attr" or last.text in (*_ARGUMENT_PARTS, "__code__"):
        return last is None or last.kind != "call"
    if facts.holder_kind in ("namedtuple", "tuple"):
        return True
    if facts.holder_type is not None:
        return facts.holder_type in ("slice", "range") and last.text in _SLICE_PARTS
    return last.text in _LIKELY_SLICE_PARTS and not own
