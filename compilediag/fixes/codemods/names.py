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


def parameters_of(function: libcst.FunctionDef | libcst.Lambda) -> set[str]:
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
            raise EditImpossible(f"`{name}` is not a local variable of the function")


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


_BINDING = (
    libcst.AssignTarget,
    libcst.AugAssign,
    libcst.AnnAssign,
    libcst.For,
    libcst.NamedExpr,
    libcst.CompFor,
)


def bound_in(source: Source, node: libcst.CSTNode) -> Iterator[str]:
    """Names that statements below a node bind, each as often as it is bound; of functions and
    classes below it their own names, and not what they bind inside."""
    for each in _own_nodes(node, first=True):
        if isinstance(each, _BINDING):
            yield from _targets(each.target)
        elif isinstance(each, (libcst.FunctionDef, libcst.ClassDef)) and each is not node:
            yield each.name.value
        elif isinstance(each, libcst.AsName):
            yield from _targets(each.name)
        elif isinstance(each, libcst.ImportAlias) and each.asname is None:
            yield each.evaluated_name.partition(".")[0]
        elif isinstance(each, (libcst.Global, libcst.Nonlocal)):
            # Bound elsewhere too: more than once, whatever binds it here.
            yield from (item.name.value for item in each.names for _ in range(2))


def _own_nodes(node: libcst.CSTNode, *, first: bool = False) -> Iterator[libcst.CSTNode]:
    yield node
    if isinstance(node, (libcst.FunctionDef, libcst.ClassDef, libcst.Lambda)) and not first:
        return
    for child in node.children:
        yield from _own_nodes(child)


def free_names(source: Source, node: libcst.CSTNode, *, at_once: bool = False) -> set[str]:
    """Names that code below a node reads and gets from outside it; `at_once`: only those that
    are read when the statement runs, and not when a function that it defines is called."""
    found: set[str] = set()
    for each in source.below(node, libcst.Name):
        if _is_label(source, each):
            continue
        inside = list(_functions_between(source, each, node))
        own = any(each.value in _locals_of(source, function) for function in inside)
        deferred = any(_is_in_body(source, each, function) for function in inside)
        if not own and not (at_once and deferred):
            found.add(each.value)
    if isinstance(node, (libcst.FunctionDef, libcst.ClassDef)):
        found.discard(node.name.value)
    if isinstance(node, libcst.SimpleStatementLine):
        found -= set(bound_in(source, node))
    return found - {"self", "None", "True", "False"}


def uses_of(source: Source, whole: libcst.CSTNode, name: str) -> list[libcst.Name]:
    """Where a variable of a function or module stands in it: not attributes or keywords of that
    name, nor variables of functions below it."""
    return [
        each
        for each in source.below(whole, libcst.Name)
        if each.value == name
        and not _is_label(source, each)
        and not any(
            name in _locals_of(source, function)
            for function in _functions_between(source, each, whole)
            if function is not whole and not _is_name_of(each, function)
        )
    ]


def _is_label(source: Source, node: libcst.Name) -> bool:
    parent = source.parent(node)
    member = isinstance(parent, libcst.Attribute) and parent.attr is node
    return member or (isinstance(parent, libcst.Arg) and parent.keyword is node)


def _is_name_of(node: libcst.Name, function: libcst.FunctionDef | libcst.Lambda) -> bool:
    return isinstance(function, libcst.FunctionDef) and function.name is node


def _functions_between(
    source: Source, node: libcst.CSTNode, outer: libcst.CSTNode
) -> Iterator[libcst.FunctionDef | libcst.Lambda]:
    """Functions that a node stands in, up to another one, which may be a function too."""
    for each in source.around(node, libcst.CSTNode):
        if isinstance(each, (libcst.FunctionDef, libcst.Lambda)):
            yield each
        if each is outer:
            return


def _locals_of(source: Source, function: libcst.FunctionDef | libcst.Lambda) -> set[str]:
    shared = {
        item.name.value
        for kind in (libcst.Global, libcst.Nonlocal)
        for each in source.below(function, kind)
        for item in each.names
    }
    return (parameters_of(function) | set(bound_in(source, function))) - shared


def _is_in_body(
    source: Source, node: libcst.CSTNode, function: libcst.FunctionDef | libcst.Lambda
) -> bool:
    return function.body in (node, *source.around(node, libcst.CSTNode))


def _root(node: libcst.CSTNode) -> str:
    while isinstance(node, (libcst.Subscript, libcst.Attribute)):
        node = node.value
    return node.value if isinstance(node, libcst.Name) else ""
