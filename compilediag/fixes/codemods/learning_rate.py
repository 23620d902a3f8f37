"""The learning rate of an optimizer as a tensor: its step reads the value then, where it was a
constant of the graph. torch's own schedulers fill such a tensor in place."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.numbers import as_number, in_place
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_RATE = matchers.SubscriptElement(
    slice=matchers.Index(
        value=matchers.SimpleString(value=matchers.MatchIfTrue(lambda text: text[1:-1] == "lr"))
    )
)
_OF_GROUP = matchers.Subscript(slice=[_RATE])
_NUMBER = libcst.Float | libcst.Integer | libcst.Name | libcst.Attribute | libcst.BinaryOperation


def rate_as_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "rate_as_tensor": of the only optimizer of torch's that the file makes, and of all that
    the file writes to and reads from `group["lr"]`. `code` is empty."""
    made = [
        call for call in source.below(source.module, libcst.Call) if _is_optimizer(source, call)
    ]
    if len(made) != 1:
        raise EditImpossible(f"the file makes {len(made)} optimizers of torch's")
    for rate in _rates(source, made[0]):
        yield Replacement(rate, _as_tensor)
    for node in source.below(source.module, libcst.Subscript):
        if not matchers.matches(node, _OF_GROUP):
            continue
        if not _is_group(source, node.value):
            line = source.lines_of(node).start
            raise EditImpossible(f"line {line}: `{source.code(node)}` may be of something else")
        yield _used(source, node)


def _used(source: Source, node: libcst.Subscript) -> Replacement:
    parent = source.parent(node)
    if isinstance(parent, libcst.AugAssign) and parent.target is node:
        return in_place(source, parent)
    if isinstance(parent, libcst.AssignTarget):
        statement = source.parent(parent)
        if isinstance(statement, libcst.Assign) and len(statement.targets) == 1:
            return in_place(source, statement)
        raise EditImpossible(f"line {source.lines_of(node).start} sets more than one name at once")
    return as_number(node)


def _is_optimizer(source: Source, call: libcst.Call) -> bool:
    """`torch.optim.Adam(…)`, `optim.Adam(…)`, or a name that is imported from `torch.optim`."""
    name = source.code(call.func)
    if "." in name:
        module, _, last = name.rpartition(".")
        return module in ("torch.optim", "optim") and last[:1].isupper()
    imports = source.below(source.module, libcst.ImportFrom)
    return any(
        each.module is not None
        and source.code(each.module) == "torch.optim"
        and not isinstance(each.names, libcst.ImportStar)
        and any((alias.evaluated_alias or alias.evaluated_name) == name for alias in each.names)
        for each in imports
    )


def _rates(source: Source, call: libcst.Call) -> Iterator[libcst.BaseExpression]:
    """The rates that it is made with, one for each group of parameters."""
    groups = list(source.below(call, libcst.Dict))
    own = [
        element.value
        for group in groups
        for element in group.elements
        if isinstance(element, libcst.DictElement) and source.code(element.key)[1:-1] == "lr"
    ]
    named = [arg.value for arg in call.args if arg.keyword and arg.keyword.value == "lr"]
    second = [arg.value for arg in call.args[1:2] if arg.keyword is None and not arg.star]
    every = named or second
    if len(groups) > len(own) and len(groups) > 1:
        raise EditImpossible("groups of parameters would have one rate, and change it together")
    found = own if groups and len(own) == len(groups) else [*every, *own]
    if not found:
        raise EditImpossible("the optimizer is made without a learning rate")
    for rate in found:
        if not isinstance(rate, _NUMBER):
            raise EditImpossible(f"`{source.code(rate)}` may not be a number")
        yield rate


def _is_group(source: Source, node: libcst.BaseExpression) -> bool:
    """`optimizer.param_groups[0]`, or what loops over these."""
    if "param_groups" in source.code(node):
        return True
    if not isinstance(node, libcst.Name):
        return False
    loops = source.around(node, libcst.For)
    return any(
        source.code(loop.target) == node.value and source.code(loop.iter).endswith(".param_groups")
        for loop in loops
    )


def _as_tensor(node: libcst.BaseExpression) -> libcst.BaseExpression:
    function = libcst.parse_expression("torch.tensor")
    return libcst.Call(function, [libcst.Arg(node)])
