"""Operators of the program's own that torch cannot trace: a kernel of operations of torch is traced
where it is called itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import parameters_of
from compilediag.fixes.codemods.purity import PURE, Scope, code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_IMPL = "torch.library.impl"
_FIRST_NAMED = 2
"""Arguments of `torch.library.impl` before the kernel: the operator and the device."""


def own_kernel(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "own_kernel": the call of the operator `code[0]`, "namespace::name", in the line calls
    its only kernel of the file instead, where that only computes by operations of torch."""
    scope, operator = scope_of(source), edit.code[0]
    kernels = {
        _kernel(statement)
        for statement in source.below(source.module, libcst.SimpleStatementLine)
        if _registers(scope, statement, operator)
    }
    if len(kernels) != 1:
        raise EditImpossible(f"the file does not have exactly one kernel of {operator}")
    kernel = kernels.pop()
    _require_traceable(scope, kernel)
    dotted_name = f"torch.ops.{operator.replace('::', '.')}"
    calls = [
        each
        for each in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(each)
        and scope.imported_name(each.func) in (dotted_name, f"{dotted_name}.default")
    ]
    if len(calls) != 1:
        raise EditImpossible(f"line {edit.line} does not have exactly one call of {dotted_name}")
    if any(kernel in parameters_of(each) for each in source.functions_at(edit.line)):
        raise EditImpossible(f"`{kernel}` is another variable there")
    yield Replacement(calls[0].func, _Name(kernel))


def _registers(scope: Scope, statement: libcst.SimpleStatementLine, operator: str) -> bool:
    small = statement.body[0]
    call = small.value if isinstance(small, libcst.Expr) else None
    if len(statement.body) != 1 or not isinstance(call, libcst.Call):
        return False
    if scope.imported_name(call.func) != _IMPL:
        return False
    name = call.args[0].value if call.args else None
    named = isinstance(name, libcst.SimpleString) and name.evaluated_value == operator
    return named and len(call.args) > _FIRST_NAMED and not any(each.star for each in call.args)


def _kernel(statement: libcst.SimpleStatementLine) -> str:
    small = statement.body[0]
    call = libcst.ensure_type(libcst.ensure_type(small, libcst.Expr).value, libcst.Call)
    return code_of(call.args[_FIRST_NAMED].value)


def _require_traceable(scope: Scope, kernel: str) -> None:
    """It is a function of the file that only computes: shapes follow from shapes then."""
    source = scope.source
    functions = [
        each
        for each in source.module.body
        if isinstance(each, libcst.FunctionDef) and each.name.value == kernel
    ]
    if len(functions) != 1 or functions[0].decorators:
        raise EditImpossible(f"`{kernel}` is not a plain function of the file")
    for statement in functions[0].body.body:
        small = statement.body[0] if isinstance(statement, libcst.SimpleStatementLine) else None
        if isinstance(small, libcst.Expr) and isinstance(small.value, libcst.SimpleString):
            continue
        value = small.value if isinstance(small, (libcst.Assign, libcst.Return)) else None
        if value is None:
            raise EditImpossible(f"`{kernel}` does more than compute: its shapes are not evident")
        scope.require_pure(value)
        for call in source.below(value, libcst.Call):
            if scope.torch_function(call) not in PURE:
                raise EditImpossible(f"the shape of `{code_of(call)}` is not evident")


@dataclass(frozen=True)
class _Name:
    name: str

    def __call__(self, _: libcst.CSTNode) -> libcst.Name:
        return libcst.Name(self.name)
