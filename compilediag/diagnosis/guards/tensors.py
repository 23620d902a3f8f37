"""torch's messages about tensors that no longer match, and about sizes out of their range."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MISMATCH = re.compile(
    r"tensor '(?P<source>.*)' (?P<what>dispatch key set|dtype|Tensor device index|requires_grad"
    r"|rank|size|stride) mismatch(?: at index (?P<dimension>-?\d+))?\.?\s*(?P<rest>.*)",
    re.DOTALL,
)
_TYPE = re.compile(
    r"expected type of '(?P<source>.*)' to be (?P<expected>.*?),? ?'? but found "
    r"<class '(?P<actual>[^']*)'>",
    re.DOTALL,
)
_EXPECTED = re.compile(
    r"[Ee]xpected (?:device index to be )?(?P<expected>.+?), actual (?P<actual>.+)", re.DOTALL
)
_CHECK_TENSOR = re.compile(
    r"check_tensor\((?P<source>.*?), (?:torch\.)?\w+, DispatchKeySet", re.DOTALL
)
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


@dataclass(frozen=True, slots=True)
class TensorMismatch:
    """A tensor guard's failure. `aspect`: size, rank, dtype, stride, requires_grad, device, type,
    inference, sparse, conjugate, subclass, functorch, autocast, dispatch_keys."""

    source: str
    aspect: str
    expected: str | None
    actual: str | None
    dimension: str | None = None


def mismatch_of(text: str) -> TensorMismatch | None:
    """Reads torch's message about a tensor; None when the text is none."""
    found = _MISMATCH.match(text)
    if found is not None:
        return _read(found)
    found = _TYPE.match(text)
    if found is not None:
        expected = found["expected"].removeprefix("<class '").removesuffix("'>").strip("' ,")
        return TensorMismatch(found["source"], "type", expected, found["actual"])
    found = _CHECK_TENSOR.match(text) or _RAW_KEYS.match(text)
    return TensorMismatch(found["source"], "dispatch_keys", None, None) if found else None


def _read(found: re.Match[str]) -> TensorMismatch:
    rest = _PARAMETER_ADVICE.sub("", found["rest"]).strip()
    what = found["what"]
    if what == "requires_grad":
        required = rest.rpartition("=")[2].strip().startswith(("1", "True"))
        return TensorMismatch(found["source"], what, str(required), str(not required))
    compared = _EXPECTED.search(rest)
    expected = compared["expected"].strip() if compared else None
    actual = compared["actual"].strip().rstrip(".") if compared else None
    if what == "dispatch key set":
        return TensorMismatch(
            found["source"], keys_aspect(expected or "", actual or ""), expected, actual
        )
    aspect = "device" if what == "Tensor device index" else what
    return TensorMismatch(found["source"], aspect, expected, actual, found["dimension"])


def keys_of(text: str) -> frozenset[str]:
    """The keys of a printed `DispatchKeySet(CPU, ...)`."""
    inside = text.partition("(")[2].rpartition(")")[0]
    return frozenset(key.strip() for key in inside.split(",") if key.strip())


def keys_aspect(expected: str, actual: str) -> str:
    """What changed about a tensor by its dispatch key sets: the most specific difference."""
    before, after = keys_of(expected), keys_of(actual)
    changed = before ^ after
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


def is_marking(text: str) -> bool:
    """A guard on `mark_dynamic`, `mark_static` and their like."""
    return _MARKING.search(text) is not None


def condition_kind(text: str) -> str | None:
    """Kind of a symbolic shape condition (CD118), or None when the text is none."""
    plain = _STRINGS.sub("", text)
    if _EXCLUDED.fullmatch(plain) and "size()" not in plain:
        return "range"
    sized = _SIZE_CALL.search(plain) is not None
    if not sized and ("check" in plain or "type(" in plain or not _COMPARISON.search(plain)):
        return None
    if re.search(r"%|//|\bMod\(", plain):
        return "divisibility"
    if re.search(r"[<>]", plain):
        lower = re.fullmatch(r"\(*2 <= .*", plain) and plain.count("<") == 1
        return "zero_one" if lower else "range"
    named = {match["size"] for match in _SIZES_NAMED.finditer(text)}
    if len(named) == 1:
        return "constant"
    return "unequal" if "!=" in plain or "Ne(" in plain else "equal"
