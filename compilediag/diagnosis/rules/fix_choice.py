"""Which wording fits the recompiles of one cause: chosen from what is known about its value, its
line and who writes it. A fact that is not in hand chooses nothing."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from compilediag.diagnosis.causes.conditions import condition_of
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.guards.tensors import keys_of
from compilediag.diagnosis.rules.branching import (
    decides_by,
    fills,
    only_computes,
    reads,
    takes_item,
)
from compilediag.timeline.compiles import Recompile, frame_id_of
from compilediag.timeline.ownership import ownership_of
from compilediag_harness.wire import GuardFacts, Location

_SET_ONCE = (
    "matmul_precision", "reduced_precision", "num_threads", "deterministic", "default_dtype",
)  # fmt: skip
_COUNTED = re.compile(r"\d+ (?:items?|keys?)\b")
_MEMBER = re.compile(r"(?:absent|present)$")
_TENSOR_TYPES = ("torch.Tensor", "Tensor")
_STRUCTURE = ("members", "keys", "missing", "length")
_HELD = ("CD102", "CD104", "CD109")
"""Codes of containers that no call passes."""

ROOT = re.compile(r"(?:args|kwargs)\[[^\]]+\]|\w+")
_LOCAL = re.compile(r"L\['(\w+)'\](.*)")
"""The source of an argument, or of a part of one."""
_LOCAL_ROOT = re.compile(r"L\['(?P<name>\w+)'\]")
_INT = re.compile(r"-?\d{1,18}")
_STRIDES = re.compile(r"\d+")
_CALLABLE = re.compile(r"(?:^|[._])(?:function|method)(?:[._]\w+)* object$")
_TABLE = re.compile(r"\._(?:modules|parameters|buffers)\Z")
_SUBSCRIPT = re.compile(r"\[[^\[\]]*\]")
_HOOK = re.compile(r"_hooks(?:_with_kwargs|_always_called)?\[")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")
_LOCAL_CODES = frozenset(("CD105", "CD106", "CD107", "CD108", "CD110", "CD113", "CD114", "CD118"))
"""Codes of values that the caller passes; across a graph break Dynamo is the caller."""


class Break(NamedTuple):
    """The graph break after which a compiled frame goes on."""

    function: str
    place: str


def break_before(group: Group) -> Break | None:
    """The graph break that made the value an argument: the frame goes on behind one, and the value
    is no attribute or global, which the whole function would guard just as well."""
    frame = group.recompiles[0].frame
    found = _RESUMED.fullmatch(frame.function)
    if found is None or group.code not in _LOCAL_CODES:
        return None
    file = frame.file.replace("\\", "/").rpartition("/")[2]
    return Break(found["function"], f"{file}:{found['line']}")


def kinds_of(group: Group, causes: RunCauses) -> Iterator[str]:
    """The kinds under which a wording is looked up, the most telling first."""
    if group.variable.endswith("._modules") and group.kind in _STRUCTURE:
        yield "modules"
    if is_held_by_package(group):
        yield "held"
    if _is_dynamic_counter(group):
        yield "object_counter"
    if _is_field_of_argument(group):
        yield "argument_branch" if is_branched_on(group) else "argument"
    yield from _of_line(group)
    yield from _of_container(group)
    yield from _of_relatives(group, causes)
    yield _of_guard(group)
    yield from _of_value(group)


def is_held_by_package(group: Group) -> bool:
    """Compiled code of a package gets the value from a call that is not the program's: the last
    line of the program's own passes nothing for it."""
    first = group.recompiles[0]
    if first.entered_at is None or ownership_of(first.frame.file) == "user":
        return False
    return not any(is_passed(group, variable) for variable in group.variables)


def is_passed(group: Group, variable: str) -> bool:
    """Whether the program's own call passes something for the argument, or for what holds it."""
    path, arguments = passed_for(group, variable)
    root = ROOT.match(path)
    named = root is None or root[0]
    return any(name == named or name.startswith(f"{named}[") for name in arguments)


def passed_for(group: Group, variable: str) -> tuple[str, dict[str, str]]:
    """The variable as guards name it, and what the first recompile's call passes for what."""
    call = group.recompiles[0].entered_at
    sources = {part.variable: part.first.source for part in group.parts}
    # Calls are bound to the parameters of what was compiled, as guards name them: a variable may
    # have the name that a module behind torch's own wrapper gives it.
    local = _LOCAL.fullmatch(sources.get(variable, ""))
    path = variable if local is None else local[1] + local[2]
    return path, {} if call is None else dict(call.arguments)


def _is_field_of_argument(group: Group) -> bool:
    """An attribute of an object that the call passes and that a method of its class changes: seldom
    the caller's to change."""
    root = _LOCAL_ROOT.match(group.first.source)
    if root is None or root["name"] in ("self", "fn"):
        return False
    if not is_of_object(group):
        return False
    methods = tuple(f"{each.holder_type}." for each in _facts(group))
    writers = [writer for cause in group.causes for writer in cause.writers]
    return group.code == "CD103" or any(each.function.startswith(methods) for each in writers)


def _facts(group: Group) -> list[GuardFacts]:
    """What is known about the value wherever a cache entry guards it."""
    source = group.first.source
    return [
        guard.facts
        for recompile in group.recompiles
        for entry in recompile.entries
        for guard in entry.guards
        if guard.source == source
    ]


def is_of_object(group: Group) -> bool:
    """An attribute of an object that is no module: it has no buffers."""
    facts = _facts(group)
    return bool(facts) and all(each.holder_kind == "object" for each in facts)


def _is_dynamic_counter(group: Group) -> bool:
    """An int of an object that is no module, which the compiled code itself changes and whose frame
    was compiled again only once: torch has made it dynamic."""
    if group.code != "CD104" or not _INT.fullmatch(group.first.expected or ""):
        return False
    return _is_changed_here(group) and not is_constant(group) and is_of_object(group)


def _of_line(group: Group) -> Iterator[str]:
    """Whether a hook holds the value, the line is a package's, only packages write it, or the line
    decides by it: what can be changed then is something else."""
    lines = [cause.line_text or "" for cause in group.causes]
    if any(_HOOK.search(cause.source) for cause in group.causes):
        is_number = _number(group.first.expected) is not None
        yield "hook_number" if is_number and not is_branched_on(group) else "hook"
    if _is_filled_inside(group):
        yield "filled"
    if _is_counted_by_package(group):
        yield "counter"
    if ownership_of(group.location.file) == "third_party" or _is_read_inside(group, lines):
        yield "library"
    elif _written_elsewhere(group):
        yield "foreign"
    elif _of_two_sides(group) and is_branched_on(group):
        yield "branch"


def is_branched_on(group: Group) -> bool:
    """The function that reads the value decides by it: in its source as the process had it, or in
    the line that is recorded."""
    return any(
        cause.branched_on or decides_by(cause.line_text or "", cause.variable)
        for cause in group.causes
    )


def _of_two_sides(group: Group) -> bool:
    """A number or bool, which a tensor can hold and torch.where choose by."""
    return group.first.expected in ("True", "False") or _number(group.first.expected) is not None


def _is_read_inside(group: Group, lines: list[str]) -> bool:
    """An attribute that no line of the user's reads: what the line calls does, and takes it as it
    is."""
    if group.code != "CD104" or ownership_of(group.location.file) == "torch":
        return group.code == "CD104"
    # A module keeps its children, parameters and buffers in dicts, which no line names. An item may
    # be written in other quotes, or by a variable: its container is named.
    owner, _, member = _SUBSCRIPT.sub("", _TABLE.sub("", group.variable)).rpartition(".")
    shown = [text for text in lines if text]
    return bool(owner and shown) and not any(reads(text, member) for text in shown)


def _is_filled_inside(group: Group) -> bool:
    """The function that reads the value gives it one where it has none."""
    return all(
        cause.expected == "None"
        and any(_is_inside(writer, group.location) for writer in cause.writers)
        for cause in group.causes
    )


def _is_counted_by_package(group: Group) -> bool:
    """A number that compiled code of a package changes, and that grew at each of several
    recompiles: no set of values can be warmed up."""
    shown = [group.first.expected or "", *(cause.actual or "" for cause in group.causes)]
    if len(shown) < 3 or not all(map(_INT.fullmatch, shown)):
        return False
    numbers = list(map(int, shown))
    grows = all(before < after for before, after in itertools.pairwise(numbers))
    inside = ownership_of(group.location.file) == "third_party"
    return grows and inside and _is_changed_here(group)


def _is_changed_here(group: Group) -> bool:
    """The compiled code changes the value that it reads."""
    return any(
        (cause.changed is not None and cause.changed.in_call)
        or fills(cause.line_text or "", cause.variable)
        or any(_is_inside(writer, group.location) for writer in cause.writers)
        for cause in group.causes
    )


def _written_elsewhere(group: Group) -> bool:
    """Only packages write the value: what is put in its place they overwrite."""
    writers = [writer for cause in group.causes for writer in cause.writers]
    return bool(writers) and all(ownership_of(w.file) != "user" for w in writers)


def _of_container(group: Group) -> Iterator[str]:
    """What happens to a container that no call passes: its function fills it, or only reads it."""
    shown = (group.first.expected or "", group.first.actual or "")
    keys = group.kind in ("members", "keys", "missing") or (
        group.code == "CD109" and any(map(_MEMBER.search, shown))
    )
    length = group.kind == "length" or any(map(_COUNTED.match, shown))
    if group.code not in _HELD or not (keys or length):
        return
    filled = any(fills(cause.line_text or "", cause.variable) for cause in group.causes)
    filled = filled or any(_is_inside(w, group.location) for c in group.causes for w in c.writers)
    if keys and not (filled and len(group.causes) > 1):
        yield "keys"
    else:
        yield "grows" if filled else "length"


def _is_inside(writer: Location, place: Location) -> bool:
    """The writer is the function of the place; Python names it with what it is nested in."""
    name = writer.function.rpartition(".")[2]
    return writer.file == place.file and name == place.function.rpartition(".")[2]


def _of_relatives(group: Group, causes: RunCauses) -> Iterator[str]:
    """An argument that is None at first and whose tensors grow from then on is a cache."""
    if group.code != "CD114":
        return
    sizes = causes.groups.get("CD105", ())
    frames = {(item.frame.file, item.frame.line) for item in group.recompiles}
    for other in sizes:
        same = any((item.frame.file, item.frame.line) in frames for item in other.recompiles)
        mine = any(
            name == group.variable or name.startswith((f"{group.variable}[", f"{group.variable}."))
            for name in other.variables
        )
        if same and mine:
            yield "cache"


def _of_guard(group: Group) -> str:
    kind, variable, first = group.kind or "", group.variable, group.first
    if group.code == "CD111":
        if any(name in kind for name in _SET_ONCE):
            return "set_once"
        return next((name for name in ("grad_mode", "autocast") if name in kind), kind)
    if group.code == "CD116" and not kind:
        return next((end for end in (".grad", "param_groups") if variable.endswith(end)), "")
    if group.code == "CD116":
        return "lr" if kind == "lr" else "option"
    if group.code == "CD117" and ".keywords[" in variable:
        return "partial"
    if group.code == "CD101" and ".environ[" in variable:
        return "environment"
    if group.code == "CD103" and any(cause.kind == "shape" for cause in group.causes):
        return ""  # created, and then grown
    if group.code == "CD118" and "stride()" in first.guard and "size()" not in first.guard:
        return "stride"
    if group.code == "CD118" and "size()" not in first.guard:
        return "number"
    if group.code == "CD106" and kind == "parameter":
        if not (first.expected or "").startswith("requires_grad"):
            return kind
        # In a package's model a call of the package switches it, which sets more than that.
        own = ownership_of(group.recompiles[0].frame.file) == "user"
        return "frozen" if own else "frozen_state"
    if group.code == "CD108" and kind == "length" and "key" in f"{first.expected}{first.actual}":
        return "members"
    if group.code == "CD114" and not _is_tensor(first.expected) and not _is_tensor(first.actual):
        return "object"
    if group.code == "CD106" and kind == "inference":
        return kind if _has(first.expected) else "normal"
    if group.code == "CD106" and kind == "stride":
        return memory_format(first.expected or "") or kind
    if group.code == "CD190":
        return "guard" if first.guard else ""
    return kind


def _is_tensor(shown: str | None) -> bool:
    return (shown or "").startswith("Tensor ") or shown in _TENSOR_TYPES


def _has(keys: str | None) -> bool:
    """Whether a tensor has the dispatch key that every tensor has but those of inference mode."""
    return "ADInplaceOrView" in keys_of(keys or "")


def memory_format(strides: str) -> str | None:
    """The memory format of a tensor of 4 or 5 dimensions whose channels are innermost."""
    found = [int(stride) for stride in _STRIDES.findall(strides)]
    names = {4: "channels_last", 5: "channels_last_3d"}
    outside_in = [*found[:1], *found[2:], *found[1:2]]
    innermost = outside_in == sorted(outside_in, reverse=True) and found != sorted(
        found, reverse=True
    )
    return names.get(len(found)) if innermost else None


def _of_value(group: Group) -> Iterator[str]:
    """What the guard expected: a callable, a "bool", an "int", a "number"."""
    first = group.first
    if any(_CALLABLE.search(text or "") for text in (first.expected, first.actual)):
        yield "callable"
    if first.expected in ("True", "False"):
        yield "bool"
    number = _number(first.expected)
    if number is not None and _is_tensor(first.actual):
        yield "mixed"
    if first.expected in _TENSOR_TYPES and first.actual in ("int", "float"):
        yield "mixed"
    if number is not None:
        if is_of_object(group):
            yield "object_number"
        if group.code == "CD104" and group.variable.endswith("]"):
            yield "item_number"
        if is_constant(group):
            if any(takes_item(cause.line_text or "", cause.variable) for cause in group.causes):
                yield "table"
            yield "constant"
        if isinstance(number, int):
            yield "int"
        yield "number"


def _number(text: str | None) -> float | None:
    for read in (int, float):
        try:
            return read(text or "")
        except ValueError:
            continue
    return None


def is_constant(group: Group) -> bool:
    """One frame of one process was compiled again for a further value: torch makes a number dynamic
    at its second value, unless the code needs it as a constant. Where the code only computes with
    it, it does not: `dynamic=False` made it one.

    An entry that was compiled at one of these recompiles and does not read the value (on another
    side of a branch) leaves it to the next: it shows nothing."""
    if all(only_computes(cause.line_text or "", cause.variable) for cause in group.causes):
        return False
    compiled: dict[tuple[str, int, int], set[str]] = {}
    again: Counter[tuple[str, int, int]] = Counter()
    for cause, item in zip(group.causes, group.recompiles, strict=True):
        frame = (frame_id_of(item.compile_id), item.process, item.epoch)
        values, demanded = compiled.setdefault(frame, set()), _demanded(cause.source, item)
        again[frame] += not values or not demanded or bool(values & demanded)
        if again[frame] > 1:
            return True
        values.add(cause.actual or "")
    return False


def _demanded(source: str, recompile: Recompile) -> set[str]:
    """The values of a variable that cache entries wanted; empty where entries are not recorded."""
    return {
        condition_of(guard).expected or ""
        for entry in recompile.entries
        for guard in entry.guards
        if guard.source == source
    }
