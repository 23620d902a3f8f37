"""Parses the two values of a guard, as a receipt shows them, to Python expressions.

Invariant: an expression is made of what was understood (literals, numbers, names of dtypes), never
of text of the target as it stands: a script that is run must hold nothing that a run could plant.
"""

from __future__ import annotations

import ast
import keyword
import re
from math import prod

from compilediag.errors import ReproImpossible
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag_harness.redaction.recognise import is_redacted

DTYPES = frozenset(
    [
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    ]
)
MAX_ELEMENTS = 1 << 24
"""Of a tensor in a script; a larger one would be no small program."""
MAX_CHARS = 200

_SHAPE = re.compile(r"\[(?P<sizes>(?:\d{1,9}(?:, \d{1,9})*)?)\]\Z")
_TENSOR = re.compile(r"Tensor (?P<shape>\[[\d, ]*\]) torch\.(?P<dtype>\w+)\Z")
_COUNTED = re.compile(r"(?P<number>\d{1,4}) (?P<noun>keys?|items?)\Z")
_MEMBER = re.compile(r"(?P<key>'[^'\\]{1,120}') (?P<state>absent|present)\Z")
_ENUM = re.compile(r"(?P<type>[A-Za-z_]\w*)\.(?P<member>[A-Za-z_]\w*)\Z")


def parse_literal(text: str) -> str | None:
    """Parse a number, string, bool or None to how Python spells it; None for anything else."""
    if len(text) > MAX_CHARS:
        return None
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    known = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    return repr(value) if known else None


def parse_shape(text: str) -> list[int] | None:
    """Parse the sizes of "[8, 16]"; None where one is unknown ("[*, 16]") or it is no shape."""
    match = _SHAPE.match(text)
    if match is None:
        return None
    return [int(size) for size in match["sizes"].split(", ") if size]


def parse_tensor(text: str) -> str | None:
    """Parse "[8, 16]" or "Tensor [8, 16] torch.float32" to a tensor expression; None for others."""
    match = _TENSOR.match(text)
    if match is not None and match["dtype"] not in DTYPES:
        return None
    shape = parse_shape(match["shape"] if match else text)
    if shape is None:
        return None
    return build_ones(shape, match["dtype"] if match else None)


def build_ones(shape: list[int], dtype: str | None = None) -> str:
    """Build the expression of a tensor of ones.

    Raises:
        ReproImpossible: it would be too large.
    """
    if prod(shape) > MAX_ELEMENTS:
        raise ReproImpossible(f"a tensor of shape {shape} is too large for a small program")
    sized = f"torch.ones({shape}"
    return f"{sized}, dtype=torch.{dtype})" if dtype not in (None, "float32") else f"{sized})"


def parse_dtype(text: str) -> str | None:
    """Parse the name in "torch.float32"; None for another text."""
    name = text.removeprefix("torch.")
    return name if name in DTYPES else None


def parse_enum(text: str) -> tuple[str, str] | None:
    """Parse type and member of "Mode.TRAIN"; None for another text."""
    match = _ENUM.match(text)
    if match is None or keyword.iskeyword(match["type"]) or keyword.iskeyword(match["member"]):
        return None
    return match["type"], match["member"]


def parse_count(text: str) -> tuple[int, bool] | None:
    """Parse "2 items" or "1 key" to the number, and whether it counts keys of a dict."""
    match = _COUNTED.match(text)
    return (int(match["number"]), match["noun"].startswith("key")) if match else None


def parse_member(text: str) -> tuple[str, bool] | None:
    """Parse "'k' absent" to the key as a literal, and whether it is there."""
    match = _MEMBER.match(text)
    return (match["key"], match["state"] == "present") if match else None


def get_both(evidence: GuardEvidence) -> tuple[str, str]:
    """Get what the guard expected and what it met first.

    Raises:
        ReproImpossible: one of them was not seen, or was taken out as a secret.
    """
    expected, actual = evidence.expected, evidence.actual
    if expected is None or actual is None:
        raise ReproImpossible("the receipt does not hold both values of the guard")
    if is_redacted(expected) or is_redacted(actual):
        raise ReproImpossible("the values of the guard were taken out of the receipt as secrets")
    return expected, actual
