"""The effects of the names and expressions of a file: which are bound, read and written where, what
may keep an alias, what is always evaluated first, and what is constant. One answer each, for every
operator: two that differ would be a wrong proof waiting.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import libcst
from libcst.metadata import Assignment, ImportAssignment

from compilediag.fixes.edits.tree import Source
from compilediag.rules.changes import EditImpossible

Write = libcst.Assign | libcst.AnnAssign | libcst.AugAssign
NameOrAttribute = libcst.Name | libcst.Attribute

LITERALS = (libcst.Integer, libcst.Float, libcst.SimpleString)


# Constant


def is_plain(node: libcst.CSTNode) -> bool:
    """True where nothing happens when it is computed: a name with attributes, a literal."""
    if isinstance(node, libcst.Attribute):
        return is_plain(node.value)
    return isinstance(node, (libcst.Name, *LITERALS))


def require_plain(source: Source, node: libcst.BaseExpression | libcst.Arg) -> None:
    """Refuse an edit where computing an expression later may do something else; `*items` takes the
    items.

    Raises:
        EditImpossible: it is more than a name or a literal.
    """
    value = node.value if isinstance(node, libcst.Arg) and not node.star else node
    if not is_plain(value):
        raise EditImpossible(f"`{source.get_code(node)}` would be computed later")


# Always evaluated


def require_first(source: Source, call: libcst.Call, statement: libcst.CSTNode) -> None:
    """Refuse an edit unless a statement always evaluates a call, after plain expressions only.

    Raises:
        EditImpossible: that is not evident.
    """
    require_plain(source, call.func)
    child: libcst.CSTNode = call
    while (parent := source.get_parent(child)) is not statement:
        if isinstance(parent, libcst.Call) and child is not parent.func:
            for operand in (parent.func, *parent.args):
                if operand is child:
                    break
                require_plain(source, operand)
        elif isinstance(parent, libcst.BinaryOperation) and child is parent.right:
            require_plain(source, parent.left)
        elif isinstance(parent, libcst.AugAssign):
            require_plain(source, parent.target)
        elif not _is_evaluated_at_once(parent, child):
            raise EditImpossible(f"`{source.get_code(call)}` may not be the first that is computed")
        child = parent


def _is_evaluated_at_once(parent: libcst.CSTNode, child: libcst.CSTNode) -> bool:
    """True where a node always evaluates a child, before anything else."""
    if isinstance(parent, (libcst.Attribute, libcst.Subscript, libcst.Assign, libcst.AnnAssign)):
        return child is parent.value
    if isinstance(parent, libcst.BinaryOperation):
        return child is parent.left
    whole = (libcst.Call, libcst.Arg, libcst.Expr, libcst.Return, libcst.UnaryOperation)
    return isinstance(parent, whole)


# Bound


def collect_names(node: libcst.CSTNode) -> set[str]:
    """Collect every name below a node, those of attributes and keywords too."""
    names = {node.value} if isinstance(node, libcst.Name) else set[str]()
    return names.union(*map(collect_names, node.children))


def choose_fresh_name(source: Source, wanted: str) -> str:
    """Choose a name that stands nowhere in the file."""
    taken = collect_names(source.module)
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain((wanted,), numbered) if name not in taken)


def collect_bound_names(source: Source, statement: libcst.CSTNode) -> set[str]:
    """Collect the names that only comprehensions, lambdas and `:=` in a statement give values."""
    parts = (libcst.CompFor, libcst.Lambda, libcst.NamedExpr)
    return {
        name.value
        for name in source.find_all(statement, libcst.Name)
        if source.is_bound_at(name) and any(source.find_ancestors(name, parts))
    }


# Read and written


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a file, and all uses of it there. An attribute is that of one class, and of
    what the file uses its name on elsewhere; another name that of its scope."""

    name: str
    #: The statement that gives it its first value, before anything else can use it.
    declared: libcst.Assign | libcst.AnnAssign
    writes: tuple[Write, ...]  #: Every other one that gives it a value, and nothing else.
    reads: tuple[NameOrAttribute, ...]
    owner: libcst.ClassDef | None = None  #: Of an attribute.


def find_variable(source: Source, line: int, name: str) -> Variable:
    """Find the variable that a line reads: `name`, or an attribute of that name.

    Raises:
        EditImpossible: there is none, or not all uses of it can be found in the file.
    """
    uses = [use for use in _find_uses(source, source.module, name) if line in source.get_lines(use)]
    if not uses:
        raise EditImpossible(f"line {line} does not read {name}")
    if len({type(use) for use in uses}) > 1:
        raise EditImpossible(f"line {line} reads more than one variable with the name {name}")
    if isinstance(uses[0], libcst.Attribute):
        return _find_attribute(source, uses[0], name)
    return _find_local_or_global(source, uses[0], name)


def get_target(write: Write) -> libcst.BaseAssignTargetExpression:
    """Get the one target of a statement.

    Raises:
        EditImpossible: it sets several.
    """
    if not isinstance(write, libcst.Assign):
        return write.target
    if len(write.targets) > 1:
        code = libcst.Module([]).code_for_node(write)
        raise EditImpossible(f"`{code}` sets more than one name at once")
    return write.targets[0].target


def _find_uses(source: Source, below: libcst.CSTNode, name: str) -> Iterator[NameOrAttribute]:
    for node in source.find_all(below, libcst.Attribute):
        if node.attr.value == name:
            yield node
    for node in source.find_all(below, libcst.Name):
        if node.value == name and source.is_variable(node):
            yield node


def _find_local_or_global(source: Source, node: libcst.Name, name: str) -> Variable:
    known = source.get_scope(node)[name]
    bindings = [binding for binding in known if isinstance(binding, Assignment)]
    if len(bindings) < len(known) or not bindings:
        raise EditImpossible(f"{name} gets no value in this file")
    writes = [_find_write(source, binding.node) for binding in bindings]
    # Of `x += 1` the name is also what reads it: one use.
    targets = {target for write in writes for target in _find_uses(source, get_target(write), name)}
    accesses = {access.node for binding in bindings for access in binding.references} - targets
    reads = [read for read in accesses if isinstance(read, libcst.Name)]
    if len(reads) != len(accesses):
        raise EditImpossible(f"{name} is used in a way that cannot be followed")
    first = min(writes, key=lambda write: source.get_lines(write).start)
    in_scope = source.get_scope(first) is bindings[0].scope
    block = source.get_parent(
        source.get_parent(first)
    )  # of a module or function, no loop or branch
    always = isinstance(block, libcst.Module)
    always |= isinstance(source.get_parent(block), libcst.FunctionDef)
    if isinstance(first, libcst.AugAssign) or not in_scope or not always:
        raise EditImpossible(f"{name} gets its first value where it may not, or more than once")
    others = tuple(dict.fromkeys(write for write in writes if write is not first))
    return Variable(name, first, others, tuple(sorted(reads, key=source.get_position)))


def _find_attribute(source: Source, node: libcst.Attribute, name: str) -> Variable:
    # The class that sets it on `self`: the one around the line, or the only one of the file.
    owner = next(source.find_ancestors(node, libcst.ClassDef), None)
    if owner is None or not _is_of_self(source, node) or not _has_assignment(source, owner, name):
        classes = source.find_all(source.module, libcst.ClassDef)
        setting = [class_def for class_def in classes if _has_assignment(source, class_def, name)]
        if len(setting) != 1:
            raise EditImpossible(f"{len(setting)} classes of the file set {name}")
        owner = setting[0]
    if any(function.name.value == name for function in source.find_all(owner, libcst.FunctionDef)):
        raise EditImpossible(f"{name} is also a method")
    texts = source.find_all(source.module, libcst.SimpleString)
    if any(text.evaluated_value == name for text in texts):
        raise EditImpossible(f"the file has {name!r} as text: it may be used by that name")
    declared = next(_find_declarations(source, owner, name), None)
    if declared is None:
        raise EditImpossible(f"`__init__` of {owner.name.value} does not set {name} in every case")
    mine = [
        attribute
        for attribute in _find_uses(source, source.module, name)
        if isinstance(attribute, libcst.Attribute) and _is_owned_by(source, attribute, owner, name)
    ]
    writes = dict.fromkeys(
        _find_write(source, attribute) for attribute in mine if source.is_bound_at(attribute)
    )
    reads = [attribute for attribute in mine if not source.is_bound_at(attribute)]
    others = tuple(write for write in writes if write is not declared)
    return Variable(name, declared, others, tuple(sorted(reads, key=source.get_position)), owner)


def _has_assignment(source: Source, below: libcst.CSTNode, name: str) -> bool:
    return any(
        isinstance(attribute, libcst.Attribute)
        and _is_of_self(source, attribute)
        and source.is_bound_at(attribute)
        for attribute in _find_uses(source, below, name)
    )


def _is_owned_by(source: Source, node: libcst.Attribute, owner: libcst.ClassDef, name: str) -> bool:
    """True where an attribute is the class's. A call is none: it is no number that is called."""
    parent = source.get_parent(node)
    if isinstance(parent, libcst.Call) and parent.func is node:
        return False
    around = next(source.find_ancestors(node, libcst.ClassDef), None)
    if around is not None and _is_of_self(source, node):
        bases = {source.get_code(base.value) for base in around.bases}
        return around is owner or owner.name.value in bases
    if isinstance(node.value, libcst.Name):
        assignments = source.get_scope(node.value)[node.value.value]
        if any(isinstance(assignment, ImportAssignment) for assignment in assignments):
            return False
    classes = source.find_all(source.module, libcst.ClassDef)
    others = [
        class_node
        for class_node in classes
        if class_node is not owner and _has_assignment(source, class_node, name)
    ]
    if others:
        raise EditImpossible(
            f"{source.get_code(node)} may be of {owner.name.value} or of {others[0].name.value}"
        )
    return True


def _is_of_self(source: Source, node: libcst.Attribute) -> bool:
    """True where it is an attribute of the first parameter of the method that it stands in."""
    if not isinstance(node.value, libcst.Name):
        return False
    for function in source.find_ancestors(node, libcst.FunctionDef):
        names = [parameter.name.value for parameter in function.params.params]
        if node.value.value in names:
            is_method = isinstance(source.get_parent(source.get_parent(function)), libcst.ClassDef)
            return is_method and names[0] == node.value.value
    return False


def _find_declarations(
    source: Source, owner: libcst.ClassDef, name: str
) -> Iterator[libcst.Assign | libcst.AnnAssign]:
    """Find statements of `__init__` itself that set it, in their order."""
    for method in owner.body.body:
        if not isinstance(method, libcst.FunctionDef) or method.name.value != "__init__":
            continue
        for line in method.body.body:
            if not isinstance(line, libcst.SimpleStatementLine):
                if any(_find_uses(source, line, name)):
                    return
                continue
            for small in line.body:
                if isinstance(small, (libcst.Assign, libcst.AnnAssign)) and _has_assignment(
                    source, get_target(small), name
                ):
                    yield small


def _find_write(source: Source, target: libcst.CSTNode) -> Write:
    """Find the statement that a target stands in, which sets it alone."""
    parent = source.get_parent(target)
    if isinstance(parent, libcst.AssignTarget):
        statement = source.get_parent(parent)
        if isinstance(statement, libcst.Assign) and len(statement.targets) == 1:
            return statement
    if isinstance(parent, libcst.AugAssign) or (
        isinstance(parent, libcst.AnnAssign) and parent.value is not None
    ):
        return parent
    line = source.get_lines(target).start
    raise EditImpossible(f"line {line} sets it together with others, or is not an assignment")


# May keep an alias


def find_local_name(
    source: Source, node: libcst.BaseExpression, statement: libcst.Assign | libcst.AnnAssign
) -> libcst.Name | None:
    """Find the local name under which an assignment stores a value; None where the value may live
    longer: in an attribute, an item, or under several names."""
    targets = statement.targets if isinstance(statement, libcst.Assign) else (statement,)
    target = targets[0].target
    if len(targets) > 1 or statement.value is not node or not isinstance(target, libcst.Name):
        return None
    return target


def list_reads(source: Source, name: libcst.Name) -> list[libcst.Name]:
    """List the reads of the variable that is bound here."""
    return [
        access.node
        for assignment in source.get_scope(name)[name.value]
        for access in assignment.references
        if isinstance(access.node, libcst.Name) and access.node is not name
    ]


def list_values(source: Source, name: libcst.Name) -> list[libcst.BaseExpression]:
    """List the values that assignments give the variable read here; none that holds this read."""
    values: list[libcst.BaseExpression] = []
    for assignment in source.get_scope(name)[name.value]:
        target = getattr(assignment, "node", None)
        parent = source.get_parent(target) if isinstance(target, libcst.Name) else None
        stmt = source.get_parent(parent) if isinstance(parent, libcst.AssignTarget) else None
        if isinstance(stmt, libcst.Assign) and name not in source.find_all(stmt.value, libcst.Name):
            values.append(stmt.value)
    return values
