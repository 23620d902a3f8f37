"""Edits of where a program sets the global state of torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_IMPORT = matchers.SimpleStatementLine(body=[matchers.Import() | matchers.ImportFrom()])
_TORCH = matchers.Import(
    names=[
        matchers.ZeroOrMore(),
        matchers.ImportAlias(name=matchers.Name("torch"), asname=None),
        matchers.ZeroOrMore(),
    ]
)


def set_first(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "set_first": makes a setting below the imports, which the program makes later at one
    place and with constants. `code`: the functions and attributes that set it, with their module.
    The later statement stays: it changes nothing any more."""
    found = [
        statement
        for statement in source.below(source.module, libcst.SimpleStatementLine)
        if len(statement.body) == 1 and _target(source, statement.body[0]) in edit.code
    ]
    uses = [
        node
        for node in source.below(source.module, libcst.Attribute)
        if source.module.code_for_node(node) in edit.code
    ]
    if len(found) != 1 or len(uses) != 1:
        raise EditImpossible(f"{' or '.join(edit.code)} is not at exactly one place in the file")
    if not _is_constant(found[0].body[0]):
        raise EditImpossible(f"line {source.lines_of(found[0]).start} sets what is computed")
    place = _below_imports(source)
    if place is found[0]:
        raise EditImpossible("it is set below the imports already")
    yield Insertion(place, (source.module.code_for_node(found[0].body[0]),))


def _target(source: Source, small: libcst.BaseSmallStatement) -> str:
    """What a statement calls or assigns to."""
    if isinstance(small, libcst.Expr) and isinstance(small.value, libcst.Call):
        return source.module.code_for_node(small.value.func)
    if isinstance(small, libcst.Assign) and len(small.targets) == 1:
        return source.module.code_for_node(small.targets[0].target)
    return ""


def _is_constant(small: libcst.BaseSmallStatement) -> bool:
    """Only literals, and dtypes of torch."""
    if isinstance(small, libcst.Assign):
        values = [small.value]
    else:
        call = libcst.ensure_type(libcst.ensure_type(small, libcst.Expr).value, libcst.Call)
        if any(argument.star for argument in call.args):
            return False
        values = [argument.value for argument in call.args]
    return all(matchers.matches(value, _CONSTANT) for value in values)


_CONSTANT = (
    matchers.SimpleString()
    | matchers.Integer()
    | matchers.Name("True")
    | matchers.Name("False")
    | matchers.Attribute(value=matchers.Name("torch"))
)


def _below_imports(source: Source) -> libcst.BaseStatement:
    """The first statement behind the imports that begin a module, `import torch` among them."""
    has_torch = False
    for statement in source.module.body:
        if not _begins(statement):
            if has_torch:
                return statement
            break
        has_torch = has_torch or bool(matchers.findall(statement, _TORCH))
    raise EditImpossible("`import torch` is not among the imports that begin the file")


def _begins(statement: libcst.BaseStatement) -> bool:
    docstring = matchers.SimpleStatementLine(body=[matchers.Expr(value=matchers.SimpleString())])
    return matchers.matches(statement, _IMPORT | docstring)


def mode(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "mode": another context manager around a line, where it is entered by a `with` of the
    same function. `code`: the one that is there and the new one, both called without arguments."""
    old, new = edit.code
    for block in source.below(source.module, libcst.With):
        if edit.line not in source.lines_of(block) or _function(source, block) != _innermost(
            source, edit.line
        ):
            continue
        for item in block.items:
            if source.module.code_for_node(item.item) == f"{old}()":
                yield Replacement(item.item, _Other(f"{new}()"))
                return
    raise EditImpossible(f"no `with {old}()` encloses line {edit.line}")


def _innermost(source: Source, line: int) -> libcst.FunctionDef | None:
    return next(iter(source.functions_at(line)), None)


def _function(source: Source, node: libcst.CSTNode) -> libcst.FunctionDef | None:
    return next(source.around(node, libcst.FunctionDef), None)


@dataclass(frozen=True, slots=True)
class _Other:
    code: str

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code)
