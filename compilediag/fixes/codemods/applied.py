"""`Tensor.apply_` with a function that returns one expression of a number: the same by operations
of tensors, in float64, as Python computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import parameters_of
from compilediag.fixes.codemods.purity import code_of, is_nonzero_number, is_number
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_BY_METHOD = {"int": "trunc", "abs": "abs", "float": "double"}
_OPERATORS = (libcst.Add, libcst.Subtract, libcst.Multiply)
_ONE_VALUE = 1


def applied(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "applied": `values.apply_(function)` in the line becomes `values.copy_(…)`, where the
    function of the file returns one sum or product of its number, by `int` or `abs`."""
    calls = [
        each
        for each in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(each)
        and isinstance(each.func, libcst.Attribute)
        and each.func.attr.value == "apply_"
    ]
    if len(calls) != 1:
        raise EditImpossible(f"line {edit.line} does not have exactly one call of `apply_`")
    call = calls[0]
    tensor = libcst.ensure_type(call.func, libcst.Attribute).value
    given = call.args[0].value if len(call.args) == _ONE_VALUE else None
    if not isinstance(tensor, libcst.Name) or given is None:
        raise EditImpossible("`apply_` is not called on a variable, with one function")
    parameter, returned = _function(source, given)
    text = _as_tensor(returned, parameter, f"{tensor.value}.double()")
    yield Replacement(call, _Made(f"{tensor.value}.copy_({text})"))


def _function(source: Source, given: libcst.BaseExpression) -> tuple[str, libcst.BaseExpression]:
    """The parameter and the one expression that it returns."""
    if isinstance(given, libcst.Lambda):
        names, value = parameters_of(given), given.body
    else:
        found = [
            each
            for each in source.module.body
            if isinstance(each, libcst.FunctionDef) and each.name.value == code_of(given)
        ]
        lines = list(found[0].body.body) if len(found) == 1 and not found[0].decorators else []
        line = lines[0] if len(lines) == 1 else None
        small = line.body[0] if isinstance(line, libcst.SimpleStatementLine) else line
        if not isinstance(small, libcst.Return) or small.value is None:
            raise EditImpossible(f"`{code_of(given)}` does more than return a number")
        names, value = parameters_of(found[0]), small.value
    if len(names) != _ONE_VALUE:
        raise EditImpossible(f"`{code_of(given)}` takes more than one number")
    return names.pop(), value


def _as_tensor(node: libcst.BaseExpression, parameter: str, tensor: str) -> str:
    bare = node.with_changes(lpar=(), rpar=())
    if isinstance(bare, libcst.Name) and bare.value == parameter:
        return tensor
    if is_number(bare):
        return code_of(bare)
    if isinstance(bare, libcst.BinaryOperation):
        divided = isinstance(bare.operator, libcst.Divide) and is_nonzero_number(bare.right)
        if isinstance(bare.operator, _OPERATORS) or divided:
            left, right = (_as_tensor(each, parameter, tensor) for each in (bare.left, bare.right))
            return f"({left}{code_of(bare.operator)}{right})"
    if isinstance(bare, libcst.Call) and len(bare.args) == _ONE_VALUE:
        method = _BY_METHOD.get(code_of(bare.func))
        inner = _as_tensor(bare.args[0].value, parameter, tensor)
        if method is not None and tensor in inner:
            return f"{inner}.{method}()"
    raise EditImpossible(f"`{code_of(node)}` has no operation of tensors that is known")


@dataclass(frozen=True)
class _Made:
    code: str

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code)
