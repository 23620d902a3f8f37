"""Sides of a choice that is made by `torch.where`: a side that is not taken gives its operands no
gradient, and 0 times what is not finite would be nan. Operands of divisions, roots and the like are
1 there."""

from __future__ import annotations

from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.purity import (
    FINITE_AT_ONE,
    Scope,
    code_of,
    is_nonzero_number,
    is_number,
)


@dataclass(frozen=True, slots=True)
class Condition:
    """What decides, as text, and how it reads where it is true and where it is false."""

    scope: Scope
    text: str
    repeated: bool
    """It may stand there more than once."""


def needs_guard(scope: Scope, value: libcst.BaseExpression) -> bool:
    """Whether a side may be not finite where it is not taken."""
    condition = Condition(scope, "c", repeated=True)
    return guarded(condition, value, taken=True) != code_of(value)


def guarded(condition: Condition, value: libcst.BaseExpression, *, taken: bool) -> str:
    """A side, with operands of 1 where it is not taken and could be not finite."""
    new = value.visit(_Guard(condition, taken=taken))
    assert isinstance(new, libcst.BaseExpression)
    return code_of(new)


def _is_count(exponent: libcst.BaseExpression) -> bool:
    return isinstance(exponent, libcst.Integer) and exponent.evaluated_value > 0


class _Guard(libcst.CSTTransformer):
    def __init__(self, condition: Condition, *, taken: bool) -> None:
        super().__init__()
        self._condition = condition
        self._taken = taken

    def _one_unless_taken(self, operand: libcst.BaseExpression) -> libcst.BaseExpression:
        text, bare = self._condition.text, code_of(operand.with_changes(lpar=(), rpar=()))
        pair = f"{bare}, 1.0" if self._taken else f"1.0, {bare}"
        return libcst.parse_expression(f"torch.where({text}, {pair})")

    def leave_BinaryOperation(  # noqa: N802 -- libcst's name
        self, original_node: libcst.BinaryOperation, updated_node: libcst.BinaryOperation
    ) -> libcst.BaseExpression:
        left, right = original_node.left, original_node.right
        if isinstance(original_node.operator, libcst.Divide) and not is_nonzero_number(right):
            return updated_node.with_changes(right=self._one_unless_taken(updated_node.right))
        if isinstance(original_node.operator, libcst.Power):
            if _is_count(right):
                return updated_node
            if is_number(left):
                return updated_node.with_changes(right=self._one_unless_taken(updated_node.right))
            return updated_node.with_changes(left=self._one_unless_taken(updated_node.left))
        return updated_node

    def leave_Call(  # noqa: N802 -- libcst's name
        self, original_node: libcst.Call, updated_node: libcst.Call
    ) -> libcst.BaseExpression:
        scope = self._condition.scope
        name = scope.torch_function(original_node)
        if name not in FINITE_AT_ONE:
            return updated_node
        if name == "pow" and _is_count(original_node.args[-1].value):
            return updated_node
        if name in ("pow", "div"):
            raise EditImpossible(f"`{code_of(original_node)}` may not be finite")
        if scope.is_method(original_node):
            function = updated_node.func
            assert isinstance(function, libcst.Attribute), "a method"
            operand = self._one_unless_taken(function.value)
            return updated_node.with_changes(func=function.with_changes(value=operand))
        if not updated_node.args:
            return updated_node
        first = updated_node.args[0]
        new = first.with_changes(value=self._one_unless_taken(first.value))
        return updated_node.with_changes(args=[new, *updated_node.args[1:]])
