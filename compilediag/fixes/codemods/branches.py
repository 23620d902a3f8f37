"""Branches on a tensor's value, as operations: `torch.where` for a choice between values. Both
sides are computed then, so both must only compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst
from libcst import matchers

from compilediag.fixes.codemods.chains import chosen_chain, is_chain
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.errors import RAISE, assert_async
from compilediag.fixes.codemods.guarded import Condition, guarded, needs_guard
from compilediag.fixes.codemods.names import (
    fresh_name,
    is_bound_before,
    parameters_of,
    require_not_shared,
    written_in,
)
from compilediag.fixes.codemods.placed import Once, conditional_at, replaced, with_comments
from compilediag.fixes.codemods.purity import Scope, code_of, is_number, scope_of
from compilediag.fixes.codemods.reads import is_arithmetic, require_arithmetic_only
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


def branch(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "branch": "assert_async" where only an error is raised, else "choose". `code`
    has the lines of all branches that the tensors of a chain decide."""
    branches = source.below(source.module, libcst.If)
    raising = any(
        edit.line in source.lines_of(each.test) and matchers.matches(each.body.body[-1], RAISE)
        for each in branches
    )
    asserted = any(
        edit.line in source.lines_of(each) for each in source.below(source.module, libcst.Assert)
    )
    yield from (assert_async if raising or asserted else choose)(source, edit)


def choose(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "choose": a branch on a tensor's value, between values, becomes `torch.where`."""
    yield from chosen(source, conditional_at(source, edit.line), [int(line) for line in edit.code])


def chosen(
    source: Source, node: libcst.If | libcst.IfExp, lines: Sequence[int] = ()
) -> Iterator[EditOfTree]:
    """A branch as `torch.where`; `lines` are those of the tests of a chain that are tensors."""
    if isinstance(node, libcst.IfExp):
        yield chosen_expression(source, node)
    elif is_chain(source, node):
        yield from chosen_chain(source, node, lines)
    else:
        yield from _chosen_statement(source, node)


def decided_by(source: Source, value: libcst.CSTNode) -> libcst.If | libcst.IfExp | None:
    """The branch in whose test a value stands; None for other places."""
    inner = value
    for each in source.around(value, libcst.CSTNode):
        if isinstance(each, (libcst.If, libcst.IfExp)) and each.test is inner:
            return each
        inner = each
    return None


def chosen_expression(source: Source, node: libcst.IfExp) -> EditOfTree:
    """`torch.where` in place of `x if condition else y`."""
    scope = scope_of(source)
    function = function_around(source, node)
    test, then, other = node.test, node.body, node.orelse
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        test, then, other = test.expression, other, then
    require_condition(scope, test)
    for side in (then, other):
        require_side(scope, function, node, side, test)
    require_exact(then, other)
    if is_number(then) and is_number(other):
        require_arithmetic(scope, function, node)
    text = as_boolean(scope, test)
    chosen = _where(Condition(scope, text, repeated=True), then, other)
    return Replacement(node, Once(node, libcst.parse_expression(chosen)))


def require_arithmetic(
    scope: Scope, function: libcst.FunctionDef, node: libcst.BaseExpression
) -> None:
    """Raises where a number may be used for what a tensor is not."""
    statement = scope.source.parent(node)
    target = statement.targets[0].target if isinstance(statement, libcst.Assign) else None
    if isinstance(target, libcst.Name):
        require_arithmetic_only(scope.source, scope, function, target.value)
    elif not is_arithmetic(scope.source, scope, node):
        raise EditImpossible(f"`{code_of(node)}` is a number that may not be a tensor there")


def _chosen_statement(source: Source, node: libcst.If) -> Iterator[EditOfTree]:
    scope, function = scope_of(source), function_around(source, node)
    outer: libcst.BaseExpression | None = None
    test = node.test
    if isinstance(test, libcst.BooleanOperation):
        if not isinstance(test.operator, libcst.And) or node.orelse is not None:
            raise EditImpossible(f"`{code_of(test)}` is more than one condition")
        outer, test = test.left, test.right
    following = following_return(source, node) if outer is None else None
    then = side_of(node.body)
    other = _side_otherwise(node)
    if then.returned is not None and other.returned is None and following is not None:
        if other.assigned:
            raise EditImpossible("one side returns and the other assigns")
        assert isinstance(following.body[0], libcst.Return), "a return"
        other = Side((), following.body[0].value)
    else:
        following = None
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        test, then, other = test.expression, other, then
    require_condition(scope, test)
    for side in (then, other):
        for value in (*(value for _, value in side.assigned), *parts(side.returned)):
            require_side(scope, function, node, value, test)
    lines = _converted(source, function, node, scope, test, then, other)
    if outer is not None:
        block = libcst.IndentedBlock([libcst.parse_statement(line) for line in lines])
        kept = libcst.If(outer, block, leading_lines=node.leading_lines)
        yield Replacement(node, Once(node, with_comments(node, [kept])))
        return
    yield replaced(node, lines)
    if following is not None:
        yield Replacement(following, Once(following, libcst.RemoveFromParent()))


def _converted(
    source: Source,
    function: libcst.FunctionDef,
    node: libcst.If,
    scope: Scope,
    test: libcst.BaseExpression,
    then: Side,
    other: Side,
) -> list[str]:
    """The statements that stand in place of a branch."""
    if (then.returned is None) != (other.returned is None):
        raise EditImpossible("only one side returns")
    values = [value for side in (then, other) for _, value in side.assigned]
    values += [value for side in (then, other) for value in parts(side.returned)]
    text = as_boolean(scope, test)
    written = {name for side in (then, other) for name, _ in side.assigned}
    hoisted = not isinstance(test, libcst.Name) or test.value in written
    places = len(then.assigned) + len(other.assigned) + len(parts(then.returned))
    if changed := written & set(written_in(source, function)):
        raise EditImpossible(f"`{min(changed)}` is written into: it may be another variable's too")
    lines: list[str] = []
    if hoisted and (places > 1 or any(needs_guard(scope, value) for value in values)):
        name = fresh_name(function, "condition")
        lines.append(f"{name} = {text}")
        text = name
    condition = Condition(scope, text, repeated=False)
    lines += _assignments(source, function, node, condition, then, other)
    if then.returned is not None and other.returned is not None:
        lines.append(_return(condition, then.returned, other.returned))
    return lines


def _assignments(
    source: Source,
    function: libcst.FunctionDef,
    node: libcst.If,
    condition: Condition,
    then: Side,
    other: Side,
) -> Iterator[str]:
    first, second = [name for name, _ in then.assigned], [name for name, _ in other.assigned]
    if first == second and len(set(first)) == len(first):
        for (name, value), (_, instead) in zip(then.assigned, other.assigned, strict=True):
            require_not_shared(function, name)
            require_exact(value, instead)
            if is_number(value) and is_number(instead):
                require_arithmetic_only(source, condition.scope, function, name)
            yield f"{name} = {_where(condition, value, instead)}"
        return
    for side, taken in ((then, True), (other, False)):
        for name, value in side.assigned:
            if is_number(value):
                require_arithmetic_only(source, condition.scope, function, name)
            require_not_shared(function, name)
            if _is_temporary(source, function, node, name):
                yield f"{name} = {guarded(condition, value, taken=taken)}"
                continue
            if not is_bound_before(source, function, node, name):
                raise EditImpossible(f"`{name}` may have no value before the branch")
            old = libcst.Name(name)
            pair = (value, old) if taken else (old, value)
            yield f"{name} = {_where(condition, *pair)}"


def _is_temporary(source: Source, function: libcst.FunctionDef, node: libcst.If, name: str) -> bool:
    """Whether a name stands nowhere but in the branch."""
    if name in parameters_of(function):
        return False
    inside = sum(each.value == name for each in source.below(node, libcst.Name))
    return inside == sum(each.value == name for each in source.below(function, libcst.Name))


def _return(condition: Condition, then: libcst.BaseExpression, other: libcst.BaseExpression) -> str:
    pairs = list(zip(parts(then), parts(other), strict=False))
    if len(parts(then)) != len(parts(other)):
        raise EditImpossible("the sides return different numbers of values")
    if isinstance(then, libcst.Tuple) != isinstance(other, libcst.Tuple):
        raise EditImpossible("only one side returns a tuple")
    if any(is_number(a) and is_number(b) for a, b in pairs):
        raise EditImpossible("both sides return a number")
    chosen = ", ".join(
        code_of(a) if a.deep_equals(b) else _where(condition, a, b) for a, b in pairs
    )
    return f"return {chosen}{',' * (isinstance(then, libcst.Tuple) and len(pairs) == 1)}"


def _side_otherwise(node: libcst.If) -> Side:
    if node.orelse is None:
        return Side((), None)
    assert isinstance(node.orelse, libcst.Else), "no chain"
    return side_of(node.orelse.body)


def _where(condition: Condition, then: libcst.BaseExpression, other: libcst.BaseExpression) -> str:
    chosen = guarded(condition, then, taken=True), guarded(condition, other, taken=False)
    return f"torch.where({condition.text}, {', '.join(chosen)})"
