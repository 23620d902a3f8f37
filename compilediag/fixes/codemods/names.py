"""Local variables of a function, as its text shows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.tree import Source


def names_in(node: libcst.CSTNode) -> set[str]:
    """Every name below a node, those of attributes and keywords too."""
    return {each.value for each in _names(node)}


def _names(node: libcst.CSTNode) -> Iterator[libcst.Name]:
    if isinstance(node, libcst.Name):
        yield node
    for child in node.children:
        yield from _names(child)


def parameters_of(function: libcst.FunctionDef) -> set[str]:
    """The names of its parameters."""
    parameters = function.params
    listed = (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params)
    starred = (parameters.star_arg, parameters.star_kwarg)
    return {each.name.value for each in (*listed, *starred) if isinstance(each, libcst.Param)}


def fresh_name(function: libcst.CSTNode, wanted: str) -> str:
    """A name that stands nowhere in it."""
    taken = names_in(function)
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain((wanted,), numbered) if each not in taken)


def require_not_shared(function: libcst.FunctionDef, name: str) -> None:
    """Raises where a variable is not the function's alone."""
    for statement in _below(function, (libcst.Global, libcst.Nonlocal)):
        if name in names_in(statement):
            raise EditImpossible(f"`{name}` is no variable of the function's own")


def _below(
    node: libcst.CSTNode, kinds: tuple[type[libcst.CSTNode], ...]
) -> Iterator[libcst.CSTNode]:
    if isinstance(node, kinds):
        yield node
    for child in node.children:
        yield from _below(child, kinds)


def is_bound_before(
    source: Source, function: libcst.FunctionDef, node: libcst.CSTNode, name: str
) -> bool:
    """Whether a variable has a value whenever a statement is reached: it is a parameter, or an
    assignment stands before it in its block or one around it."""
    if name in parameters_of(function):
        return True
    while node is not function:
        block = source.parent(node)
        if isinstance(block, libcst.IndentedBlock):
            before = list(block.body)[: list(block.body).index(node)]  # pyright: ignore[reportArgumentType]
            if any(name in _assigned(statement) for statement in before):
                return True
        node = block
    return False


def _assigned(statement: libcst.CSTNode) -> Iterator[str]:
    """Names that a statement always gives a value."""
    if not isinstance(statement, libcst.SimpleStatementLine):
        return
    for small in statement.body:
        if isinstance(small, libcst.Assign):
            for target in small.targets:
                yield from _targets(target.target)
        elif isinstance(small, libcst.AnnAssign) and small.value is not None:
            yield from _targets(small.target)


def _targets(target: libcst.BaseExpression) -> Iterator[str]:
    if isinstance(target, libcst.Name):
        yield target.value
    elif isinstance(target, (libcst.Tuple, libcst.List)):
        for element in target.elements:
            yield from _targets(element.value)


def written_in(source: Source, node: libcst.CSTNode) -> Iterator[str]:
    """Variables whose values are changed in place."""
    for each in source.below(node, libcst.AugAssign):
        yield _root(each.target)
    for each in source.below(node, libcst.AssignTarget):
        if isinstance(each.target, (libcst.Subscript, libcst.Attribute)):
            yield _root(each.target)
    for call in source.below(node, libcst.Call):
        function = call.func
        if isinstance(function, libcst.Attribute) and function.attr.value.endswith("_"):
            yield _root(function.value)
        for argument in call.args:
            if argument.keyword is not None and argument.keyword.value == "out":
                yield from names_in(argument.value)


def _root(node: libcst.CSTNode) -> str:
    while isinstance(node, (libcst.Subscript, libcst.Attribute)):
        node = node.value
    return node.value if isinstance(node, libcst.Name) else ""
