"""The line of the user's code that limits a dynamic size, and how: a branch, a reshape, a loop."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from compilediag.timeline.ownership import classify_ownership
from compilediag_harness.wire import Location, SizeGuard

How = Literal[
    "assertion", "branch", "check", "loop", "number", "operation", "match", "reshape", "backend",
    "unknown",
]  # fmt: skip
"""What needed the value: an `assert`, a branch, `torch._check`, a loop or the unpacking of a
tensor, a Python number (text, a key), an operator that takes it as a number, another tensor of that
size, a reshape to given sizes, or torch's backend after the code was traced."""

_LOCAL = re.compile(r"L\[\s*['\"](\w+)['\"]\s*\]")
SIZE = re.compile(r"[\w.\[\]'\"]+\.size\(\)\[\d+\]")
_RESHAPES = frozenset(
    (
        *("_reshape_view_helper", "_reshape_view_helper_core_alg", "_view_meta"),
        *("_view_unbacked_meta", "expand", "_expand_meta"),
    )
)
_RESHAPING = re.compile(r"\b(?:view|reshape|unflatten|expand|broadcast_to)\(")
_LOOPS = frozenset(("call_range", "unpack_var_sequence", "unpack_iterable", "call_iter"))
_MATCHES = frozenset(("_broadcast_shapes", "infer_size", "_cat_meta"))
"""What compares the sizes of the tensors that an operator takes."""
_OPERATIONS = frozenset(("run_node", "__torch_dispatch__", "_dispatch_impl"))


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A line that limits which sizes a graph is valid for."""

    how: How
    kind: str
    """"constant", "divisibility", "range" or "equal" (of two sizes)."""
    place: Location | None
    """The user's line; None where torch needed the value after the code was traced."""
    text: str
    """The source of that line."""
    inside: Location | None
    """The line of a package or of torch that it called, where that one needed the value."""
    condition: str
    """With sizes in place of torch's symbols: "Eq(x.size()[0], 4)"."""


def simplify_source(source: str) -> str:
    """Simplify a source to what the user would write: "L['x'].size()[0]" to "x.size()[0]"."""
    return _LOCAL.sub(r"\1", source)


def locate_size_limit(guard: SizeGuard, user_roots: Sequence[str]) -> SizeLimit:
    """Locate the line that a condition comes from: the innermost of the user's own, else of all."""
    own = [at for at in guard.stack if classify_ownership(at.file, user_roots) == "user"]
    innermost = guard.stack[-1] if guard.stack else None
    place = own[-1] if own else innermost
    lines = zip(guard.stack, guard.texts, strict=False)
    condition = guard.expression
    for symbol, source in reversed(guard.sizes):
        size = simplify_source(source)
        condition = re.sub(rf"\b{re.escape(symbol)}\b", size.replace("\\", ""), condition)
    return SizeLimit(
        how=_infer_how(guard, guard.texts[-1] if guard.texts else ""),
        kind=_classify_guard(guard),
        place=place,
        text=next((text for at, text in lines if at == place), ""),
        inside=innermost if innermost != place else None,
        condition=condition,
    )


def find_fixing_guard(guards: Iterable[SizeGuard], size: str) -> SizeGuard | None:
    """Find the condition that made a size a constant, or a number that is computed from it alone;
    None without one."""

    def is_fixing(guard: SizeGuard) -> bool:
        computed = guard.expression.startswith("Eq(") and _classify_guard(guard) == "constant"
        names = guard.fixed or (name for _, name in guard.sizes if computed)
        return size in map(simplify_source, names)

    return next(filter(is_fixing, guards), None)


def list_guards_on(guards: Iterable[SizeGuard], size: str) -> list[SizeGuard]:
    """List the conditions that a size is in."""
    return [guard for guard in guards if size in (simplify_source(name) for _, name in guard.sizes)]


def find_excluding_guard(guards: Iterable[SizeGuard], size: str, value: int) -> SizeGuard | None:
    """Find the first condition on one size alone that does not hold for a value."""
    for guard in list_guards_on(guards, size):
        symbols = {symbol for symbol, _ in guard.sizes}
        if len(symbols) == 1 and holds(guard.expression, {symbols.pop(): value}) is False:
            return guard
    return None


def find_guard_behind(
    guards: Iterable[SizeGuard], text: str, place: Location | None
) -> SizeGuard | None:
    """Find the condition that a printed guard on sizes comes from: of its sizes, at its line. None
    where several would do."""
    named = set(map(simplify_source, SIZE.findall(simplify_source(text))))
    candidates = [
        guard
        for guard in guards
        if named and named == {simplify_source(name) for _, name in guard.sizes}
    ] or [guard for guard in guards if named & {simplify_source(name) for _, name in guard.sizes}]
    if place is not None and any(_is_at(guard, place) for guard in candidates):
        candidates = [guard for guard in candidates if _is_at(guard, place)]
    if (number := re.search(r"== (\d+)\W*$", text)) is not None:
        is_same = re.compile(rf"Eq\(.*, {number[1]}\)").fullmatch
        candidates = [its for its in candidates if is_same(its.expression)] or candidates
    lines = {(guard.stack, _classify_guard(guard)) for guard in candidates}
    return candidates[0] if len(lines) == 1 else None


def _is_at(guard: SizeGuard, place: Location) -> bool:
    """True if some line of the traced stack is the place, whose path torch may have shortened."""
    return any(
        at.line == place.line
        and at.function == place.function
        and at.file.endswith(place.file.rpartition("/")[2])
        for at in guard.stack
    )


def _classify_guard(guard: SizeGuard) -> str:
    expression = guard.expression
    if guard.fixed:
        return "constant"
    if re.search(r"\bMod\(|%|\bPythonMod\(", expression):
        return "divisibility"
    several = len({symbol for symbol, _ in guard.sizes}) > 1
    equal = several and expression.startswith("Eq(")
    if re.search(r"[<>]" if equal else r"[<>]|//", expression):
        return "range"
    return "equal" if several else "constant"


def _infer_how(guard: SizeGuard, text: str) -> How:
    calls = guard.torch_calls
    if not guard.stack:
        return "backend"
    # The call just inside the traced code is one of `torch._check` and its like.
    outermost = calls[-2:-1] if calls[-1:] == ("run_node",) else calls[-1:]
    if outermost and outermost[0].startswith("_check"):
        return "check"
    if "inner" in calls[:2] or calls[:1] == ("__bool__",):
        # What an assertion calls may decide it, as `all` does: its other side raises.
        return "assertion" if any(t.startswith("assert") for t in guard.texts) else "branch"
    if _LOOPS.intersection(calls) or (calls[:1] == ("__index__",) and "range(" in text):
        return "loop"
    if _RESHAPES.intersection(calls):  # which many operations use inside
        return "reshape" if _RESHAPING.search(text) else "unknown"
    if _MATCHES.intersection(calls):
        return "match"
    if _OPERATIONS.intersection(calls):
        return "operation"
    if "evaluate_expr" in calls or calls[:1] in (("__int__",), ("__index__",), ("__float__",)):
        return "number"
    return "unknown"


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "NotEq": operator.ne,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "FloorDiv": int.__floordiv__,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
}
"""By Python's name in the syntax tree, or sympy's of a function."""


_parse = functools.lru_cache(1024)(functools.partial(ast.parse, mode="eval"))


def holds(expression: str, values: Mapping[str, int]) -> bool | None:
    """True if a condition as sympy or torch's guards print it holds for these values; None if it
    cannot be read."""
    try:
        return bool(_evaluate(_parse(expression).body, values))
    except (SyntaxError, ValueError, KeyError, TypeError, ZeroDivisionError, RecursionError):
        return None


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op).__name__](_evaluate(left, values), _evaluate(right, values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [_evaluate(part, values) for part in (left, *others)]
            compared = zip(ops, pairwise(numbers), strict=True)
            return all(_OPERATORS[type(op).__name__](*pair) for op, pair in compared)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            one, other = (_evaluate(argument, values) for argument in arguments)
            return _OPERATORS[name](one, other)
        case _:
            raise ValueError(ast.dump(node))
