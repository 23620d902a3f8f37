"""The one place where the only instance of a class is compiled, and what calls it there."""

from __future__ import annotations

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.names import uses_of
from compilediag.fixes.codemods.purity import Scope, code_of
from compilediag.fixes.codemods.tree import Source

_COMPILE = "torch.compile"


def compiled_instance(scope: Scope, owner: libcst.ClassDef) -> libcst.Call:
    """`torch.compile(Model())`, or of the variable that holds the instance, where nothing else
    calls it and what it gives is only called.

    Raises:
        EditImpossible: the class may be called in other ways.
    """
    source, name = scope.source, owner.name.value
    uses = [each for each in uses_of(source, source.module, name) if each is not owner.name]
    made = source.parent(uses[0]) if len(uses) == 1 else None
    if not isinstance(made, libcst.Call) or made.func is not uses[0]:
        raise EditImpossible(f"`{name}` is not made at one place and used nowhere else")
    found = [
        each
        for each in source.below(source.module, libcst.Call)
        if scope.imported_name(each.func) == _COMPILE and each.args
    ]
    given = _variable(scope, made)
    wanted = [each for each in found if each.args[0].value is made]
    wanted += [each for each in found if given and code_of(each.args[0].value) == given]
    if len(wanted) != 1:
        raise EditImpossible(f"`{name}` is not compiled at one place")
    if given:
        _require_uncalled(scope, given, wanted[0])
    _require_only_called(scope, wanted[0])
    return wanted[0]


def owner_of_forward(source: Source, function: libcst.FunctionDef) -> libcst.ClassDef | None:
    """The class of a `forward`; None for a function of the module.

    Raises:
        EditImpossible: it is neither.
    """
    if source.parent(function) is source.module:
        return None
    owner = source.parent(source.parent(function))
    is_forward = function.name.value in ("forward", "__call__") and not function.decorators
    if isinstance(owner, libcst.ClassDef) and source.parent(owner) is source.module and is_forward:
        return owner
    raise EditImpossible(f"`{function.name.value}` is not compiled where it is defined")


def _variable(scope: Scope, value: libcst.BaseExpression) -> str:
    """The variable of the module that holds a value alone; empty where none does."""
    statement = scope.source.parent(value)
    if not isinstance(statement, libcst.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0].target
    block = scope.source.parent(scope.source.parent(statement))
    if not isinstance(target, libcst.Name) or block is not scope.source.module:
        return ""
    return target.value


def _require_uncalled(scope: Scope, name: str, compiled: libcst.Call) -> None:
    """The instance is used for its attributes only, beside its compile; its variable may get what
    is compiled."""
    for each in uses_of(scope.source, scope.source.module, name):
        parent = scope.source.parent(each)
        attribute = isinstance(parent, libcst.Attribute) and parent.attr.value != "forward"
        itself = any(each is argument.value for argument in compiled.args)
        if not attribute and not itself and not isinstance(parent, libcst.AssignTarget):
            raise EditImpossible(f"`{name}` is used uncompiled too")


def _require_only_called(scope: Scope, compiled: libcst.Call) -> None:
    """What `torch.compile` gives is a module: what is put around it is a function."""
    source, name = scope.source, _variable(scope, compiled)
    if not name:
        raise EditImpossible("what `torch.compile` gives is in no variable of the module")
    for each in uses_of(source, source.module, name):
        parent = source.parent(each)
        called = isinstance(parent, libcst.Call) and parent.func is each
        if not called and not isinstance(parent, libcst.AssignTarget):
            raise EditImpossible(f"`{name}` is used for more than calls")
    statements = [
        each
        for each in source.below(source.module, libcst.AssignTarget)
        if code_of(each.target) == name
    ]
    if len(statements) != 1:
        raise EditImpossible(f"`{name}` gets more than one value")
