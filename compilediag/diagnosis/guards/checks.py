"""One guard expression read into what it checks, of which value, expecting what.

Covers every text of torch 2.7 to 2.15 that was provoked or read in its source. A text that no rule
matches becomes the check "unknown"; nothing raises.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from compilediag.diagnosis.guards import tensors
from compilediag.diagnosis.guards.source import (
    GuardPath,
    path_of,
    paths_in,
    split_outside,
    unquoted,
)

Check = Literal[
    "backend",  # another backend object
    "dead",  # the cache entry died with an object it guarded
    "unexpected",  # torch itself could not determine it
    "state",  # global state; `aspect` is the component
    "aliasing",
    "marking",  # mark_dynamic and the like
    "shape",  # a symbolic shape condition; `aspect` is the kind
    "tensor",  # metadata of a tensor; `aspect` is what differs
    "tensor_type",  # something else where a tensor was
    "tensor_item",  # the value of a 0-dim tensor used as a Python number
    "value",
    "none",
    "not_none",
    "identity",
    "type",
    "length",
    "members",  # contains a key or an item, equals a set
    "keys",  # key positions and orders
    "attribute",  # an attribute is there, or is not
    "missing",  # reading an item failed
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard expression, understood as far as its text goes."""

    check: Check
    path: GuardPath | None
    """Of the value the check reads."""
    aspect: str | None = None
    """Refinement of the check, such as "size" or "grad_mode"."""
    key: str | None = None
    """The member a "members", "attribute" or "missing" check is about; a dimension of a size."""
    expected: str | None = None
    actual: str | None = None
    type_name: str | None = None
    """Type torch printed: the one expected, or found for "tensor_type"."""

    @property
    def subject(self) -> GuardPath | None:
        """The variable that changed: the attribute itself, where the check reads its object."""
        path = self.path
        if path is None or self.key is None:
            return path
        if self.check == "attribute":
            if path.member == "__dict__":
                path = GuardPath(path.root, path.scope, path.hops[:-1])
            return path.then("attr", self.key)
        if self.check == "members" and path.member in ("_buffers", "_parameters", "_modules"):
            return path.then("item", repr(self.key))
        return path


UNKNOWN = Guard("unknown", None)

_GLOBAL_STATE = re.compile(
    r"GLOBAL_STATE changed:\s*(?P<parts>.*)|(?P<check>___check_global_state)"
)
_COMPONENTS = (
    ("utils_device.CURRENT_DEVICE", "default_device"),
    ("___check_torch_function_mode_stack", "torch_function_mode"),
    ("forward_ad._current_level", "forward_ad"),
    ("forward_ad']._current_level", "forward_ad"),
    ("compare_functorch_state", "functorch"),
    ("top_saved_tensors_hooks", "saved_tensors_hooks"),
    ("_pytree'].SUPPORTED_NODES", "pytree_registry"),
    ("___dict_version(", "pytree_registry"),
    ("___get_current_stream", "stream"),
)
"""What stands in the text of a guard, and the part of the global state that it is about."""
_STATE_NAMES = {
    "allow_tf32": "matmul_precision",
    "cuda_matmul_precision": "matmul_precision",
    "allow_fp16_reduce": "reduced_precision",
    "allow_bf16_reduce": "reduced_precision",
    "deterministic_algorithms": "deterministic",
    "deterministic_algorithms_warn_only": "deterministic",
}
_BY_ID = re.compile(r"___check_(?P<what>obj_id|type_id|fake_script_type)\(")
_CONTAINS = re.compile(
    r"(?P<no>not )?(?P<what>___dict_contains|(?:frozen)?set\.__contains__|hasattr)\("
)
_TYPE = re.compile(r",\s*type=<(?:class|enum) '(?P<name>[^']*)'>")
_NOT_READ = re.compile(
    r"(?P<error>KeyError|IndexError|null type dict|Not an? \w+) on\s+(?P<source>.*)", re.DOTALL
)
_ITERATOR = re.compile(r"___(?:tuple_iterator_len|list_reverseiterator_len|normalize_\w+_iter)\(")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")
_REMEMBERED = 8192
"""The same guards fail again and again."""

_OPENS_MEMBERS = ("{", "set(", "frozenset(")


@functools.lru_cache(maxsize=_REMEMBERED)
def guard_of(text: str) -> Guard:
    """Reads one guard expression without its comments; never raises."""
    text = text.strip()
    for read in _READERS:
        found = read(text)
        if found is not None:
            return found
    return UNKNOWN


def _no_guard(text: str) -> Guard | None:
    if not text or text.startswith("BACKEND_MATCH failure"):
        return Guard("backend", None)
    if text.startswith("Unexpected recompilation"):
        return Guard("unexpected", None)
    if text.startswith("Cache line invalidated"):
        found = re.search(r"because (?P<source>.*) got deallocated", text)
        return Guard("dead", path_of(found["source"]) if found else None)
    return None


def _state(text: str) -> Guard | None:
    found = _GLOBAL_STATE.match(text)
    if found is not None:
        names = [_component(name) for name in (found["parts"] or "").split()]
        return Guard("state", None, aspect=" ".join(dict.fromkeys(names)) or None)
    for part, component in _COMPONENTS:
        if part in text:
            return Guard("state", None, aspect=component)
    return None


def _component(name: str) -> str:
    autocast = re.match(r"autocast\((?P<device>\w+)\)_(?P<what>\w+)", name)
    if autocast is not None:
        return f"autocast.{autocast['device']}.{autocast['what']}"
    return _STATE_NAMES.get(name, name)


def _aliasing(text: str) -> Guard | None:
    if text.startswith("Duplicate tensors found"):
        names = re.findall(r"\"([^\"]*)\"", text)
        return Guard("aliasing", path_of(names[0]) if names else None, key=" and ".join(names))
    if re.match(
        r"NO_TENSOR_ALIASING|___?check_no_aliasing|check_no_aliasing|check_overlapping\(", text
    ):
        return Guard("aliasing", None)
    sides = split_outside(text, " is ")
    if len(sides) != 2:
        return None
    left, right = path_of(sides[0]), path_of(sides[1])
    if (
        left is None
        or right is None
        or (not right.hops and right.root in ("None", "True", "False"))
    ):
        return None
    return Guard("aliasing", left, key=f"{sides[0].strip()} and {sides[1].strip()}")


def _by_id(text: str) -> Guard | None:
    found = _BY_ID.match(text)
    if found is None:
        return None
    named = _TYPE.search(text)
    check: Check = "identity" if found["what"] == "obj_id" else "type"
    return Guard(check, _argument(text, found), type_name=named["name"] if named else None)


def _nan(text: str) -> Guard | None:
    found = re.search(r"isnan\(", text)
    return None if found is None else Guard("value", _argument(text, found), expected="nan")


def _contains(text: str) -> Guard | None:
    found = _CONTAINS.match(text)
    if found is None:
        return None
    arguments = _arguments(text, found)
    if len(arguments) != 2:
        return None
    key_first = found["what"] == "___dict_contains"
    key, holder = arguments if key_first else (arguments[1], arguments[0])
    path = path_of(holder)
    held = found["what"] == "hasattr" or (path is not None and path.member == "__dict__")
    expected, actual = ("absent", "present") if found["no"] else ("present", "absent")
    check: Check = "attribute" if held else "members"
    return Guard(check, path, key=unquoted(key), expected=expected, actual=actual)


def _attribute(text: str) -> Guard | None:
    failed = re.match(r"getattr failed on source\s+(?P<source>.*)", text, re.DOTALL)
    if failed is None:
        return None
    path = path_of(failed["source"])
    if path is not None and path.member is not None:
        # torch <= 2.12 names the attribute, later versions only the object it is missing on.
        return Guard("attribute", path.holder, key=path.member, expected="present", actual="absent")
    return Guard("attribute", path, expected="present", actual="absent")


def _not_read(text: str) -> Guard | None:
    found = _NOT_READ.match(text.lstrip(": "))
    if found is None:
        return None
    path = path_of(found["source"])
    if found["error"] not in ("KeyError", "IndexError"):
        return Guard("identity", path)
    if path is None or path.last is None:
        return Guard("missing", path, expected="present", actual="absent")
    holder = GuardPath(path.root, path.scope, path.hops[:-1])
    key = unquoted(path.last.text)
    return Guard("missing", holder, key=key, expected="present", actual="absent")


def _structure(text: str) -> Guard | None:
    """Lengths, iterators, key positions and sets."""
    if text.startswith("not ") and (path := path_of(text[4:])) is not None:
        return Guard("length", path, expected="empty", actual="not empty")
    for operator in (" == ", " != "):
        sides = split_outside(text, operator)
        if len(sides) != 2:
            continue
        left, right = sides[0].strip(), sides[1].strip()
        path = path_of(left)
        if left.startswith("len(") and path is not None:
            # "len(d) != 1" is torch's wording for "is not 1 any more": 1 was expected.
            return Guard("length", path, expected=right)
        if _ITERATOR.match(left):
            return Guard("length", path, expected=right)
        if path is not None and path.last is not None and path.last.kind == "key":
            holder = GuardPath(path.root, path.scope, path.hops[:-1])
            return Guard("keys", holder, expected=right)
        if path is not None and right.startswith(_OPENS_MEMBERS):
            return Guard("members", path, expected=right)
    return None


def _none(text: str) -> Guard | None:
    sides = split_outside(text, " is ")
    if len(sides) != 2:
        return None
    path, right = path_of(sides[0]), sides[1].strip()
    if right == "not None":
        return Guard("not_none", path, actual="None")
    if right == "None":
        return Guard("none", path, expected="None")
    return Guard("value", path, expected=right) if right in ("True", "False") else None


def _value(text: str) -> Guard | None:
    sides = split_outside(text, " == ")
    if len(sides) != 2:
        return None
    left, right = sides[0].strip(), sides[1].strip()
    path = path_of(left)
    if path is None:
        return _computed_number(text, left, right)
    if path.last is not None and path.last.kind == "call" and path.last.text == "item":
        holder = GuardPath(path.root, path.scope, path.hops[:-2])
        check: Check = "value" if left.startswith("___as_tensor") else "tensor_item"
        return Guard(check, holder, expected=right)
    return Guard("value", path, expected=right)


def _computed_number(text: str, left: str, right: str) -> Guard | None:
    """`(1.0 + a) == 1.9`: the shape environment took a Python number for a constant again, after
    it had been made symbolic (torch/fx/passes/_tensorify_python_scalars.py)."""
    paths = tuple(dict.fromkeys(paths_in(left)))
    if len(paths) != 1 or _NUMBER.fullmatch(right) is None:
        return None
    return Guard("value", paths[0], aspect="number", expected=text)


def _tensor(text: str) -> Guard | None:
    found = tensors.mismatch_of(text)
    if found is None:
        return None
    return Guard(
        "tensor_type" if found.aspect == "type" else "tensor",
        path_of(found.source),
        aspect=found.aspect,
        key=found.dimension,
        expected=found.expected,
        actual=found.actual,
        type_name=found.actual if found.aspect == "type" else None,
    )


def _marking(text: str) -> Guard | None:
    if not tensors.is_marking(text):
        return None
    found = re.search(r"hasattr\((?P<source>[^,]+), '_dynamo", text)
    path = path_of(found["source"]) if found else path_of(text.partition("._dynamo")[0].strip("("))
    return Guard("marking", path, aspect="marking")


def _shape(text: str) -> Guard | None:
    kind = tensors.condition_kind(text)
    if kind is None:
        return None
    return Guard("shape", next(paths_in(text), None), aspect=kind, expected=text)


def _metadata(text: str) -> Guard | None:
    found = re.match(r"___check_metadata_|__dtensor_spec_|___check_opaque_guard_fn_", text)
    if found is not None:
        return Guard("tensor", None, aspect="metadata")
    found = re.match(r"___cow_tensor_matches\(", text)
    return (
        None if found is None else Guard("tensor", _argument(text, found), aspect="copy_on_write")
    )


def _argument(text: str, call: re.Match[str]) -> GuardPath | None:
    """The first argument of a call."""
    arguments = _arguments(text, call)
    return path_of(arguments[0]) if arguments else None


def _arguments(text: str, call: re.Match[str]) -> tuple[str, ...]:
    """The arguments of the call whose opening bracket ends the match."""
    within = split_outside(text[call.end() :], ")")[0]
    return tuple(part.strip() for part in split_outside(within, ", ") if part.strip())


_READERS: tuple[Callable[[str], Guard | None], ...] = (
    _no_guard,
    _state,
    _marking,
    _tensor,
    _by_id,
    _metadata,
    _nan,
    _contains,
    _attribute,
    _not_read,
    _aliasing,
    _none,
    _structure,
    _shape,
    _value,
)
