"""What remains of an entry's false guards when consequences are dropped, and the nearest entry.

Under autocast every tensor guard is false; below an object of another type every attribute is
missing. Counting such consequences would hide the cause and choose the wrong entry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from compilediag.diagnosis.causes.conditions import Condition
from compilediag.diagnosis.causes.group import changed_dimensions
from compilediag.diagnosis.guards.source import GuardPath, paths_in, unquoted

Steps = tuple[Hashable, ...]

OBJECT_GONE = ("type", "identity", "none", "not_none", "tensor_type")
"""Checks of an object as a whole: nothing below it can be compared where one is false."""

_MEMBER_GONE = ("members", "missing", "attribute")
STRUCTURE = ("length", "keys", "members", "missing")
"""Checks of what a container holds."""

_KEY_ASPECTS = ("autocast", "inference", "dispatch_keys")
_KEY_COMPONENTS = ("autocast", "grad_mode", "inference")


def independent(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions that are no consequence of another one, each variable once, in guard order."""
    gone = Invalidated(conditions)
    return _once_per_variable([each for each in conditions if not gone.implies(each)])


def nearest(entries: Iterable[Sequence[Condition]]) -> Sequence[Condition]:
    """The entry that the fewest acts would have made fit; of equals that with the most values that
    no entry accepts, which nothing was compiled for, then that with the fewest conditions, then the
    first, the most recently used. Where each of its values is accepted by some entry, they are no
    reason by themselves: then the nearest of the entries that found a new value. Entries compiled
    for another instance only count when there is none of this instance, or none of them found a
    new value."""
    candidates = [entry for entry in entries if entry]
    own = of_this_instance(candidates)
    found = min(own, key=_distance, default=())
    if any(condition.novel is not False for condition in found):
        return found
    new = [entry for entry in candidates if any(condition.novel for condition in entry)]
    return min(of_this_instance(new), key=_distance, default=found)


def far(entry: Sequence[Condition]) -> tuple[bool, int, int, int]:
    """How far an entry is: sorts the nearest first."""
    return _other_instance(entry), *_distance(entry)


def of_this_instance(entries: Iterable[Sequence[Condition]]) -> Sequence[Sequence[Condition]]:
    """The entries that were compiled for this instance; where there are none, all."""
    candidates = [entry for entry in entries if entry]
    return [entry for entry in candidates if not _other_instance(entry)] or candidates


def _distance(entry: Sequence[Condition]) -> tuple[int, int, int]:
    acts = {_act(condition) for condition in entry}
    novel = {_act(condition) for condition in entry if condition.novel}
    return len(acts), -len(novel), len(entry)


def _act(condition: Condition) -> Hashable:
    """What somebody did. A batch of another length or dtype changes all its tensors alike: that is
    one thing done, however many guards it makes false."""
    guard = condition.guard
    if guard.check != "tensor":
        return identity_of(condition)
    changed = changed_dimensions(condition.expected, condition.actual)
    if guard.aspect == "size" and changed:
        return "size", frozenset(item[1:] for item in changed)
    return guard.aspect, condition.expected, condition.actual


def _other_instance(entry: Sequence[Condition]) -> bool:
    return any(condition.decision.code == "CD117" for condition in entry)


class Invalidated:
    """What is known to be gone or moved, by path: a model has thousands of guards, so each
    condition is looked up by its own prefixes only."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        states = [each.guard.aspect for each in conditions if each.guard.check == "state"]
        # The mode that sets the dispatch keys of tensors.
        self.mode_changed = any(
            aspect is None or any(name in aspect for name in _KEY_COMPONENTS) for aspect in states
        )
        # Inference mode was entered or left, which switches the recording of gradients too.
        self.inference_mode = any(each.decision.kind == "inference_mode" for each in conditions)
        found = [(each, each.guard.check, each.guard.path) for each in conditions]
        of_paths = [(each, check, path) for each, check, path in found if path is not None]

        def where(*checks: str) -> set[Steps]:
            return {_steps(path) for _, check, path in of_paths if check in checks}

        # Paths that hold another object now, or nothing; that hold another value.
        self.objects, self.values = where(*OBJECT_GONE), where("value", *OBJECT_GONE)
        # Containers whose positions moved.
        self.containers = where(*STRUCTURE)
        # Paths of keys and attributes that are absent now.
        self.members = {
            _steps(member)
            for each, check, path in of_paths
            if check in _MEMBER_GONE and (member := _absent_member(each, path)) is not None
        }
        # Hooks that are other functions now, or at another place among the hooks.
        self.functions = {
            _steps(GuardPath(path.root, path.scope, path.hops[: at + 2]))
            for _, check, path in of_paths
            for at, hop in enumerate(path.hops if check in OBJECT_GONE else ())
            if hop.is_hooks
        }
        # Tensors of another rank or type: their sizes mean nothing; in another order: strides.
        self.ranks, self.strided = (
            {_steps(path) for each, _, path in of_paths if each.guard.aspect in aspects}
            for aspects in (("rank", "type"), ("stride",))
        )

    def hides(self, condition: Condition) -> bool:
        """`condition` is of a tensor, and of what a mode does to its dispatch keys."""
        guard = condition.guard
        return (
            guard.check == "tensor"
            and guard.aspect in _KEY_ASPECTS
            and (self.mode_changed or condition.decision.kind == "inference_mode")
        )

    def implies(self, condition: Condition) -> bool:
        """`condition` follows from what is gone."""
        guard, path = condition.guard, condition.guard.path
        if condition.decision.code == "CD111":
            return self.inference_mode and guard.aspect == "grad_mode"
        if self.hides(condition):
            return True
        if path is None:
            return False
        steps = _steps(path)
        if guard.check == "shape" and steps in self.ranks:
            return True
        if guard.check == "shape" and ".stride()" in condition.false.text and self.strided:
            return any(_steps(named) in self.strided for named in paths_in(condition.false.text))
        # A check of the very object that is gone is that cause itself, not a consequence.
        above = [steps[:end] for end in range(2, len(steps))]
        if any(prefix in self.objects or prefix in self.members for prefix in above):
            return True
        if steps in self.members and guard.check not in _MEMBER_GONE:
            return True
        if guard.check == "aliasing":
            named = paths_in((guard.key or "").replace(" and ", ", "))
            return any(_steps(each) in self.values for each in named)
        return any(
            prefix in self.containers
            and _positional(path, len(prefix) - 2)
            and not self._is_same_hook(path, len(prefix) - 2)
            for prefix in above
        )

    def _is_same_hook(self, path: GuardPath, depth: int) -> bool:
        """The item at `depth` is a hook, and its function is as guarded: one more behind it moved
        nothing."""
        hook = GuardPath(path.root, path.scope, path.hops[: depth + 1])
        within = depth > 0 and path.hops[depth - 1].is_hooks and len(path.hops) > depth + 1
        inner = path.hops[depth + 1 : depth + 2]
        is_part = bool(inner) and inner[0].text in ("__closure__", "__defaults__", "__self__")
        return within and is_part and _steps(hook) not in self.functions


def _steps(path: GuardPath) -> Steps:
    """A path as comparable steps; keys compare without their quotes."""
    return (path.root, path.scope, *((hop.kind, unquoted(hop.text)) for hop in path.hops))


def _absent_member(condition: Condition, path: GuardPath) -> GuardPath | None:
    """The member that a check found missing."""
    guard = condition.guard
    if guard.key is None or (guard.actual != "absent" and "absent" not in (condition.actual or "")):
        return None
    return guard.subject if guard.check == "attribute" else path.then("item", guard.key)


def _positional(path: GuardPath, depth: int) -> bool:
    """The hop at `depth` takes an item by its position, which a new length or order moves."""
    if len(path.hops) <= depth:
        return False
    hop = path.hops[depth]
    by_index = hop.text.lstrip("-").isdigit() or hop.text.startswith("list(dict.keys(")
    return hop.kind == "key" or (hop.kind == "item" and by_index)


def _once_per_variable(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    best: dict[Hashable, Condition] = {}
    for condition in conditions:
        key = identity_of(condition)
        held = best.get(key)
        if held is None or _rank(condition) < _rank(held):
            best[key] = condition
    kept = sorted(best.values(), key=lambda condition: condition.position)
    doubtful = [c for c in kept if c.printed or c.decision.code == "CD111"]
    dropped = [c for c in doubtful if _is_covered(c, kept)]
    return tuple(c for c in kept if c not in dropped) if dropped else tuple(kept)


def identity_of(condition: Condition) -> Hashable:
    """Conditions with the same identity are one cause."""
    code, kind = condition.decision.code, condition.decision.kind
    guard, path = condition.guard, condition.guard.path
    if code in ("CD111", "CD112", "CD113"):
        return code, kind
    if code == "CD116":
        return code, kind or (path.member if path is not None else None)
    if code in ("CD101", "CD102") and path is not None and path.callable_end:
        # One hook on many modules, or hooks from one factory: one function to change.
        place = condition.place
        return code, condition.variable, place and (place.file, place.function)
    if code == "CD106" and path is not None and path.below_module:
        # `model.half()` changes every parameter, and is one act.
        return code, guard.aspect, condition.expected, condition.actual, path.root
    if guard.check == "shape":
        return "shape", path
    if guard.check == "tensor":
        # Its dtype and its size change independently.
        return guard.aspect, path or condition.false.source
    return condition.subject or (condition.false.source, condition.false.text)


def _rank(condition: Condition) -> tuple[bool, bool, int, int]:
    unnamed = condition.guard.check == "state" and condition.guard.aspect is None
    return unnamed, condition.printed, condition.decision.order, condition.position


def _is_covered(condition: Condition, others: Sequence[Condition]) -> bool:
    """Another condition has the same and more: a printed reason without a source beside its
    leaf, a mode without its name beside the named one, a mode stack beside its device mode."""
    code, kind = condition.decision.code, condition.decision.kind
    for other in others:
        if other is condition or other.decision.code != code:
            continue
        if condition.printed and condition.guard.path is None and other.guard.path is not None:
            return True
        if code == "CD111" and kind is None and other.guard.check == "state":
            return True
        if kind == "torch_function_mode" and other.decision.kind == "default_device":
            return True
    return False
