"""Hooks of modules, left to Python where they are registered."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.purity import code_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_REGISTER = matchers.Call(
    func=matchers.Attribute(
        attr=matchers.Name(
            value=matchers.MatchIfTrue(
                lambda name: name.startswith("register_") and name.endswith("_hook")
            )
        )
    )
)
_DISABLE = "torch.compiler.disable"


def disabled_hook(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "disabled_hook": the function around the line is registered as `torch.compiler.disable`
    returns it."""
    for node in _registered(source, edit):
        yield Replacement(node, _disabled)


def shown_registrations(source: Source, edit: Edit) -> tuple[int, str]:
    """The line of the first registration that "disabled_hook" edits, and how it reads then."""
    node = _registered(source, edit)[0]
    call = next(each for each in source.around(node, libcst.Call) if _is_registration(each))
    new = call.deep_replace(node, _disabled(node))
    return source.lines_of(call).start, " ".join(code_of(new).split())


def _disabled(node: libcst.BaseExpression) -> libcst.BaseExpression:
    return libcst.Call(libcst.parse_expression(_DISABLE), [libcst.Arg(node)])


def _is_registration(node: libcst.CSTNode) -> bool:
    return matchers.matches(node, _REGISTER)


def _registered(source: Source, edit: Edit) -> list[libcst.Name | libcst.Attribute]:
    """What names the function in each call that registers it."""
    functions = source.functions_at(edit.line)
    if not functions:
        raise EditImpossible(f"line {edit.line} is not inside a function")
    hook = functions[0]
    is_method = isinstance(source.parent(source.parent(hook)), libcst.ClassDef)
    found = [
        node
        for call in source.below(source.module, libcst.Call)
        if _is_registration(call)
        for argument in call.args
        for node in _names_of(source, argument.value, hook, is_method=is_method)
    ]
    if not found:
        raise NothingToEdit(f"no call of the file registers {hook.name.value} by its name")
    return found


def _names_of(
    source: Source, argument: libcst.CSTNode, hook: libcst.FunctionDef, *, is_method: bool
) -> Iterator[libcst.Name | libcst.Attribute]:
    """Names of a function, or of a method whose name no other has."""
    name = hook.name.value
    if is_method:
        same = [
            each
            for each in source.below(source.module, libcst.FunctionDef)
            if each.name.value == name
        ]
        for node in source.below(argument, libcst.Attribute):
            if node.attr.value == name and len(same) == 1:
                yield node
        return
    for node in source.below(argument, libcst.Name):
        parent = source.parent(node)
        member = isinstance(parent, libcst.Attribute) and parent.attr is node
        bound = [getattr(each, "node", None) for each in source.scope(node)[node.value]]
        if node.value == name and not member and bound == [hook]:
            yield node
