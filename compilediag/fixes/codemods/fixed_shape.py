"""A `FixedShape` around what a program compiles, and other sizes for one that is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_COMPILE = matchers.Attribute(value=matchers.Name("torch"), attr=matchers.Name("compile"))
_COMPILED = matchers.Call(func=_COMPILE)
_SHAPE = matchers.Name("FixedShape") | matchers.Attribute(attr=matchers.Name("FixedShape"))
_BUCKETS = 2
"""Place of `buckets` among the arguments of `FixedShape`."""

_BINDING = (
    *(libcst.AnnAssign, libcst.AugAssign, libcst.NamedExpr, libcst.For, libcst.CompFor),
    *(libcst.AsName, libcst.Param, libcst.Del, libcst.NameItem, libcst.ClassDef),
    libcst.ImportAlias,
)
"""What a name may stand in and get another value, beside assignments and functions."""


def around(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edits "fixed_shape": `compilediag.FixedShape(…, arguments)` around what is compiled under a
    name; `code` is the name and the arguments."""
    name, arguments = edit.code
    node = _compiled(source, name)
    if isinstance(node, libcst.FunctionDef):
        line = f"{name} = compilediag.FixedShape({name}, {arguments})"
        yield Replacement(node, _Followed(line))
    else:
        yield Replacement(node.value, _Wrapped(arguments))


def _compiled(source: Source, name: str) -> libcst.Assign | libcst.FunctionDef:
    """What gives the name what `torch.compile` gives, and is the last to give it anything."""
    bindings = list(_bindings(source, name))
    if not bindings:
        raise EditImpossible(f"{name} is not set in the file")
    last = bindings[-1]
    if isinstance(last, libcst.FunctionDef):
        compiled = any(_is_compiled(each.decorator) for each in last.decorators)
        alone = len(bindings) == 1 and not isinstance(_block_of(source, last), libcst.ClassDef)
    else:
        compiled = matchers.matches(last.value, _COMPILED) and len(last.targets) == 1
        block = _block_of(source, last)
        alone = not isinstance(block, libcst.ClassDef) and all(
            isinstance(each, libcst.Assign) and _block_of(source, each) is block
            for each in bindings
        )
    if not compiled:
        raise EditImpossible(f"{name} is not what torch.compile gives")
    if not alone:
        raise EditImpossible(f"{name} is set at several places, or in a class")
    return last


def _is_compiled(decorator: libcst.BaseExpression) -> bool:
    return matchers.matches(decorator, _COMPILE) or matchers.matches(decorator, _COMPILED)


def _block_of(source: Source, node: libcst.CSTNode) -> libcst.CSTNode:
    """The statement whose body a statement is in, or the module."""
    kinds = (libcst.BaseCompoundStatement, libcst.Module)
    return next(each for each in source.around(node, libcst.CSTNode) if isinstance(each, kinds))


def _bindings(source: Source, name: str) -> Iterator[libcst.Assign | libcst.FunctionDef]:
    """The assignments to a name and the functions of that name, in their order.

    Raises:
        EditImpossible: it gets a value in another way too.
    """
    for node in source.below(source.module, libcst.Name):
        if node.value != name:
            continue
        parent = source.parent(node)
        if isinstance(parent, libcst.FunctionDef):
            yield parent
        elif isinstance(parent, libcst.AssignTarget):
            assign = source.parent(parent)
            if isinstance(assign, libcst.Assign):
                yield assign
        elif _is_bound(source, node, parent):
            raise EditImpossible(f"{name} gets other values too")


def _is_bound(source: Source, node: libcst.Name, parent: libcst.CSTNode) -> bool:
    if isinstance(parent, libcst.Element):
        return any(True for _ in source.around(node, libcst.AssignTarget))
    if isinstance(parent, _BINDING):
        target = getattr(parent, "target", getattr(parent, "name", getattr(parent, "item", None)))
        return target is node
    return False


def other_buckets(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edits "fixed_shape_buckets": other sizes for the one `FixedShape` of the file that has the
    given ones as literals; `code` is those and the new ones."""
    before, after = edit.code
    found = [
        value
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call.func, _SHAPE)
        and (value := _buckets_of(call)) is not None
        and _literal(source.module.code_for_node(value)) == ast.literal_eval(before)
    ]
    if len(found) != 1:
        raise EditImpossible(f"{len(found)} FixedShapes of the file have buckets={before}")
    yield Replacement(found[0], _Other(after))


def _buckets_of(call: libcst.Call) -> libcst.BaseExpression | None:
    for index, argument in enumerate(call.args):
        named = argument.keyword is not None and argument.keyword.value == "buckets"
        if named or (argument.keyword is None and not argument.star and index == _BUCKETS):
            return argument.value
    return None


def _literal(code: str) -> Any:
    try:
        return ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return None


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """Around an expression."""

    arguments: str

    def __call__(self, value: libcst.BaseExpression) -> libcst.BaseExpression:
        call = libcst.ensure_type(
            libcst.parse_expression(f"compilediag.FixedShape(_, {self.arguments})"), libcst.Call
        )
        first = call.args[0].with_changes(value=value)
        return call.with_changes(args=[first, *call.args[1:]])


@dataclass(frozen=True, slots=True)
class _Followed:
    """A statement behind a function."""

    line: str

    def __call__(self, function: libcst.FunctionDef) -> Any:
        return libcst.FlattenSentinel([function, libcst.parse_statement(f"\n\n{self.line}")])


@dataclass(frozen=True, slots=True)
class _Other:
    """An expression in place of another."""

    code: str

    def __call__(self, _value: libcst.BaseExpression) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code)
