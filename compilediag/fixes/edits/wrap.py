"""The operator "wrap": `FixedShape` around what is compiled, `torch.compiler.disable` around a
hook."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.edits import effects
from compilediag.fixes.edits.tree import EditOfTree, Filled, Replacement, Source
from compilediag.rules.changes import Edit, EditImpossible, NothingToEdit

_SHAPE = matchers.Name("FixedShape") | matchers.Attribute(attr=matchers.Name("FixedShape"))
_BUCKETS = 2
"""Place of `buckets` among the arguments of `FixedShape`."""

_REGISTER = matchers.Call(
    func=matchers.Attribute(
        attr=matchers.Name(
            value=matchers.MatchIfTrue(
                lambda name: name.startswith("register_") and name.endswith("_hook")
            )
        )
    )
)
_DISABLED = Filled("torch.compiler.disable(_)")


# What is compiled


def wrap_in_fixed_shape(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "fixed_shape": `compilediag.FixedShape(…, arguments)` around what is compiled under a
    name; `code` is the name and the arguments."""
    name, arguments = edit.code
    node = _compiled(source, name)
    if isinstance(node, libcst.FunctionDef):
        yield Replacement(node, _Followed(f"{name} = compilediag.FixedShape({name}, {arguments})"))
    else:
        yield Replacement(node.value, Filled(f"compilediag.FixedShape(_, {arguments})"))


def _compiled(source: Source, name: str) -> libcst.Assign | libcst.FunctionDef:
    """The statement that gives the name what `torch.compile` returns, and is the last to give it
    anything."""
    statements = [_binding(source, each) for each in effects.bindings(source, name)]
    if not statements:
        raise EditImpossible(f"{name} is not set in the file")
    last = statements[-1]
    if isinstance(last, libcst.FunctionDef):
        compiled = any(_is_compile(source, each.decorator) for each in last.decorators)
        alone = len(statements) == 1
    else:
        is_call = isinstance(last.value, libcst.Call) and len(last.targets) == 1
        compiled = is_call and _is_compile(source, last.value)
        blocks = {_block_of(source, each) for each in statements}
        alone = len(blocks) == 1 and all(isinstance(each, libcst.Assign) for each in statements)
    if not compiled:
        raise EditImpossible(f"{name} is not what torch.compile gives")
    if not alone or isinstance(_block_of(source, last), libcst.ClassDef):
        raise EditImpossible(f"{name} is set at several places, or in a class")
    return last


def _binding(source: Source, name: libcst.Name) -> libcst.Assign | libcst.FunctionDef:
    parent = source.parent(name)
    if isinstance(parent, libcst.AssignTarget):
        parent = source.parent(parent)
    if not isinstance(parent, (libcst.Assign, libcst.FunctionDef)):
        raise EditImpossible(f"{name.value} gets other values too")
    return parent


def _is_compile(source: Source, node: libcst.BaseExpression) -> bool:
    """Whether it is `torch.compile`, or a call of it."""
    function = node.func if isinstance(node, libcst.Call) else node
    return source.imported_name(function) == "torch.compile" or matchers.matches(
        function, matchers.Attribute(value=matchers.Name("torch"), attr=matchers.Name("compile"))
    )


def _block_of(source: Source, node: libcst.CSTNode) -> libcst.CSTNode:
    """The statement whose body a statement is in, or the module."""
    kinds = (libcst.BaseCompoundStatement, libcst.Module)
    return next(each for each in source.around(node, libcst.CSTNode) if isinstance(each, kinds))


@dataclass(frozen=True, slots=True)
class _Followed:
    """A statement behind a function."""

    line: str

    def __call__(self, function: libcst.FunctionDef) -> Any:
        return libcst.FlattenSentinel([function, libcst.parse_statement(f"\n\n{self.line}")])


def replace_buckets(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "fixed_shape_buckets": other sizes for the one `FixedShape` of the file that has the
    given ones as literals; `code` is those and the new ones."""
    before, after = edit.code
    found: list[libcst.BaseExpression] = []
    for call in source.below(source.module, libcst.Call):
        if not matchers.matches(call.func, _SHAPE):
            continue
        for index, argument in enumerate(call.args):
            named = argument.keyword is not None and argument.keyword.value == "buckets"
            placed = argument.keyword is None and not argument.star and index == _BUCKETS
            with contextlib.suppress(ValueError, SyntaxError):  # no literal
                value = ast.literal_eval(source.code(argument.value)) if named or placed else None
                if value == ast.literal_eval(before):
                    found.append(argument.value)
    if len(found) != 1:
        raise EditImpossible(f"{len(found)} FixedShapes of the file have buckets={before}")
    yield Replacement(found[0], Filled(after))


# Hooks


def disable_hook(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "disabled_hook": the function around the line is registered as `torch.compiler.disable`
    returns it."""
    for node in _registered(source, edit):
        yield Replacement(node, _DISABLED)


def show_registration(source: Source, edit: Edit) -> tuple[int, str]:
    """The line of the first registration that "disabled_hook" edits, and how it reads then."""
    node = _registered(source, edit)[0]
    call = next(
        each for each in source.around(node, libcst.Call) if matchers.matches(each, _REGISTER)
    )
    new = call.deep_replace(node, _DISABLED(node))
    assert isinstance(new, libcst.Call), "one of its parts is another"
    return source.lines_of(call).start, " ".join(source.code(new).split())


def _registered(source: Source, edit: Edit) -> list[effects.NameOrAttribute]:
    """The names of the function around the line in each call that registers it."""
    functions = source.functions_at(edit.line)
    if not functions:
        raise EditImpossible(f"line {edit.line} is not inside a function")
    hook = functions[0]
    found = [
        node
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, _REGISTER)
        for argument in call.args
        for node in _names_of(source, argument.value, hook)
    ]
    if not found:
        raise NothingToEdit(f"no call of the file registers {hook.name.value} by its name")
    return found


def _names_of(
    source: Source, argument: libcst.BaseExpression, hook: libcst.FunctionDef
) -> Iterator[effects.NameOrAttribute]:
    """Names of a function, or of a method whose name no other has."""
    name = hook.name.value
    if isinstance(source.parent(source.parent(hook)), libcst.ClassDef):
        functions = source.below(source.module, libcst.FunctionDef)
        if [each.name.value for each in functions].count(name) == 1:
            attributes = source.below(argument, libcst.Attribute)
            yield from (node for node in attributes if node.attr.value == name)
        return
    for node in source.below(argument, libcst.Name):
        bound = [getattr(each, "node", None) for each in source.scope(node)[node.value]]
        if node.value == name and source.is_variable(node) and bound == [hook]:
            yield node
