"""Operators of the program's own that torch cannot trace: a kernel of operations of torch is its
own fake kernel."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.purity import PURE, Scope, code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_IMPL = "torch.library.impl"
_FIRST_NAMED = 2
"""Arguments of `torch.library.impl` before the kernel: the operator and the device."""


def fake_kernel(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "fake_kernel": the kernel of the operator `code[0]`, "namespace::name", is registered as
    its fake kernel too, where it only computes by operations of torch."""
    scope, operator = scope_of(source), edit.code[0]
    found = [
        statement
        for statement in source.module.body
        if isinstance(statement, libcst.SimpleStatementLine)
        and len(statement.body) == 1
        and _registers(scope, statement, operator)
    ]
    if not found:
        raise EditImpossible(f"no statement of the file registers a kernel of {operator}")
    kernels = {_kernel(each) for each in found}
    if len(kernels) != 1:
        raise EditImpossible(f"{operator} has several kernels")
    kernel = kernels.pop()
    _require_traceable(scope, kernel)
    yield Replacement(found[-1], _Registered(f'torch.library.register_fake("{operator}", {kernel})'))


def _registers(scope: Scope, statement: libcst.SimpleStatementLine, operator: str) -> bool:
    small = statement.body[0]
    call = small.value if isinstance(small, libcst.Expr) else None
    if not isinstance(call, libcst.Call) or scope.imported_name(call.func) != _IMPL:
        return False
    name = call.args[0].value if call.args else None
    named = isinstance(name, libcst.SimpleString) and name.evaluated_value == operator
    return named and len(call.args) > _FIRST_NAMED and not any(each.star for each in call.args)


def _kernel(statement: libcst.SimpleStatementLine) -> str:
    small = statement.body[0]
    assert isinstance(small, libcst.Expr) and isinstance(small.value, libcst.Call)
    return code_of(small.value.args[_FIRST_NAMED].value)


def _require_traceable(scope: Scope, kernel: str) -> None:
    """It is a function of the file that only computes: shapes follow from shapes then."""
    source = scope.source
    functions = [
        each
        for each in source.module.body
        if isinstance(each, libcst.FunctionDef) and each.name.value == kernel
    ]
    if len(functions) != 1 or functions[0].decorators:
        raise EditImpossible(f"`{kernel}` is no plain function of the file")
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


class _Registered:
    """Another statement behind one."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __call__(self, node: libcst.SimpleStatementLine) -> libcst.FlattenSentinel:  # pyright: ignore[reportMissingTypeArgument]
        return libcst.FlattenSentinel([node, libcst.parse_statement(self._code)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Registered) and self._code == other._code

    def __hash__(self) -> int:
        return hash(self._code)
