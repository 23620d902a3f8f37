"""Programs that compile nothing: a switch is on, or only code of torch is left to compile."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import bound_in, fresh_name, uses_of
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import code_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def without_switch(source: Source, _: Edit) -> Iterator[EditOfTree]:
    """Edit "without_switch": the statements of the module that switch compilation off by a
    variable of the environment are left out."""
    found = [
        statement
        for statement in source.module.body
        if isinstance(statement, libcst.SimpleStatementLine) and _switches(statement)
    ]
    if not found:
        raise NothingToEdit("no statement of the file switches compilation off")
    for statement in found:
        if any(line.comment is not None for line in statement.leading_lines):
            raise EditImpossible("there is a comment at the switch: it may be there for a reason")
        yield Replacement(statement, _gone)


def compile_returned(source: Source, _: Edit) -> Iterator[EditOfTree]:
    """Edit "compile_returned": `model.compile()` makes a variable with what `torch.compile(model)`
    returns, and the calls of `model` that follow call that."""
    found = list(_in_place(source))
    if not found:
        raise NothingToEdit("no statement of the file compiles a module in place")
    for statement, call, name in found:
        around: libcst.CSTNode = next(source.around(statement, libcst.FunctionDef), source.module)
        uses = uses_of(source, around, name)
        if [*bound_in(source, around)].count(name) != 1:
            raise EditImpossible(f"`{name}` gets more than one value")
        compiled = fresh_name(source.module, f"compiled_{name}")
        arguments = [libcst.Arg(libcst.Name(name)), *call.args]
        made = libcst.Call(libcst.parse_expression("torch.compile"), arguments)
        new = libcst.Assign([libcst.AssignTarget(libcst.Name(compiled))], made)
        yield Replacement(statement.body[0], Once(statement.body[0], new))
        called = [use for use in uses if _is_called(source, use)]
        later = [use for use in called if source.position(use) > source.position(statement)]
        if not later or any(_is_deferred(source, use, around) for use in called):
            raise EditImpossible(f"`{name}` is not called after its compile in the same function")
        for use in later:
            yield Replacement(use, Once(use, libcst.Name(compiled)))


def _in_place(
    source: Source,
) -> Iterator[tuple[libcst.SimpleStatementLine, libcst.Call, str]]:
    """Each statement `name.compile()` with its call and the name, which is no module of Python."""
    for statement in source.below(source.module, libcst.SimpleStatementLine):
        small = statement.body[0]
        call = small.value if isinstance(small, libcst.Expr) and len(statement.body) == 1 else None
        if not isinstance(call, libcst.Call) or not isinstance(call.func, libcst.Attribute):
            continue
        owner = call.func.value
        if not isinstance(owner, libcst.Name) or call.func.attr.value != "compile":
            continue
        if not source.is_imported(owner):
            yield statement, call, owner.value


def _is_called(source: Source, use: libcst.Name) -> bool:
    parent = source.parent(use)
    return isinstance(parent, libcst.Call) and parent.func is use


def _is_deferred(source: Source, use: libcst.Name, around: libcst.CSTNode) -> bool:
    """Whether it runs when another function is called."""
    functions = source.around(use, libcst.FunctionDef)
    inner: libcst.CSTNode = next(functions, source.module)
    return inner is not around or any(True for _ in source.around(use, libcst.Lambda))


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
