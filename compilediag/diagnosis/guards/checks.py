"""Parses one guard expression of torch 2.7 to 2.15: what it checks, of which value, and what it
expects. A text that no parser matches becomes the check "unknown"; nothing raises."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from compilediag.diagnosis.guards.source import (
    GuardPath,
    find_paths,
    parse_path,
    split_outside,
    strip_quotes,
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
    "members",  # contains a key or a member, equals a set
    "keys",  # key positions and orders
    "attribute",  # an attribute is there, or is not
    "missing",  # reading a member failed
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
    def variable_path(self) -> GuardPath | None:
        """The variable that changed: the attribute itself, where the check reads its object."""
        path = self.path
        if path is None or self.key is None:
            return path
        if self.check == "attribute":
            if path.member == "__dict__":
                path = path.before_last
            return path.add_hop("attr", self.key)
        if self.check == "members" and path.member in ("_buffers", "_parameters", "_modules"):
            return path.add_hop("item", repr(self.key))
        return path


UNKNOWN = Guard("unknown", None)

_STATE = re.compile(r"GLOBAL_STATE changed:\s*(?P<parts>.*)|(?P<check>___check_global_state)")
_COMPONENTS = {
    "utils_device.CURRENT_DEVICE": "default_device",
    "___check_torch_function_mode_stack": "torch_function_mode",
    "forward_ad._current_level": "forward_ad",
    "forward_ad']._current_level": "forward_ad",
    "compare_functorch_state": "functorch",
    "top_saved_tensors_hooks": "saved_tensors_hooks",
    "_pytree'].SUPPORTED_NODES": "pytree_registry",
    "___dict_version(": "pytree_registry",
    "___get_current_stream": "stream",
}
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
_HAS = re.compile(r"(?P<no>not )?(?P<what>___dict_contains|(?:frozen)?set\.__contains__|hasattr)\(")
_TYPE = re.compile(r",\s*type=<(?:class|enum) '(?P<name>[^']*)'>")
_NOT_READ = re.compile(
    r"(?P<error>KeyError|IndexError|null type dict|Not an? \w+) on\s+(?P<source>.*)", re.DOTALL
)
_ITERATOR = re.compile(r"___(?:tuple_iterator_len|list_reverseiterator_len|normalize_\w+_iter)\(")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")
_REMEMBERED = 8192
"""The same guards fail again and again."""

_MISMATCH = re.compile(
    r"tensor '(?P<source>.*)' (?P<what>dispatch key set|dtype|Tensor device index|requires_grad"
    r"|rank|size|stride) mismatch(?: at index (?P<dimension>-?\d+))?\.?\s*(?P<rest>.*)",
    re.DOTALL,
)
_TENSOR_TYPE = re.compile(
    r"expected type of '(?P<source>.*)' to be (?P<expected>.*?),? ?'? but found "
    r"<class '(?P<actual>[^']*)'>",
    re.DOTALL,
)
_EXPECTED = re.compile(
    r"[Ee]xpected (?:device index to be )?(?P<expected>.+?), actual (?P<actual>.+)", re.DOTALL
)
_TENSOR = re.compile(r"check_tensor\((?P<source>.*?), (?:torch\.)?\w+, DispatchKeySet", re.DOTALL)
_RAW_KEYS = re.compile(r"(?P<source>.*)\.raw_repr\(\) == DispatchKeySet", re.DOTALL)
_PARAMETER_ADVICE = re.compile(r"\. Guard failed on a parameter, consider using .*", re.DOTALL)
_MARKING = re.compile(
    r"_dynamo_\w*indices|_has_dynamo_dim_marking|_dynamo_(?:dynamic_range|shape_ids|unbacked_bounds)"
)
_SIZE_CALL = re.compile(r"\.(?:size|stride|storage_offset|numel)\(\)")
_SIZES_NAMED = re.compile(
    r"(?P<size>[\w.\[\]'\"]{1,400}\.(?:size|stride)\(\)\[\d{1,4}\]|[\w.\[\]'\"]{1,400}\.\w+\(\))"
)
_COMPARISON = re.compile(r"\s(?:[<>]=?|%|//)\s|\bMod\(|\bEq\(|\bNe\(")
_EXCLUDED = re.compile(r"[^\s(]+ != -?\d+")
"""A value that an int must not have, such as `L['shape'][1] != 1`: it was made symbolic."""
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"|<class|<enum")
_BACKENDS = ("CPU", "CUDA", "Meta", "XPU", "MPS", "HPU", "XLA", "PrivateUse1", "MTIA", "IPU", "VE")

_OPENS_MEMBERS = ("{", "set(", "frozenset(")


@functools.lru_cache(maxsize=_REMEMBERED)
def parse_guard(text: str) -> Guard:
    """Parse one guard expression without its comments; `UNKNOWN` for text that no parser matches,
    never an error."""
    text = text.strip()
    for parse in _PARSERS:
        guard = parse(text)
        if guard is not None:
            return guard
    return UNKNOWN


def _parse_no_guard(text: str) -> Guard | None:
    if not text or text.startswith("BACKEND_MATCH failure"):
        return Guard("backend", None)
    if text.startswith("Unexpected recompilation"):
        return Guard("unexpected", None)
    if text.startswith("Cache line invalidated"):
        matched = re.search(r"because (?P<source>.*) got deallocated", text)
        return Guard("dead", parse_path(matched["source"]) if matched else None)
    return None


def _parse_state(text: str) -> Guard | None:
    matched = _STATE.match(text)
    if matched is not None:
        names = [
            # autocast(cuda)_dtype
            re.sub(r"^autocast\((\w+)\)_(\w+).*", r"autocast.\1.\2", _STATE_NAMES.get(name, name))
            for name in (matched["parts"] or "").split()
        ]
        return Guard("state", None, aspect=" ".join(dict.fromkeys(names)) or None)
    named = next((component for part, component in _COMPONENTS.items() if part in text), None)
    return Guard("state", None, aspect=named) if named else None


def _parse_aliasing(text: str) -> Guard | None:
    if text.startswith("Duplicate tensors found"):
        names = re.findall(r"\"([^\"]*)\"", text)
        return Guard("aliasing", parse_path(names[0]) if names else None, key=" and ".join(names))
    if re.match(
        r"NO_TENSOR_ALIASING|___?check_no_aliasing|check_no_aliasing|check_overlapping\(", text
    ):
        return Guard("aliasing", None)
    sides = split_outside(text, " is ")
    if len(sides) != 2:
        return None
    left, right = parse_path(sides[0]), parse_path(sides[1])
    if left is None or right is None:
        return None
    if not right.hops and right.root in ("None", "True", "False"):
        return None
    aspect = "module" if "_modules" in (left.registry, right.registry) else None
    return Guard("aliasing", left, aspect, f"{sides[0].strip()} and {sides[1].strip()}")


def _parse_id_check(text: str) -> Guard | None:
    matched = _BY_ID.match(text)
    if matched is None:
        matched = re.search(r"isnan\(", text)
        return Guard("value", _parse_argument(text, matched), expected="nan") if matched else None
    named = _TYPE.search(text)
    check: Check = "identity" if matched["what"] == "obj_id" else "type"
    return Guard(check, _parse_argument(text, matched), type_name=named["name"] if named else None)


def _parse_membership(text: str) -> Guard | None:
    matched = _HAS.match(text)
    if matched is None:
        return None
    arguments = _split_arguments(text, matched)
    if len(arguments) != 2:
        return None
    key_first = matched["what"] == "___dict_contains"
    key, holder = arguments if key_first else (arguments[1], arguments[0])
    path = parse_path(holder)
    held = matched["what"] == "hasattr" or (path is not None and path.member == "__dict__")
    expected, actual = ("absent", "present") if matched["no"] else ("present", "absent")
    check: Check = "attribute" if held else "members"
    return Guard(check, path, key=strip_quotes(key), expected=expected, actual=actual)


def _parse_attribute(text: str) -> Guard | None:
    failed = re.match(r"getattr failed on source\s+(?P<source>.*)", text, re.DOTALL)
    if failed is None:
        return None
    path = parse_path(failed["source"])
    if path is not None and path.member is not None:
        # torch <= 2.12 names the attribute, later versions only the object it is missing on.
        return Guard("attribute", path.holder, key=path.member, expected="present", actual="absent")
    return Guard("attribute", path, expected="present", actual="absent")


def _parse_failed_access(text: str) -> Guard | None:
    matched = _NOT_READ.match(text.lstrip(": "))
    if matched is None:
        return None
    path = parse_path(matched["source"])
    if matched["error"] not in ("KeyError", "IndexError"):
        return Guard("identity", path)
    if path is None or path.last is None:
        return Guard("missing", path, expected="present", actual="absent")
    holder = path.before_last
    key = strip_quotes(path.last.text)
    return Guard("missing", holder, key=key, expected="present", actual="absent")


def _parse_structure(text: str) -> Guard | None:
    """Parse lengths, iterators, key positions and sets."""
    if text.startswith("not ") and (path := parse_path(text[4:])) is not None:
        return Guard("length", path, expected="empty", actual="not empty")
    for operator in (" == ", " != "):
        sides = split_outside(text, operator)
        if len(sides) != 2:
            continue
        left, right = sides[0].strip(), sides[1].strip()
        path = parse_path(left)
        if left.startswith("len(") and path is not None:
            # "len(d) != 1" is torch's wording for "is not 1 any more": 1 was expected.
            return Guard("length", path, expected=right)
        if _ITERATOR.match(left):
            return Guard("length", path, expected=right)
        if path is not None and path.last is not None and path.last.kind == "key":
            holder = path.before_last
            return Guard("keys", holder, expected=right)
        if path is not None and right.startswith(_OPENS_MEMBERS):
            return Guard("members", path, expected=right)
    return None


def _parse_none(text: str) -> Guard | None:
    sides = split_outside(text, " is ")
    if len(sides) != 2:
        return None
    path, right = parse_path(sides[0]), sides[1].strip()
    if right == "not None":
        return Guard("not_none", path, actual="None")
    if right == "None":
        return Guard("none", path, expected="None")
    return Guard("value", path, expected=right) if right in ("True", "False") else None


def _parse_value(text: str) -> Guard | None:
    sides = split_outside(text, " == ")
    if len(sides) != 2:
        return None
    left, right = sides[0].strip(), sides[1].strip()
    path = parse_path(left)
    if path is None:
        # `(1.0 + a) == 1.9`: the shape environment took a Python number for a constant again, after
        # it had been made symbolic (torch/fx/passes/_tensorify_python_scalars.py).
        paths = set(find_paths(left))
        computed = len(paths) == 1 and _NUMBER.fullmatch(right) is not None
        return Guard("value", paths.pop(), aspect="number", expected=text) if computed else None
    if path.last is not None and path.last.kind == "call" and path.last.text == "item":
        holder = GuardPath(path.root, path.scope, path.hops[:-2])
        check: Check = "value" if left.startswith("___as_tensor") else "tensor_item"
        return Guard(check, holder, expected=right)
    return Guard("value", path, expected=right)


def parse_dispatch_keys(text: str) -> frozenset[str]:
    """Parse the keys of a printed `DispatchKeySet(CPU, ...)`."""
    inside = text.partition("(")[2].rpartition(")")[0]
    return frozenset(key.strip() for key in inside.split(",") if key.strip())


def _classify_key_change(expected: str, actual: str) -> str:
    """Classify what changed about a tensor by its dispatch key sets: the most specific change."""
    changed = parse_dispatch_keys(expected) ^ parse_dispatch_keys(actual)
    if any(key.startswith("FuncTorch") for key in changed):
        return "functorch"
    if any(key.startswith("Sparse") for key in changed):
        return "sparse"
    if any(key in _BACKENDS for key in changed):
        return "device"
    if changed & {"Conjugate", "Negative"}:
        return "conjugate"
    if changed & {"Python", "PythonTLSSnapshot"}:
        return "subclass"
    if any(key.startswith("Autocast") for key in changed):
        return "autocast"
    if changed and all(key == "ADInplaceOrView" or key.startswith("Autograd") for key in changed):
        return "inference"
    return "dispatch_keys"


def _parse_tensor(text: str) -> Guard | None:
    """Parse torch's message about a tensor that no longer matches. Aspects: size, rank, dtype,
    stride, requires_grad, device, type, inference, sparse, conjugate, subclass, functorch,
    autocast, dispatch_keys."""
    if matched := _TENSOR_TYPE.match(text):
        expected = matched["expected"].removeprefix("<class '").removesuffix("'>").strip("' ,")
        path, actual = parse_path(matched["source"]), matched["actual"]
        return Guard("tensor_type", path, "type", None, expected, actual, type_name=actual)
    if matched := _TENSOR.match(text) or _RAW_KEYS.match(text):
        return Guard("tensor", parse_path(matched["source"]), "dispatch_keys")
    matched = _MISMATCH.match(text)
    if matched is None:
        return None
    path, aspect = parse_path(matched["source"]), matched["what"]
    rest = _PARAMETER_ADVICE.sub("", matched["rest"]).strip()
    if aspect == "requires_grad":
        required = rest.rpartition("=")[2].strip().startswith(("1", "True"))
        return Guard("tensor", path, aspect, None, str(required), str(not required))
    compared = _EXPECTED.search(rest)
    expected = compared["expected"].strip() if compared else None
    actual = compared["actual"].strip().rstrip(".") if compared else None
    if aspect == "dispatch key set":
        aspect = _classify_key_change(expected or "", actual or "")
    elif aspect == "Tensor device index":
        aspect = "device"
    return Guard("tensor", path, aspect, matched["dimension"], expected, actual)


def _parse_marking(text: str) -> Guard | None:
    """Parse a guard on `mark_dynamic`, `mark_static` and their like."""
    if _MARKING.search(text) is None:
        return None
    matched = re.search(r"hasattr\((?P<source>[^,]+), '_dynamo", text)
    path = (
        parse_path(matched["source"])
        if matched
        else parse_path(text.partition("._dynamo")[0].strip("("))
    )
    return Guard("marking", path, aspect="marking")


def classify_condition(text: str) -> str | None:
    """Classify a symbolic shape condition (a kind of CD118); None when the text is none."""
    plain = _STRINGS.sub("", text)
    if _EXCLUDED.fullmatch(plain) and "size()" not in plain:
        return "range"
    sized = _SIZE_CALL.search(plain) is not None
    if not sized and ("check" in plain or "type(" in plain or not _COMPARISON.search(plain)):
        return None
    if re.search(r"%|\bMod\(", plain):
        return "divisibility"
    named = {match["size"] for match in _SIZES_NAMED.finditer(text)}
    if re.search(r"[<>]" if "==" in plain and len(named) > 1 else r"[<>]|//", plain):
        lower = re.fullmatch(r"\(*2 <= .*", plain) and plain.count("<") == 1
        return "zero_one" if lower else "range"
    if len(named) == 1 or re.search(r"== \d+\W*$", plain):
        return "constant"
    return "unequal" if "!=" in plain or "Ne(" in plain else "equal"


def _parse_shape(text: str) -> Guard | None:
    kind = classify_condition(text)
    if kind is None:
        return None
    return Guard("shape", next(find_paths(text), None), aspect=kind, expected=text)


def _parse_metadata(text: str) -> Guard | None:
    match = re.match(r"___check_metadata_|__dtensor_spec_|___check_opaque_guard_fn_", text)
    if match is not None:
        return Guard("tensor", None, aspect="metadata")
    match = re.match(r"___cow_tensor_matches\(", text)
    return Guard("tensor", _parse_argument(text, match), aspect="copy_on_write") if match else None


def _parse_argument(text: str, call: re.Match[str]) -> GuardPath | None:
    """Parse the first argument of a call."""
    arguments = _split_arguments(text, call)
    return parse_path(arguments[0]) if arguments else None


def _split_arguments(text: str, call: re.Match[str]) -> tuple[str, ...]:
    """Split the arguments of the call whose opening bracket ends the match."""
    within = split_outside(text[call.end() :], ")")[0]
    return tuple(part.strip() for part in split_outside(within, ", ") if part.strip())


# The order decides: some texts match several parsers, and the first wins.
_PARSERS: tuple[Callable[[str], Guard | None], ...] = (
    _parse_no_guard,
    _parse_state,
    _parse_marking,
    _parse_tensor,
    _parse_id_check,
    _parse_metadata,
    _parse_membership,
    _parse_attribute,
    _parse_failed_access,
    _parse_aliasing,
    _parse_none,
    _parse_structure,
    _parse_shape,
    _parse_value,
)
