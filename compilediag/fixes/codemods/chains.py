"""A chain of `elif` whose conditions are tensors: one `torch.where` in another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.guarded import needs_guard
from compilediag.fixes.codemods.names import (
    fresh_name,
    is_bound_before,
    require_not_shared,
    written_in,
)
from compilediag.fixes.codemods.placed import Once, replaced, with_comments
from compilediag.fixes.codemods.purity import Scope, code_of, is_number, scope_of
from compilediag.fixes.codemods.reads import require_arithmetic_only
from compilediag.fixes.codemods.sides import (
    Side,
    as_boolean,
    following_return,
    function_around,
    parts,
    require_condition,
    require_exact,
    require_side,
    side_of,
)
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source


@dataclass(frozen=True, slots=True)
class _Chain:
    tests: tuple[libcst.BaseExpression, ...]
    sides: tuple[Side, ...]
    """One more than tests where nothing is left open: the last is taken where none is true."""


def is_chain(source: Source, node: libcst.If) -> bool:
    """Whether a branch has an `elif`, or is one."""
    return isinstance(node.orelse, libcst.If) or isinstance(source.parent(node), libcst.If)


def chosen_chain(source: Source, node: libcst.If, lines: Sequence[int]) -> Iterator[EditOfTree]:
    """The edit of a chain from the first of its branches that is about a tensor on: those of
    `lines` are."""
    parent = source.parent(node)
    while isinstance(parent, libcst.If) and {*lines} & {*source.lines_of(parent.test)}:
        node, parent = parent, source.parent(parent)
    scope, function = scope_of(source), function_around(source, node)
    tests, sides = _parts_of(node)
    following = None
    if len(sides) == len(tests):
        is_whole = not isinstance(parent, libcst.If)
        following = following_return(source, node) if is_whole and sides[0].returned else None
        last = following.body[0] if following is not None else None
        sides.append(Side((), last.value if isinstance(last, libcst.Return) else None))
    chain = _Chain(tuple(tests), tuple(sides))
    _require(scope, function, node, chain)
    code = _lines(scope, function, node, chain)
    if isinstance(parent, libcst.If):
        block = libcst.IndentedBlock([libcst.parse_statement(line) for line in code])
        (kept,) = with_comments(node, [libcst.Else(block)])
        yield Replacement(node, Once(node, kept, "\n".join(code)))
        return
    yield replaced(node, code)
    if following is not None:
        yield Replacement(following, Once(following, libcst.RemoveFromParent(), "removed"))


def _parts_of(node: libcst.If) -> tuple[list[libcst.BaseExpression], list[Side]]:
    tests, sides = [node.test], [side_of(node.body)]
    orelse = node.orelse
    while isinstance(orelse, libcst.If):
        tests.append(orelse.test)
        sides.append(side_of(orelse.body))
        orelse = orelse.orelse
    if orelse is not None:
        sides.append(side_of(orelse.body))
    return tests, sides


def _require(scope: Scope, function: libcst.FunctionDef, node: libcst.If, chain: _Chain) -> None:
    """Raises EditImpossible where a side must not be computed when it is not taken."""
    for test in chain.tests:
        require_condition(scope, _positive(test)[0])
    for index, side in enumerate(chain.sides):
        for value in (*(value for _, value in side.assigned), *parts(side.returned)):
            require_side(scope, function, node, value, _positive(chain.tests[0])[0])
            if any(scope.is_finiteness_test(test) for test in chain.tests[: index + 1]):
                raise EditImpossible("a chain of conditions is about what is not finite")
            if needs_guard(scope, value):
                raise EditImpossible(f"`{code_of(value)}` may not be finite where it is not taken")
    first, *others = chain.sides
    names = [name for name, _ in first.assigned]
    for side in others:
        same = [name for name, _ in side.assigned] == names
        open_end = side is chain.sides[-1] and not side.assigned
        if not (same or open_end) or len({*names}) != len(names):
            raise EditImpossible("the sides of the chain assign different variables")
        if len(parts(side.returned)) != len(parts(first.returned)) or isinstance(
            side.returned, libcst.Tuple
        ) != isinstance(first.returned, libcst.Tuple):
            raise EditImpossible("the sides of the chain return different values")
    if changed := {*names} & {*written_in(scope.source, function)}:
        raise EditImpossible(f"`{min(changed)}` is written into: it may be another variable's too")


def _positive(test: libcst.BaseExpression) -> tuple[libcst.BaseExpression, bool]:
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        return test.expression, False
    return test, True


def _lines(scope: Scope, function: libcst.FunctionDef, node: libcst.If, chain: _Chain) -> list[str]:
    names = [name for name, _ in chain.sides[0].assigned]
    count = len(names) + len(parts(chain.sides[0].returned))
    if not count:
        raise EditImpossible("the chain chooses between no values")
    code, tests = list[str](), list[str]()
    for at, test in enumerate(chain.tests, 1):
        positive, taken = _positive(test)
        text = as_boolean(scope, positive)
        text = text if taken else f"torch.logical_not({text})"
        if count > 1 and (not isinstance(test, libcst.Name) or test.value in names):
            name = fresh_name(function, f"condition_{at}")
            code.append(f"{name} = {text}")
            text = name
        tests.append(text)
    for at, name in enumerate(names):
        require_not_shared(function, name)
        values = [side.assigned[at][1] for side in chain.sides if side.assigned]
        if len(values) < len(chain.sides):
            if not is_bound_before(scope.source, function, _head(scope.source, node), name):
                raise EditImpossible(f"`{name}` may have no value before the branch")
            values.append(libcst.Name(name))
        if any(map(is_number, values)):
            require_arithmetic_only(scope.source, scope, function, name)
        code.append(f"{name} = {_nested(tests, values)}")
    returned = [parts(side.returned) for side in chain.sides]
    if returned[0]:
        every = [list(values) for values in zip(*returned, strict=True)]
        if any(all(map(is_number, values)) for values in every):
            raise EditImpossible("all sides return a number")
        chosen = ", ".join(_nested(tests, values) for values in every)
        is_tuple = isinstance(chain.sides[0].returned, libcst.Tuple)
        code.append(f"return {chosen}{',' * (is_tuple and len(every) == 1)}")
    return code


def _head(source: Source, node: libcst.If) -> libcst.If:
    """The first branch of the chain, which is the statement."""
    parent = source.parent(node)
    while isinstance(parent, libcst.If):
        node, parent = parent, source.parent(parent)
    return node


def _nested(tests: Sequence[str], values: Sequence[libcst.BaseExpression]) -> str:
    for one, other in itertools.pairwise(values):
        require_exact(one, other)
    text = code_of(values[-1])
    for test, value in reversed([*zip(tests, values, strict=False)]):
        if code_of(value) != text:
            text = f"torch.where({test}, {code_of(value)}, {text})"
    return text
