"""The change of a value between two calls, by the kind of the guard: two expressions, and code that
makes torch guard on the difference.

Invariant: an expression is made of what was understood (literals, numbers, names of dtypes), never
of text of the target as it stands: a script that is run must hold nothing that a run could plant.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable
from math import prod
from typing import NamedTuple

from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.variables import RESERVED, get_code_info
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag_harness.redaction.recognise import is_redacted

DEFAULT_TENSOR = "torch.ones([2, 4])"
SHAPE_ASSUMED = "shapes were not recorded: [2, 4] is assumed"
_MAY_BE_ENUM = (("CD107", "value"), ("CD101", "value"))
DTYPE_ASSUMED = "dtypes were not recorded: float32 is assumed"
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


class ChangedValue(NamedTuple):
    """One change of one value; `{value}` in `use` is the value, `{x}` a tensor of the script."""

    before: str
    after: str
    use: tuple[str, ...]
    """The lines of a function's body that depend on it."""
    classes: tuple[str, ...] = ()
    """Definitions that the expressions need."""
    assumed: tuple[str, ...] = ()
    """What the receipt does not hold and the script assumes."""


def build_change(rule: str, kind: str | None, evidence: GuardEvidence) -> ChangedValue:
    """Build the change of a finding.

    Raises:
        ReproImpossible: the receipt does not hold enough, or the kind has no small program.
    """
    if (rule, kind) in (("CD110", "code"), ("CD101", "object")):
        # Another function: its code is guarded.
        assumed = "what the functions compute was not recorded: two other ones are used"
        before, after = "lambda value: value + 1", "lambda value: value - 1"
        return ChangedValue(before, after, ("return {value}({x})",), assumed=(assumed,))
    if evidence.expected is None and (rule, kind) in _MAY_BE_ENUM:
        change = _match_enum_member(str(evidence.actual))
        if change is not None:
            return change
    expected, actual = evidence.expected, evidence.actual
    if expected is None or actual is None:
        raise ReproImpossible("the receipt does not hold both values of the guard")
    if is_redacted(expected) or is_redacted(actual):
        raise ReproImpossible("the values of the guard were taken out of the receipt as secrets")
    changed = get_code_info(rule).changed
    if kind == "attribute_set" or (changed == "tensor" and parse_member(expected)):
        raise ReproImpossible("an attribute came or went, and its value was not recorded")
    if changed == "metadata":
        return _build_metadata_change(kind, expected, actual)
    for match_texts in _BY_TEXT:
        change = match_texts(expected, actual)
        if change is not None:
            return change
    problem = f"a value was {expected!r} and became {actual!r}"
    raise ReproImpossible(f"{problem}: the receipt does not say how to make such values")


# --- by what the two texts say ---------------------------------------------------------------


def _match_literals(expected: str, actual: str) -> ChangedValue | None:
    before, after = parse_literal(expected), parse_literal(actual)
    if before is None or after is None:
        return None
    test = f"{{value}} is {before}" if before == "None" else f"{{value}} == {before}"
    return ChangedValue(before, after, (f"if {test}:", "    return {x} + 1", "return {x} - 1"))


def _match_shapes(expected: str, actual: str) -> ChangedValue | None:
    if parse_shape(expected) is None or parse_shape(actual) is None:
        return None
    before, after = parse_tensor(expected), parse_tensor(actual)
    assert before is not None
    assert after is not None
    return ChangedValue(before, after, ("return {value} + 1",), assumed=(DTYPE_ASSUMED,))


def _match_optional(expected: str, actual: str) -> ChangedValue | None:
    """Match None in one call and a tensor in another."""
    assumed: list[str] = []
    made: list[str] = []
    for text in (expected, actual):
        tensor = parse_tensor(text)
        if text in ("torch.Tensor", "torch.nn.parameter.Parameter"):
            tensor = DEFAULT_TENSOR
            assumed.append(SHAPE_ASSUMED)
        made.append("None" if text in ("None", "NoneType") else tensor or "")
    if "" in made or made.count("None") != 1:
        return None
    use = ("if {value} is None:", "    return {x} + 1", "return {value} + 1")
    return ChangedValue(made[0], made[1], use, assumed=tuple(assumed))


def _match_lengths(expected: str, actual: str) -> ChangedValue | None:
    made: list[str] = []
    for counted in map(_COUNTED.match, (expected, actual)):
        if counted is None:
            return None
        numbers, is_dict = range(int(counted["number"])), counted["noun"].startswith("key")
        made.append(str({f"key {n}": n for n in numbers} if is_dict else list(numbers)))
    assumed = "what the container holds was not recorded: numbers are assumed"
    return ChangedValue(made[0], made[1], ("return {x} + len({value})",), assumed=(assumed,))


def _match_members(expected: str, actual: str) -> ChangedValue | None:
    before, after = parse_member(expected), parse_member(actual)
    if before is None or after is None or before[0] != after[0]:
        return None
    key = before[0]
    use = (f"if {key} in {{value}}:", "    return {x} + 1", "return {x} - 1")
    texts = [f"{{{key}: 1}}" if there else "{}" for _, there in (before, after)]
    return ChangedValue(texts[0], texts[1], use, assumed=("the value under the key is assumed",))


def _match_enum_member(actual: str) -> ChangedValue | None:
    """Match a member of an enum: torch guards those by identity, without the one it expected."""
    match = _ENUM.match(actual)
    if match is None or any(map(keyword.iskeyword, match.groups())):
        return None
    name, member = match["type"], match["member"]
    if name in RESERVED or member.startswith(("_", "EXPECTED")):
        return None
    classes = (f"class {name}(enum.Enum):", "    EXPECTED = 1", f"    {member} = 2")
    use = (f"if {{value}} is {name}.EXPECTED:", "    return {x} + 1", "return {x} - 1")
    assumed = "which member was expected was not recorded: EXPECTED stands for it"
    return ChangedValue(f"{name}.EXPECTED", actual, use, classes, (assumed,))


def _match_dtypes(expected: str, actual: str) -> ChangedValue | None:
    """Match a dtype as a value."""
    before, after = parse_dtype(expected), parse_dtype(actual)
    if before is None or after is None:
        return None
    return ChangedValue(f"torch.{before}", f"torch.{after}", ("return {x}.to({value}) + 1",))


_Matcher = Callable[[str, str], ChangedValue | None]
_BY_TEXT: tuple[_Matcher, ...] = (
    _match_shapes,
    _match_literals,
    _match_optional,
    _match_lengths,
    _match_members,
    _match_dtypes,
)


# --- tensors whose metadata changed, and functions -------------------------------------------


def _build_metadata_change(kind: str | None, expected: str, actual: str) -> ChangedValue:
    use = ("return {value} + 1",)
    if kind == "dtype":
        before, after = parse_dtype(expected), parse_dtype(actual)
        if before and after:
            made = [build_ones([2, 4], name) for name in (before, after)]
            return ChangedValue(made[0], made[1], use, assumed=(SHAPE_ASSUMED,))
    if kind == "rank":
        change = _match_shapes(expected, actual)
        if change is not None:
            return change
    if kind == "requires_grad" and actual.startswith(("requires_grad=", "True", "False")):
        grad = "torch.ones([2, 4], requires_grad=True)"
        now = actual.endswith("True")
        made = [DEFAULT_TENSOR, grad] if now else [grad, DEFAULT_TENSOR]
        return ChangedValue(made[0], made[1], use, assumed=(SHAPE_ASSUMED, DTYPE_ASSUMED))
    if kind == "stride":
        before, after = (_build_strided(text) for text in (expected, actual))
        if before and after:
            assumed = "sizes were not recorded: 2 is assumed in each dimension"
            return ChangedValue(before, after, use, assumed=(assumed, DTYPE_ASSUMED))
    which = f"a change of kind {kind or 'unknown'} of a tensor"
    raise ReproImpossible(f"{which} has no small program in general")


def _build_strided(text: str) -> str | None:
    strides = parse_shape(text.removeprefix("stride "))
    if not strides:
        return None
    build_ones([sum(strides) + 1])  # the memory behind it
    return f"torch.empty_strided({[2] * len(strides)}, {strides}).fill_(1.0)"


# --- values as a receipt shows them, parsed to expressions --------------------------------------


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


def parse_member(text: str) -> tuple[str, bool] | None:
    """Parse "'k' absent" to the key as a literal, and whether it is there."""
    match = _MEMBER.match(text)
    return (match["key"], match["state"] == "present") if match else None
