"""Elements that a mask selects, of which only a sum or mean is used, or that are written in place:
`torch.where` has a size that is known before the graph runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.purity import (
    ELEMENTWISE,
    FINITE_AT_ONE,
    Scope,
    code_of,
    is_nonzero_number,
    is_number,
    scope_of,
)
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_LOSSES = {"mse_loss": "({0} - {1}).square()", "l1_loss": "({0} - {1}).abs()"}
"""Losses whose default is the mean over all elements."""


def masked(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "masked": the sum or mean over elements that a mask selects, without selecting them; or
    elements that a mask selects, written in place."""
    scope = scope_of(source)
    for kind in (libcst.Assign, libcst.AugAssign):
        for statement in source.below(source.module, kind):
            if edit.line in source.lines_of(statement) and (target := _selected_by(statement)):
                yield _written(scope, statement, target)
                return
    found = [
        (call, reduced)
        for call in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(call) and (reduced := _reduced(scope, call)) is not None
    ]
    if len(found) != 1:
        raise NothingToEdit(
            f"line {edit.line} does not have exactly one sum or mean of masked elements"
        )
    call, (kind, values, texts) = found[0]
    masks = {code_of(_mask_of(each)) for value in values for each in _selections(source, value)}
    if len(masks) != 1 or not all(any(_selections(source, value)) for value in values):
        raise EditImpossible("the elements are not those of one mask")
    for value in values:
        scope.require_pure(_unselected(value))
        _require_elementwise(source, scope, value)
    mask = masks.pop()
    every = [code_of(_unselected(value)) for value in values]
    inner = texts != "{0}"
    whole = texts.format(*(f"({text})" if inner and _is_open(text) else text for text in every))
    total = f"torch.where({mask}, {whole}, 0).sum()"
    selected = f"({mask})" if _is_open(mask) else mask
    text = total if kind == "sum" else f"{total} / {selected}.sum()"
    alone = isinstance(source.parent(call), (libcst.Assign, libcst.Return, libcst.Arg))
    yield Replacement(call, _Kept(call, text if kind == "sum" or alone else f"({text})"))


_IN_PLACE: Mapping[type[libcst.BaseAugOp], str] = {
    libcst.AddAssign: "+",
    libcst.SubtractAssign: "-",
    libcst.MultiplyAssign: "*",
    libcst.DivideAssign: "/",
}


def _selected_by(statement: libcst.Assign | libcst.AugAssign) -> libcst.Subscript | None:
    """What is written into, where that is what a mask selects of a variable."""
    if isinstance(statement, libcst.Assign) and len(statement.targets) != 1:
        return None
    target = (
        statement.targets[0].target if isinstance(statement, libcst.Assign) else statement.target
    )
    if not isinstance(target, libcst.Subscript) or not _is_selection(target):
        return None
    return target if isinstance(target.value, (libcst.Name, libcst.Attribute)) else None


def _written(
    scope: Scope, statement: libcst.Assign | libcst.AugAssign, target: libcst.Subscript
) -> Replacement:
    """The same elements get the same values, by an operation on all of them."""
    source, value = scope.source, statement.value
    mask, whole = code_of(_mask_of(target)), code_of(target.value)
    scope.require_pure(_unselected(target))
    scope.require_pure(_mask_of(target))
    if isinstance(statement, libcst.Assign) and is_number(value):
        return Replacement(statement, _Statement(f"{whole}.masked_fill_({mask}, {code_of(value)})"))
    masks = {code_of(_mask_of(each)) for each in _selections(source, value)}
    needed = isinstance(statement, libcst.Assign)
    if masks - {mask} or (needed and not masks):
        raise EditImpossible("the elements are not those of one mask")
    scope.require_pure(_unselected(value))
    _require_elementwise(source, scope, value)
    text = code_of(_unselected(value))
    if isinstance(statement, libcst.AugAssign):
        sign = _IN_PLACE.get(type(statement.operator))
        if sign is None or (sign == "/" and not is_nonzero_number(value)):
            raise EditImpossible(f"`{code_of(statement)}` may not be finite outside the mask")
        right = f"({text})" if isinstance(value, libcst.BinaryOperation) else text
        text = f"{whole} {sign} {right}"
    return Replacement(
        statement, _Statement(f"{whole}.copy_(torch.where({mask}, {text}, {whole}))")
    )


class _Statement:
    """An expression as a statement."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Statement) and other._code == self._code

    def __hash__(self) -> int:
        return hash(self._code)

    def __call__(self, _: libcst.CSTNode) -> libcst.Expr:
        return libcst.Expr(libcst.parse_expression(self._code))


class _Kept:
    def __init__(self, node: libcst.CSTNode, code: str) -> None:
        self._node = node
        self._code = code

    def __call__(self, updated: libcst.CSTNode) -> libcst.BaseExpression:
        if not updated.deep_equals(self._node):
            raise EditImpossible("one expression would be edited in two ways")
        return libcst.parse_expression(self._code)


def _is_open(text: str) -> bool:
    return not text.replace("_", "").replace(".", "").isalnum()


def _reduced(
    scope: Scope, call: libcst.Call
) -> tuple[str, list[libcst.BaseExpression], str] | None:
    """Either "sum" or "mean", what it is of, and how the values make one; None for another call,
    or one with a dimension or option."""
    name, arguments = scope.torch_function(call), [each.value for each in call.args]
    if any(each.keyword is not None or each.star for each in call.args):
        return None
    found: tuple[str, list[libcst.BaseExpression], str] | None = None
    if name in _LOSSES and len(arguments) == 2 and not scope.is_method(call):
        found = "mean", arguments, _LOSSES[name]
    elif name in ("sum", "mean") and scope.is_method(call) and not arguments:
        assert isinstance(call.func, libcst.Attribute), "a method"
        found = name, [call.func.value], "{0}"
    elif name in ("sum", "mean") and not scope.is_method(call) and len(arguments) == 1:
        found = name, arguments, "{0}"
    if found is None or not any(any(_selections(scope.source, each)) for each in found[1]):
        return None
    return found


def _selections(source: Source, value: libcst.CSTNode) -> Iterator[libcst.Subscript]:
    for each in source.below(value, libcst.Subscript):
        if _is_selection(each):
            yield each


def _is_selection(node: libcst.Subscript) -> bool:
    """`values[mask]`, by a comparison or a variable: what a variable is, a trial shows."""
    index = node.slice[0].slice
    if len(node.slice) != 1 or not isinstance(index, libcst.Index):
        return False
    return isinstance(index.value, (libcst.Name, libcst.Comparison)) and not is_number(index.value)


def _mask_of(node: libcst.Subscript) -> libcst.BaseExpression:
    index = node.slice[0].slice
    assert isinstance(index, libcst.Index), "a selection"
    value = index.value
    return value.with_changes(lpar=(), rpar=())


def _unselected(value: libcst.BaseExpression) -> libcst.BaseExpression:
    new = value.visit(_Unselect())
    assert isinstance(new, libcst.BaseExpression)
    return new.with_changes(lpar=(), rpar=())


class _Unselect(libcst.CSTTransformer):
    def leave_Subscript(  # noqa: N802 -- libcst's name
        self, original_node: libcst.Subscript, updated_node: libcst.Subscript
    ) -> libcst.BaseExpression:
        return updated_node.value if _is_selection(original_node) else updated_node


def _require_elementwise(source: Source, scope: Scope, value: libcst.BaseExpression) -> None:
    """Each element must be computed from those at its own place, and finite: what is not selected
    would be nan in the gradient otherwise."""
    for call in source.below(value, libcst.Call):
        if scope.torch_function(call) not in ELEMENTWISE - FINITE_AT_ONE:
            raise EditImpossible(f"`{code_of(call)}` may not be finite outside the mask")
    for operation in source.below(value, libcst.BinaryOperation):
        elementwise = (libcst.Add, libcst.Subtract, libcst.Multiply)
        power = isinstance(operation.operator, libcst.Power) and is_number(operation.right)
        divided = isinstance(operation.operator, libcst.Divide) and is_number(operation.right)
        if not (isinstance(operation.operator, elementwise) or power or divided):
            raise EditImpossible(f"`{code_of(operation)}` may not be finite outside the mask")
    for node in source.below(value, libcst.Name):
        parent = source.parent(node)
        selected = any(
            True for each in source.around(node, libcst.Subscript) if _is_selection(each)
        )
        named = isinstance(parent, (libcst.Attribute, libcst.Arg))
        if not selected and not named:
            raise EditImpossible(f"`{node.value}` may have another size than what is selected")
