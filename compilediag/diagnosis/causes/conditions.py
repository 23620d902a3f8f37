"""False guards of cache entries, classified and without their consequences; the nearest entry.
Under autocast every tensor guard is false, below an object of another type every attribute: these
would hide the cause and choose the wrong entry."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from compilediag.diagnosis.causes.cause_group import find_changed_dims
from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.guards.checks import UNKNOWN, Guard, parse_dispatch_keys, parse_guard
from compilediag.diagnosis.guards.families import STRUCTURE, Decision, GuardContext, decide
from compilediag.diagnosis.guards.reason import PrintedReason, parse_reason
from compilediag.diagnosis.guards.size_limits import simplify_source
from compilediag.diagnosis.guards.source import (
    GuardPath,
    find_paths,
    format_variable,
    parse_path,
    strip_quotes,
)
from compilediag.timeline.ownership import classify_ownership
from compilediag_harness.wire import EntryDiff, FalseGuard, Location


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that had to be true for a cache entry to fit, and was not."""

    false: FalseGuard
    guard: Guard
    decision: Decision
    variable: str
    expected: str | None
    actual: str | None
    place: Location | None
    """The user's line, of the process or of the printed reason."""
    position: int
    """In guard order."""
    novel: bool | None = None
    """No cache entry accepts the present value; None where that is not known."""

    @property
    def printed(self) -> bool:
        """Known from torch's printed reason alone."""
        return self.false.leaf == "PRINTED"

    @property
    def variable_path(self) -> GuardPath | None:
        return self.guard.variable_path


def list_conditions(
    entry: EntryDiff, reasons: Iterable[str], frame: Location | None
) -> tuple[Condition, ...]:
    """List the conditions of one cache entry; where it has no leaves, those torch printed."""
    every = (parse_reason(text) for text in reasons)
    printed = next((reason for reason in every if reason.compile_id == entry.compile_id), None)
    guards = entry.guards or ((make_false_guard(printed),) if printed is not None else ())
    conditions = (make_condition(false, at, frame, printed) for at, false in enumerate(guards))
    return tuple(part for condition in conditions for part in _split_modes(condition))


def _split_modes(condition: Condition) -> Iterator[Condition]:
    """Split a condition into the parts of torch's global state that changed: one leaf guards them
    all. What belongs to one device's autocast is one part."""
    guard, kind = condition.guard, condition.decision.kind
    parts: dict[str, list[str]] = {}
    for name in (guard.aspect or "").split() if guard.check == "state" else ():
        parts.setdefault(".".join(name.split(".")[:2]), []).append(name)
    if len(parts) < 2 or kind != guard.aspect:
        yield condition
        return
    for names in parts.values():
        aspect = " ".join(names)
        yield replace(
            condition,
            guard=replace(guard, aspect=aspect),
            decision=replace(condition.decision, kind=aspect),
            variable=aspect,
            **_read_switch(aspect, condition.false.actual),
        )


def _read_switch(mode: str | None, modes: str | None) -> dict[str, str | None]:
    """Read what a mode that is on or off was for the graph, and is, from "grad_mode=off"."""
    now = dict(part.split("=") for part in (modes or "").split()).get(mode or "")
    return {"expected": now and ("off" if now == "on" else "on"), "actual": now}


def make_false_guard(reason: PrintedReason) -> FalseGuard:
    """Make a false guard of a printed reason."""
    return FalseGuard(
        source="", leaf="PRINTED", text=reason.expression, user=reason.location, hint=reason.hint
    )


def make_condition(
    false: FalseGuard,
    position: int = 0,
    frame: Location | None = None,
    printed: PrintedReason | None = None,
) -> Condition:
    """Decide everything about one false guard; `printed` is torch's reason for its entry."""
    same = printed is not None and simplify_source(false.text) == printed.expression
    own = printed if same else None
    guard = _parse_false_guard(false, printed)
    place = false.user or (own.location if own else None)
    expected = false.expected or guard.expected
    if expected is not None and (guard.check == "shape" or guard.aspect == "number"):
        expected = simplify_source(expected)
    # For an attribute that came or went, the process shows the object it is read from.
    actual = guard.actual if guard.check == "attribute" else false.actual or guard.actual
    known = GuardContext(
        facts=false.facts,
        place=place,
        frame=frame,
        user_line=own.user_line if own else None,
        explanation=(own.comment if own else None) or false.hint,
        actual=actual,
        writers=false.writers,
    )
    if false.expected is not None and guard.check in ("identity", "value"):
        guard = replace(guard, expected=false.expected)
    decision = decide(guard, known)
    if decision.kind == "inference_mode":
        expected, actual = ("off", "on") if false.facts.inference_mode else ("on", "off")
    elif false.leaf == "GLOBAL_STATE":
        expected, actual = _read_switch(decision.kind, false.actual).values()
    variable = ""
    if guard.check == "aliasing" and guard.key:
        variable = "" if guard.aspect == "module" else simplify_source(guard.key)
    elif guard.check == "state" or decision.kind == "inference_mode":
        variable = decision.kind or "global state"
    elif guard.check == "backend":
        variable = "backend"
    elif guard.variable_path is not None:
        hint = false.hint or (own.hint if own else None)
        in_torch = frame is not None and classify_ownership(frame.file) == "torch"
        variable = format_variable(guard.variable_path, false.facts, hint, in_torch=in_torch)
    # A type guard names the type of the one value that it has.
    expected, actual = ("None" if text == "NoneType" else text for text in (expected, actual))
    return Condition(
        false, guard, decision, variable, expected, actual, place, position, novel=false.novel
    )


def _parse_false_guard(false: FalseGuard, printed: PrintedReason | None) -> Guard:
    """Parse the guard's text, and complete it from its leaf and its source."""
    guard = parse_guard(false.text)
    if false.leaf == "GLOBAL_STATE" and (guard.check != "state" or guard.aspect is None):
        # torch 2.7 writes the leaf without the component; its printed reason has it.
        read = parse_guard(printed.expression) if printed is not None else UNKNOWN
        guard = read if read.check == "state" else Guard("state", None)
    if not false.text and false.leaf not in ("PRINTED", "GLOBAL_STATE"):
        guard = UNKNOWN
    path = parse_path(false.source) if false.source else None
    has_path = guard.path is not None and guard.check not in ("tensor", "tensor_type")
    if path is not None and path.scope != "state" and not has_path:
        guard = replace(guard, path=path)
    if guard.aspect == "autocast" and false.facts.inference_mode is not None:
        # Inference mode and autocast changed at once: torch guards autocast by itself too.
        keys = parse_dispatch_keys(guard.expected or "") ^ parse_dispatch_keys(guard.actual or "")
        if any(key.startswith("Autograd") for key in keys):
            guard = replace(guard, aspect="inference")
    return guard


# --- consequences, and the nearest entry --------------------------------------------------------

Steps = tuple[Hashable, ...]

OBJECT_GONE = ("type", "identity", "none", "not_none", "tensor_type")
"""Checks of an object as a whole: nothing below it can be compared where one is false."""

_MEMBER_GONE = ("members", "missing", "attribute")
_KEY_ASPECTS = ("autocast", "inference", "dispatch_keys")
_KEY_COMPONENTS = ("autocast", "grad_mode", "inference")


def drop_consequences(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Drop conditions that are a consequence of another one; each variable once, in guard order."""
    gone = Invalidated(conditions)
    best: dict[Hashable, Condition] = {}
    for condition in conditions:
        if not gone.is_implied(condition):
            key = identify_condition(condition)
            best[key] = min(best.get(key, condition), condition, key=_get_priority)
    rest = sorted(best.values(), key=lambda condition: condition.position)
    doubtful = [c for c in rest if c.printed or REGISTER[c.decision.code].owner == "process"]
    dropped = [c for c in doubtful if _is_covered(c, rest)]
    return tuple(c for c in rest if c not in dropped) if dropped else tuple(rest)


def select_nearest(entries: Iterable[Sequence[Condition]]) -> Sequence[Condition]:
    """Select the entry that the fewest common causes keep from fitting; of equals that with the
    most values that no entry accepts, then the fewest conditions, then the most recently used.
    Where each of its values is accepted by some entry, the nearest of those that found a new value.
    Entries of another instance count only where those of this one decide nothing."""
    candidates = [entry for entry in entries if entry]
    own = select_this_instance(candidates)
    best = min(own, key=_compute_distance, default=())
    if any(condition.novel is not False for condition in best):
        return best
    new = [entry for entry in candidates if any(condition.novel for condition in entry)]
    return min(select_this_instance(new), key=_compute_distance, default=best)


def make_distance_key(entry: Sequence[Condition]) -> tuple[bool, int, int, int]:
    """Make the key that sorts the nearest entry first."""
    return is_other_instance(entry), *_compute_distance(entry)


def select_this_instance(entries: Iterable[Sequence[Condition]]) -> Sequence[Sequence[Condition]]:
    """Select the entries that were compiled for this instance; where there are none, all."""
    candidates = [entry for entry in entries if entry]
    return [entry for entry in candidates if not is_other_instance(entry)] or candidates


def _compute_distance(entry: Sequence[Condition]) -> tuple[int, int, int]:
    common_causes = {_identify_common_cause(condition) for condition in entry}
    novel = {_identify_common_cause(condition) for condition in entry if condition.novel}
    return len(common_causes), -len(novel), len(entry)


def _identify_common_cause(condition: Condition) -> Hashable:
    """Make equal for conditions with a common cause: a batch of another length or dtype changes all
    its tensors alike, however many guards that makes false."""
    guard = condition.guard
    if guard.check != "tensor":
        return identify_condition(condition)
    changed = find_changed_dims(condition.expected, condition.actual)
    if guard.aspect == "size" and changed:
        return "size", frozenset(change[1:] for change in changed)
    return guard.aspect, condition.expected, condition.actual


def is_other_instance(entry: Sequence[Condition]) -> bool:
    """True if the entry was compiled for another instance of what shares its code."""
    return any(REGISTER[condition.decision.code].owner == "instance" for condition in entry)


class Invalidated:
    """Paths of objects that are known to be gone or moved: a model has thousands of guards, so
    each condition is looked up by its own prefixes only."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        states = [cond.guard.aspect for cond in conditions if cond.guard.check == "state"]
        # The mode that sets the dispatch keys of tensors.
        self.mode_changed = any(
            aspect is None or any(name in aspect for name in _KEY_COMPONENTS) for aspect in states
        )
        # Inference mode was entered or left, which switches the recording of gradients too.
        self.inference_mode = any(cond.decision.kind == "inference_mode" for cond in conditions)
        checked = [(cond, cond.guard.check, cond.guard.path) for cond in conditions]
        of_paths = [(cond, check, path) for cond, check, path in checked if path is not None]

        def collect(*checks: str) -> set[Steps]:
            return {_make_steps(path) for _, check, path in of_paths if check in checks}

        # Paths that hold another object now, or nothing; that hold another value.
        self.objects, self.values = collect(*OBJECT_GONE), collect("value", *OBJECT_GONE)
        # Containers whose positions moved.
        self.containers = collect(*STRUCTURE)
        # Paths of keys and attributes that are absent now.
        self.members = {
            _make_steps(member)
            for cond, check, path in of_paths
            if check in _MEMBER_GONE and (member := _find_absent_member(cond, path)) is not None
        }
        # Hooks that are other functions now, or at another place among the hooks.
        self.functions = {
            _make_steps(GuardPath(path.root, path.scope, path.hops[: at + 2]))
            for _, check, path in of_paths
            for at, hop in enumerate(path.hops if check in OBJECT_GONE else ())
            if hop.is_hooks
        }
        # Tensors of another rank or type: their sizes mean nothing; in another order: strides.
        self.ranks, self.strided = (
            {_make_steps(path) for cond, _, path in of_paths if cond.guard.aspect in aspects}
            for aspects in (("rank", "type"), ("stride",))
        )

    def is_hidden(self, condition: Condition) -> bool:
        """True if `condition` is of a tensor, and of what a mode does to its dispatch keys."""
        guard = condition.guard
        return (
            guard.check == "tensor"
            and guard.aspect in _KEY_ASPECTS
            and (self.mode_changed or condition.decision.kind == "inference_mode")
        )

    def is_implied(self, cond: Condition) -> bool:
        """True if `cond` follows from what is gone."""
        guard, path = cond.guard, cond.guard.path
        if REGISTER[cond.decision.code].owner == "process":
            return self.inference_mode and guard.aspect == "grad_mode"
        if self.is_hidden(cond):
            return True
        if path is None:
            return False
        steps = _make_steps(path)
        if guard.check == "shape" and steps in self.ranks:
            return True
        if guard.check == "shape" and ".stride()" in cond.false.text and self.strided:
            return any(_make_steps(named) in self.strided for named in find_paths(cond.false.text))
        # A check of the very object that is gone is that cause itself, not a consequence.
        above = [steps[:end] for end in range(2, len(steps))]
        if any(prefix in self.objects or prefix in self.members for prefix in above):
            return True
        if steps in self.members and guard.check not in _MEMBER_GONE:
            return True
        if guard.check == "aliasing":
            named = find_paths((guard.key or "").replace(" and ", ", "))
            return any(_make_steps(named_path) in self.values for named_path in named)
        return any(
            prefix in self.containers
            and _is_positional(path, len(prefix) - 2)
            and not self._is_same_hook(path, len(prefix) - 2)
            for prefix in above
        )

    def _is_same_hook(self, path: GuardPath, depth: int) -> bool:
        """True if the member at `depth` is a hook, and its function is as guarded: one more behind
        it moved nothing."""
        hook = GuardPath(path.root, path.scope, path.hops[: depth + 1])
        within = depth > 0 and path.hops[depth - 1].is_hooks and len(path.hops) > depth + 1
        inner = path.hops[depth + 1 : depth + 2]
        is_part = bool(inner) and inner[0].text in ("__closure__", "__defaults__", "__self__")
        return within and is_part and _make_steps(hook) not in self.functions


def _make_steps(path: GuardPath) -> Steps:
    """Make comparable steps of a path; keys compare without their quotes."""
    return (path.root, path.scope, *((hop.kind, strip_quotes(hop.text)) for hop in path.hops))


def _find_absent_member(condition: Condition, path: GuardPath) -> GuardPath | None:
    """Find the member that a check found missing."""
    guard = condition.guard
    if guard.key is None or (guard.actual != "absent" and "absent" not in (condition.actual or "")):
        return None
    return guard.variable_path if guard.check == "attribute" else path.add_hop("item", guard.key)


def _is_positional(path: GuardPath, depth: int) -> bool:
    """True if the hop at `depth` takes a member by position, which a new length or order moves."""
    hop = path.hops[depth]
    by_index = hop.text.lstrip("-").isdigit() or hop.text.startswith("list(dict.keys(")
    return hop.kind == "key" or (hop.kind == "item" and by_index)


def identify_condition(condition: Condition) -> Hashable:
    """Make the identity of a condition: those with the same are one cause."""
    code, kind = condition.decision.code, condition.decision.kind
    guard, path, about = condition.guard, condition.guard.path, REGISTER[code]
    if about.owner == "process" or guard.check in ("backend", "aliasing"):
        return code, kind
    if about.owner == "optimizer":
        return code, kind or (path.member if path is not None else None)
    if about.owner == "closure" and path is not None and path.callable_end:
        # One hook on many modules, or hooks from one factory: one function to change.
        place = condition.place
        return code, condition.variable, place and (place.file, place.function)
    if about.changed == "metadata" and path is not None and path.below_module:
        # `model.half()` changes every parameter, and is one common cause.
        return code, guard.aspect, condition.expected, condition.actual, path.root
    if guard.check == "shape":
        return "shape", path
    if guard.check == "tensor":
        # Its dtype and its size change independently.
        return guard.aspect, path or condition.false.source
    return condition.variable_path or (condition.false.source, condition.false.text)


def _get_priority(condition: Condition) -> tuple[bool, bool, int, bool, int]:
    unnamed = condition.guard.check == "state" and condition.guard.aspect is None
    counted = condition.guard.check == "length"  # which key it is says more
    return unnamed, condition.printed, condition.decision.order, counted, condition.position


def _is_covered(condition: Condition, others: Sequence[Condition]) -> bool:
    """True if another condition has the same and more: a printed reason without a source beside
    its leaf, a mode without its name beside the named one, a mode stack beside its device mode."""
    code, kind = condition.decision.code, condition.decision.kind
    for other in others:
        if other is condition or other.decision.code != code:
            continue
        if condition.printed and condition.guard.path is None and other.guard.path is not None:
            return True
        if kind is None and other.guard.check == "state":
            return True
        if kind == "torch_function_mode" and other.decision.kind == "default_device":
            return True
    return False
