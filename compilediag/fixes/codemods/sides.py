"""The sides of a branch: what they compute, and whether both can be computed in every call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.purity import Scope, code_of, dotted, is_number
from compilediag.fixes.codemods.tree import Source

_RETURN = matchers.SimpleStatementLine(body=[matchers.Return()])
_ASSIGN = matchers.SimpleStatementLine(
    body=[matchers.Assign(targets=[matchers.AssignTarget(target=matchers.Name())])]
)
_ONLY_FINITE = frozenset(("clamp", "nan_to_num", "zeros_like", "full_like", "ones_like"))


@dataclass(frozen=True, slots=True)
class Side:
    """Assignments, and a value that is returned after them."""

    assigned: tuple[tuple[str, libcst.BaseExpression], ...]
    returned: libcst.BaseExpression | None


def parts(value: libcst.BaseExpression | None) -> list[libcst.BaseExpression]:
    """The values of a tuple, or the one value."""
    if value is None:
        return []
    if isinstance(value, libcst.Tuple):
        return [element.value for element in value.elements]
    return [value]


def side_of(block: libcst.BaseSuite) -> Side:
    """What a block assigns and returns.

    Raises:
        EditImpossible: it does more.
    """
    statements = list(block.body)
    returned: libcst.BaseExpression | None = None
    if statements and matchers.matches(statements[-1], _RETURN):
        last = statements.pop()
        assert isinstance(last, libcst.SimpleStatementLine)
        value = last.body[0]
        assert isinstance(value, libcst.Return)
        if value.value is None:
            raise EditImpossible("one side returns nothing")
        returned = value.value
    assigned: list[tuple[str, libcst.BaseExpression]] = []
    for statement in statements:
        if not matchers.matches(statement, _ASSIGN):
            first = code_of(statement).strip().splitlines()[0]
            raise EditImpossible(f"`{first}` is not an assignment to a variable")
        assert isinstance(statement, libcst.SimpleStatementLine)
        assignment = statement.body[0]
        assert isinstance(assignment, libcst.Assign)
        target = assignment.targets[0].target
        assert isinstance(target, libcst.Name)
        assigned.append((target.value, assignment.value))
    return Side(tuple(assigned), returned)


def following_return(source: Source, node: libcst.If) -> libcst.SimpleStatementLine | None:
    """The `return` right after a branch, in the same block."""
    block = source.parent(node)
    if not isinstance(block, libcst.IndentedBlock):
        return None
    after = block.body[list(block.body).index(node) + 1 :]
    if not after or not matchers.matches(after[0], _RETURN):
        return None
    following = after[0]
    assert isinstance(following, libcst.SimpleStatementLine)
    value = following.body[0]
    return following if isinstance(value, libcst.Return) and value.value is not None else None


def function_around(source: Source, node: libcst.CSTNode) -> libcst.FunctionDef:
    """The function that a branch stands in."""
    function = next(source.around(node, libcst.FunctionDef), None)
    if function is None:
        raise EditImpossible("the branch is not inside a function")
    return function


def require_condition(scope: Scope, test: libcst.BaseExpression) -> None:
    """Raises EditImpossible where a condition is none of one tensor."""
    if isinstance(test, (libcst.BooleanOperation, libcst.NamedExpr)):
        raise EditImpossible(f"`{code_of(test)}` is more than one condition")
    replace(scope, raises_anyway=True).require_pure(test)


def require_side(
    scope: Scope,
    function: libcst.FunctionDef,
    node: libcst.CSTNode,
    value: libcst.BaseExpression,
    test: libcst.BaseExpression,
) -> None:
    """Raises where a side cannot be computed when it is not taken."""
    scope.require_pure(value)
    if isinstance(value, (libcst.SimpleString, libcst.List, libcst.Tuple)) or (
        isinstance(value, libcst.Name) and value.value in ("None", "True", "False")
    ):
        raise EditImpossible(f"`{code_of(value)}` is not a number or tensor")
    source = scope.source
    if scope.is_finiteness_test(test):
        calls = {scope.torch_function(call) for call in source.below(value, libcst.Call)}
        if calls - _ONLY_FINITE or _has_operation(source, value):
            why = "would be computed with what is not finite, and its gradient is not, then"
            raise EditImpossible(f"`{code_of(value)}` {why}")
    for attribute in source.below(value, libcst.Attribute):
        owner = attribute.value
        if isinstance(owner, libcst.Name) and owner.value == "self":
            _require_no_parameter(source, function, node, attribute)


def _has_operation(source: Source, value: libcst.BaseExpression) -> bool:
    found = source.below(value, libcst.BinaryOperation)
    return any(not is_number(each) for each in found)


def _require_no_parameter(
    source: Source, function: libcst.FunctionDef, node: libcst.CSTNode, attribute: libcst.Attribute
) -> None:
    """A parameter that only one side reads has the gradient None where it is not taken, and 0 with
    `torch.where`: optimizers treat them differently."""
    name = attribute.attr.value
    inside = {id(each) for each in source.below(node, libcst.Attribute)}
    everywhere = source.below(function, libcst.Attribute)
    if any(each.deep_equals(attribute) and id(each) not in inside for each in everywhere):
        return
    owner = next(source.around(function, libcst.ClassDef), None)
    assigned = [
        each.value
        for each in (source.below(owner, libcst.Assign) if owner is not None else ())
        if any(_is_own(target.target, name) for target in each.targets)
    ]
    buffers = [
        call
        for call in (source.below(owner, libcst.Call) if owner is not None else ())
        if matchers.matches(
            call, matchers.Call(func=matchers.Attribute(attr=matchers.Name("register_buffer")))
        )
        and code_of(call.args[0].value).strip("'\"") == name
    ]
    if buffers or (assigned and all(map(is_number, assigned))):
        return
    raise EditImpossible(f"`self.{name}` may be a parameter that only one side needs")


def _is_own(target: libcst.BaseExpression, name: str) -> bool:
    return dotted(target) == f"self.{name}"


def require_exact(then: libcst.BaseExpression, other: libcst.BaseExpression) -> None:
    """Two numbers become a tensor of 32 bits: they must be the same there."""
    for value in (then, other):
        text = code_of(value)
        if is_number(then) and is_number(other):
            number = float(text.replace("_", "").replace(" ", ""))
            if number * 2**20 != int(number * 2**20) or abs(number) > 2**24:
                raise EditImpossible(f"{text} is a different number in 32 bits")


def as_boolean(scope: Scope, test: libcst.BaseExpression) -> str:
    """A condition as text that gives a tensor of truth values."""
    text = code_of(test)
    if scope.is_boolean(test):
        return text
    simple = isinstance(test, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript))
    return f"{text}.bool()" if simple or test.lpar else f"({text}).bool()"
