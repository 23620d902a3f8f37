"""Programs that compile nothing: a switch that is on, and modules of torch that are compiled in
place."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.purity import code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def without_switch(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "without_switch": the statements of the module that switch compilation off by a
    variable of the environment are left out."""
    found = [
        statement
        for statement in source.module.body
        if isinstance(statement, libcst.SimpleStatementLine) and _switches(statement)
    ]
    if not found:
        raise EditImpossible("no statement of the file switches compilation off")
    for statement in found:
        if any(line.comment is not None for line in statement.leading_lines):
            raise EditImpossible("a comment stands at the switch: it may have a reason")
        yield Replacement(statement, _gone)


def _gone(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


def _switches(statement: libcst.SimpleStatementLine) -> bool:
    small = statement.body[0]
    if len(statement.body) != 1 or not isinstance(small, libcst.Assign) or len(small.targets) != 1:
        return False
    target = code_of(small.targets[0].target).replace("'", '"')
    value = small.value
    on = isinstance(value, libcst.SimpleString) and value.evaluated_value == "1"
    return on and target in [f'os.environ["{name}"]' for name in _SWITCHES]


def forward_compiled(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "forward_compiled": `model.compile(...)` becomes `model.forward =
    torch.compile(model.forward, ...)`, for every such statement of the module."""
    scope = scope_of(source)
    found = 0
    for statement in source.below(source.module, libcst.SimpleStatementLine):
        small = statement.body[0]
        call = small.value if isinstance(small, libcst.Expr) else None
        pattern = matchers.Call(
            func=matchers.Attribute(value=matchers.Name(), attr=matchers.Name("compile"))
        )
        if not isinstance(call, libcst.Call) or not matchers.matches(call, pattern):
            continue
        if scope.imported_name(call.func) is not None or any(each.star for each in call.args):
            continue
        assert isinstance(call.func, libcst.Attribute)
        found += 1
        yield Replacement(small, _forward)
    if not found:
        raise EditImpossible("no statement of the file compiles a module in place")


def _forward(small: libcst.Expr) -> libcst.Assign:
    call = libcst.ensure_type(small.value, libcst.Call)
    model = code_of(libcst.ensure_type(call.func, libcst.Attribute).value)
    forward = libcst.parse_expression(f"{model}.forward")
    compiled = call.with_changes(
        func=libcst.parse_expression("torch.compile"), args=[libcst.Arg(forward), *call.args]
    )
    target = libcst.ensure_type(forward.deep_clone(), libcst.Attribute)
    return libcst.Assign([libcst.AssignTarget(target)], compiled)
