"""Whether what reads a Python number works as well with a 0-dim tensor in its place: only where it
is an operand, and never where Python itself needs the number (a branch, an index, a size, a text).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.tree import Source
from compilediag.fixes.codemods.variables import Place, Variable

_TAKE_TENSORS = frozenset(
    ("add", "sub", "mul", "div", "pow", "where", "add_", "sub_", "mul_", "div_", "fill_")
)
"""Functions and methods of torch that take a 0-dim tensor for a number."""

_NUMBERS = frozenset(("len", "int", "float", "round"))
_OF_SIZES = frozenset(("size", "dim", "numel", "shape", "ndim"))
_INTEGERS = frozenset(("len", "int", "min", "max", "size", "dim", "numel", "ndim"))
_LOOPED = frozenset(("range", "enumerate"))
_KEEP_INTEGERS = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.FloorDivide, libcst.Modulo)
_BRANCHES = (
    libcst.If,
    libcst.While,
    libcst.Assert,
    libcst.IfExp,
    libcst.BooleanOperation,
    libcst.Not,
    libcst.CompIf,
    libcst.For,
)


def require_tensor_use(
    source: Source, variable: Variable, read: libcst.BaseExpression, *, is_fresh: bool = False
) -> None:
    """Follows what is computed from a read until it meets a tensor.

    Args:
        source: of the file.
        variable: what is read.
        read: where.
        is_fresh: it is a new value, not the variable itself: an item of it.

    Raises:
        EditImpossible: Python needs the number there, or it cannot be followed.
    """
    _follow(source, variable, read, set(), is_fresh=is_fresh)


def _follow(
    source: Source,
    variable: Variable,
    node: libcst.BaseExpression,
    seen: set[str],
    *,
    is_fresh: bool,
) -> None:
    """`is_fresh`: it is a new value already, not the variable itself."""
    parent = source.parent(node)
    if isinstance(parent, libcst.BinaryOperation):
        other = parent.left if parent.right is node else parent.right
        if isinstance(other, libcst.SimpleString | libcst.FormattedString):
            raise _problem(source, node, "is part of a text")
        if is_number(source, variable, other):
            _follow(source, variable, parent, seen, is_fresh=True)
    elif isinstance(parent, libcst.UnaryOperation):
        if isinstance(parent.operator, libcst.Not):
            raise _problem(source, node, "decides a branch")
        _follow(source, variable, parent, seen, is_fresh=True)
    elif isinstance(parent, libcst.ComparisonTarget):
        _compared(source, variable, source.parent(parent), seen)
    elif isinstance(parent, libcst.Comparison):
        _compared(source, variable, parent, seen)
    elif isinstance(parent, libcst.Arg):
        call = source.parent(parent)
        if not isinstance(call, libcst.Call) or _name_of(call.func) not in _TAKE_TENSORS:
            raise _problem(source, node, "is passed on")
    elif isinstance(parent, libcst.Assign | libcst.AnnAssign):
        _assigned(source, variable, parent, node, seen, is_fresh=is_fresh)
    elif isinstance(parent, libcst.AugAssign):
        _added_to(source, variable, parent, node)
    elif isinstance(parent, _BRANCHES):
        raise _problem(source, node, "decides a branch")
    elif isinstance(parent, libcst.Index | libcst.Slice):
        raise _problem(source, node, "is an index")
    elif isinstance(parent, libcst.FormattedStringExpression):
        raise _problem(source, node, "is part of a text")
    else:
        raise _problem(source, node, "leaves the function, or is used in a way that is not known")


def _compared(
    source: Source, variable: Variable, comparison: libcst.CSTNode, seen: set[str]
) -> None:
    if not isinstance(comparison, libcst.Comparison) or len(comparison.comparisons) != 1:
        raise _problem(source, comparison, "compares more than two values")
    target = comparison.comparisons[0]
    in_order = libcst.LessThan | libcst.LessThanEqual | libcst.GreaterThan | libcst.GreaterThanEqual
    if not isinstance(target.operator, in_order | libcst.Equal | libcst.NotEqual):
        raise _problem(source, comparison, "decides a branch")
    _follow(source, variable, comparison, seen, is_fresh=True)


def _assigned(
    source: Source,
    variable: Variable,
    statement: libcst.Assign | libcst.AnnAssign,
    node: libcst.BaseExpression,
    seen: set[str],
    *,
    is_fresh: bool,
) -> None:
    if statement in variable.writes:
        return
    targets = (
        [each.target for each in statement.targets]
        if isinstance(statement, libcst.Assign)
        else [statement.target]
    )
    target = targets[0]
    if not is_fresh or len(targets) != 1 or not isinstance(target, libcst.Name):
        raise _problem(source, node, "is kept: it would change with the variable")
    if target.value in seen:
        return
    scope = source.scope(target)
    for assignment in scope[target.value]:
        for access in assignment.references:
            if isinstance(access.node, libcst.Name) and access.node is not target:
                _follow(source, variable, access.node, {*seen, target.value}, is_fresh=True)


def _added_to(
    source: Source, variable: Variable, statement: libcst.AugAssign, node: libcst.BaseExpression
) -> None:
    if statement in variable.writes:
        return
    if statement.target is node:
        return
    if not isinstance(statement.target, libcst.Name) or is_number(
        source, variable, statement.target
    ):
        raise _problem(source, node, "is added to another number")


def is_number(source: Source, variable: Variable, node: libcst.BaseExpression) -> bool:
    """Whether an expression is evidently a number of Python's, and no tensor."""
    if isinstance(node, libcst.Integer | libcst.Float) or node in variable.reads:
        return True
    if isinstance(node, libcst.UnaryOperation):
        return is_number(source, variable, node.expression)
    if isinstance(node, libcst.BinaryOperation):
        return is_number(source, variable, node.left) and is_number(source, variable, node.right)
    if isinstance(node, libcst.Call):
        name = _name_of(node.func)
        return name in _NUMBERS or name in _OF_SIZES or source.code(node.func).startswith("math.")
    if isinstance(node, libcst.Subscript):
        return is_number(source, variable, node.value)
    if isinstance(node, libcst.Attribute):
        return node.attr.value in _OF_SIZES or _is_set_to_number(source, variable, node)
    if isinstance(node, libcst.Name):
        values = list(_values_of(source, node))
        return bool(values) and all(is_number(source, variable, value) for value in values)
    return False


def _is_set_to_number(source: Source, variable: Variable, node: libcst.Attribute) -> bool:
    """`self.scale` of a class that sets it to a number."""
    owner = next(source.around(node, libcst.ClassDef), None)
    if owner is None or variable.owner is not owner:
        return False
    values = [
        each.value
        for each in source.below(owner, libcst.Assign)
        for target in each.targets
        if source.code(target.target) == source.code(node)
    ]
    return any(isinstance(value, libcst.Integer | libcst.Float) for value in values)


def _values_of(source: Source, node: libcst.Name) -> Iterator[libcst.BaseExpression]:
    """What is assigned to a name, where all of it is known."""
    for assignment in source.scope(node)[node.value]:
        target = getattr(assignment, "node", None)
        parent = source.parent(target) if isinstance(target, libcst.Name) else None
        statement = source.parent(parent) if isinstance(parent, libcst.AssignTarget) else None
        if not isinstance(statement, libcst.Assign) or statement.value is node:
            return
        if any(each is node for each in source.below(statement.value, libcst.Name)):
            return
        yield statement.value


def is_integer(source: Source, variable: Variable, node: libcst.BaseExpression) -> bool:
    """Whether an expression is evidently an integer, where the variable is one."""
    if isinstance(node, libcst.Integer) or node in variable.reads:
        return True
    if isinstance(node, libcst.UnaryOperation):
        return is_integer(source, variable, node.expression)
    if isinstance(node, libcst.BinaryOperation):
        parts = (node.left, node.right)
        return isinstance(node.operator, _KEEP_INTEGERS) and all(
            is_integer(source, variable, part) for part in parts
        )
    if isinstance(node, libcst.Call):
        name = _name_of(node.func)
        if name in ("min", "max"):
            return all(is_integer(source, variable, each.value) for each in node.args)
        return name in _INTEGERS
    if isinstance(node, libcst.Subscript):
        return isinstance(node.value, libcst.Attribute) and node.value.attr.value == "shape"
    return isinstance(node, libcst.Name) and _is_integer_name(source, node)


def _is_integer_name(source: Source, node: libcst.Name) -> bool:
    """A parameter that is annotated as one, or what a loop counts."""
    assignments = source.scope(node)[node.value]
    return bool(assignments) and all(
        _is_counted(source, getattr(each, "node", None)) for each in assignments
    )


def _is_counted(source: Source, target: libcst.CSTNode | None) -> bool:
    if isinstance(target, libcst.Param):
        note = target.annotation
        return note is not None and source.code(note.annotation) == "int"
    if not isinstance(target, libcst.Name):
        return False
    loop, place = source.parent(target), target
    if isinstance(loop, libcst.Element) and isinstance(source.parent(loop), libcst.Tuple):
        pair = source.parent(loop)
        if not isinstance(pair, libcst.Tuple) or pair.elements[0] is not loop:
            return False
        loop, place = source.parent(pair), pair
    if not isinstance(loop, libcst.For) or loop.target is not place:
        return False
    called = loop.iter
    name = _name_of(called.func) if isinstance(called, libcst.Call) else ""
    return name == ("range" if place is target else "enumerate")


def _name_of(function: libcst.BaseExpression) -> str:
    """The last part of a dotted name."""
    if isinstance(function, libcst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, libcst.Name) else ""


def _problem(source: Source, node: libcst.CSTNode, why: str) -> EditImpossible:
    line = source.lines_of(node).start
    return EditImpossible(f"line {line}: `{source.code(node).strip()}` {why}")


name_of_function = _name_of


def compiled_functions(source: Source, line: int) -> set[libcst.FunctionDef]:
    """Functions that compiled code may enter: the one with the line, `forward`, what is passed to
    `compile` or decorated with it, hooks, and those of the file that these call by name."""
    functions = list(source.below(source.module, libcst.FunctionDef))
    found = set(source.functions_at(line)[:1])
    passed = {
        each.value.value
        for call in source.below(source.module, libcst.Call)
        if _name_of(call.func) == "compile" or "hook" in _name_of(call.func)
        for each in call.args
        if isinstance(each.value, libcst.Name)
    }
    for each in functions:
        decorated = any("compile" in source.code(d) for d in each.decorators)
        if decorated or each.name.value in passed or each.name.value in ("forward", "__call__"):
            found.add(each)
    waiting = list(found)
    while waiting:
        called = {_name_of(call.func) for call in source.below(waiting.pop(), libcst.Call)}
        more = [each for each in functions if each.name.value in called and each not in found]
        found.update(more)
        waiting += more
    return found


def is_compiled(source: Source, read: Place, compiled: set[libcst.FunctionDef]) -> bool:
    """Whether compiled code may come to a read."""
    if any(source.around(read, libcst.Lambda)):
        return True
    return next(source.around(read, libcst.FunctionDef), None) in compiled
