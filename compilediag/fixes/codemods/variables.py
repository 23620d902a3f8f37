"""A variable of a file: where it gets its first value, and every other place that writes or reads
it. An attribute is that of one class, and of what the file uses its name on elsewhere; another name
that of its scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst
from libcst import matchers
from libcst.metadata import Assignment, BuiltinAssignment

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.tree import Source

Write = libcst.Assign | libcst.AnnAssign | libcst.AugAssign
Place = libcst.Name | libcst.Attribute


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a file, and all uses of it there."""

    name: str
    declared: libcst.Assign | libcst.AnnAssign
    """What gives it its first value, before anything else can use it."""
    writes: tuple[Write, ...]
    reads: tuple[Place, ...]
    owner: libcst.ClassDef | None = None
    """Of an attribute."""


def variable_at(source: Source, line: int, name: str) -> Variable:
    """The variable that a line reads: `name`, or an attribute of that name.

    Raises:
        EditImpossible: there is none, or not all uses of it can be found in the file.
    """
    found = [
        node
        for node in places(source, source.module, name)
        if line in source.lines_of(node) and not _is_keyword(source, node)
    ]
    if not found:
        raise EditImpossible(f"line {line} does not read {name}")
    if len({type(node) for node in found}) > 1:
        raise EditImpossible(f"line {line} reads more than one variable with the name {name}")
    if isinstance(found[0], libcst.Attribute):
        return _attribute(source, found[0], name)
    return _name(source, found[0], name)


def places(source: Source, below: libcst.CSTNode, name: str) -> Iterator[Place]:
    """Every place that names it: attributes, and names that are no part of one."""
    for node in source.below(below, libcst.Attribute):
        if node.attr.value == name:
            yield node
    for node in source.below(below, libcst.Name):
        parent = source.parent(node)
        is_member = isinstance(parent, libcst.Attribute) and parent.attr is node
        if node.value == name and not is_member:
            yield node


def _is_keyword(source: Source, node: Place) -> bool:
    parent = source.parent(node)
    return isinstance(parent, libcst.Arg) and parent.keyword is node


def _name(source: Source, node: libcst.Name, name: str) -> Variable:
    assignments = [each for each in source.scope(node)[name] if isinstance(each, Assignment)]
    builtin = any(isinstance(each, BuiltinAssignment) for each in source.scope(node)[name])
    if builtin or not assignments:
        raise EditImpossible(f"{name} gets no value in this file")
    scope = assignments[0].scope
    writes = [_write(source, each.node) for each in assignments]
    # Of `x += 1` the name is also what reads it: one use.
    targets = {target for write in writes for target in places(source, _left_side(write), name)}
    accesses = {access.node for each in assignments for access in each.references} - targets
    reads = tuple(each for each in accesses if isinstance(each, libcst.Name))
    if len(reads) != len(accesses):
        raise EditImpossible(f"{name} is used in a way that cannot be followed")
    first = min(writes, key=lambda write: source.lines_of(write).start)
    body = _body_of(source, first)
    if isinstance(first, libcst.AugAssign) or body is None or source.scope(first) is not scope:
        raise EditImpossible(f"{name} gets its first value where it may not, or more than once")
    return Variable(name, first, _without(writes, first), _sorted(source, reads))


def _attribute(source: Source, node: libcst.Attribute, name: str) -> Variable:
    owner = _owner(source, node, name)
    if any(each.name.value == name for each in source.below(owner, libcst.FunctionDef)):
        raise EditImpossible(f"{name} is also a method")
    if any(
        matchers.matches(each, matchers.SimpleString()) and each.evaluated_value == name
        for each in source.below(source.module, libcst.SimpleString)
    ):
        raise EditImpossible(f"the file has {name!r} as text: it may be used by that name")
    declared = next(_declarations(source, owner, name), None)
    if declared is None:
        raise EditImpossible(f"`__init__` of {owner.name.value} does not set {name} in every case")
    mine = [
        each
        for each in places(source, source.module, name)
        if isinstance(each, libcst.Attribute) and _is_of(source, each, owner, name)
    ]
    writes: list[Write] = []
    reads: list[Place] = []
    for each in mine:
        if _is_target(source, each):
            writes.append(_write(source, each))
        else:
            reads.append(each)
    return Variable(name, declared, _without(writes, declared), _sorted(source, reads), owner)


def _owner(source: Source, node: libcst.Attribute, name: str) -> libcst.ClassDef:
    """The class whose `__init__` sets it: the one around the line, or the only one of the file."""
    around = list(source.around(node, libcst.ClassDef))[:1]
    if around and is_self(source, node) and _sets(source, around[0], name):
        return around[0]
    setting = [
        each for each in source.below(source.module, libcst.ClassDef) if _sets(source, each, name)
    ]
    if len(setting) != 1:
        raise EditImpossible(f"{len(setting)} classes of the file set {name}")
    return setting[0]


def _sets(source: Source, owner: libcst.ClassDef, name: str) -> bool:
    return any(
        isinstance(each, libcst.Attribute) and is_self(source, each) and _is_target(source, each)
        for each in places(source, owner, name)
    )


def _is_of(source: Source, node: libcst.Attribute, owner: libcst.ClassDef, name: str) -> bool:
    """Whether an attribute is the class's. A call is none: it is no number that is called."""
    parent = source.parent(node)
    if isinstance(parent, libcst.Call) and parent.func is node:
        return False
    around = next(source.around(node, libcst.ClassDef), None)
    if around is not None and is_self(source, node):
        if around is owner:
            return True
        bases = {source.code(each.value) for each in around.bases}
        return owner.name.value in bases
    if isinstance(node.value, libcst.Name) and source.is_imported(node.value):
        return False
    classes = source.below(source.module, libcst.ClassDef)
    others = [each for each in classes if each is not owner and _sets(source, each, name)]
    if others:
        raise EditImpossible(
            f"{source.code(node)} may be of {owner.name.value} or of {others[0].name.value}"
        )
    return True


def is_self(source: Source, node: libcst.Attribute) -> bool:
    """Whether it is an attribute of the first parameter of the method that it stands in."""
    if not isinstance(node.value, libcst.Name):
        return False
    for function in source.around(node, libcst.FunctionDef):
        parameters = function.params.params
        names = [each.name.value for each in parameters]
        if node.value.value in names:
            is_method = isinstance(source.parent(source.parent(function)), libcst.ClassDef)
            return is_method and names[0] == node.value.value
    return False


def _declarations(
    source: Source, owner: libcst.ClassDef, name: str
) -> Iterator[libcst.Assign | libcst.AnnAssign]:
    """Statements of `__init__` itself that set it, in their order."""
    for statement in owner.body.body:
        if isinstance(statement, libcst.FunctionDef) and statement.name.value == "__init__":
            for line in statement.body.body:
                for small in line.body if isinstance(line, libcst.SimpleStatementLine) else ():
                    if isinstance(small, libcst.Assign | libcst.AnnAssign) and any(
                        isinstance(each, libcst.Attribute) and is_self(source, each)
                        for each in places(source, _left_side(small), name)
                    ):
                        yield small
                if not isinstance(line, libcst.SimpleStatementLine) and any(
                    places(source, line, name)
                ):
                    return


def _left_side(write: Write) -> libcst.CSTNode:
    """The targets of a statement, as one node."""
    if isinstance(write, libcst.Assign):
        return write.targets[0] if len(write.targets) == 1 else _several(write)
    return write.target


def _several(write: libcst.Assign) -> libcst.CSTNode:
    raise EditImpossible(
        f"`{libcst.Module([]).code_for_node(write)}` sets more than one name at once"
    )


def _is_target(source: Source, node: libcst.CSTNode) -> bool:
    parent = source.parent(node)
    if isinstance(parent, libcst.Element | libcst.Tuple | libcst.List | libcst.StarredElement):
        return _is_target(source, parent)
    if isinstance(parent, libcst.AugAssign | libcst.AnnAssign):
        return parent.target is node
    return isinstance(parent, libcst.AssignTarget | libcst.Del | libcst.For) and (
        not isinstance(parent, libcst.For) or parent.target is node
    )


def _write(source: Source, target: libcst.CSTNode) -> Write:
    """The statement that a target stands in, which sets it alone."""
    parent = source.parent(target)
    if isinstance(parent, libcst.AssignTarget):
        statement = source.parent(parent)
        if isinstance(statement, libcst.Assign) and len(statement.targets) == 1:
            return statement
    if isinstance(parent, libcst.AugAssign) or (
        isinstance(parent, libcst.AnnAssign) and parent.value is not None
    ):
        return parent
    line = source.lines_of(target).start
    raise EditImpossible(f"line {line} sets it together with others, or is not an assignment")


def _body_of(source: Source, statement: libcst.CSTNode) -> libcst.CSTNode | None:
    """The module or function whose own statement it is; None inside a loop or branch."""
    line = source.parent(statement)
    block = source.parent(line)
    if isinstance(block, libcst.Module):
        return block
    owner = source.parent(block)
    return owner if isinstance(owner, libcst.FunctionDef) else None


def _without(writes: Iterable[Write], first: Write) -> tuple[Write, ...]:
    return tuple(dict.fromkeys(write for write in writes if write is not first))


def _sorted(source: Source, nodes: Iterable[Place]) -> tuple[Place, ...]:
    return tuple(sorted(nodes, key=source.position))
