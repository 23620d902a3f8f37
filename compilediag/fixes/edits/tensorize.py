"""The operator "tensorize": a Python number that code changes, as a 0-dim tensor that is changed in
place: a counter, a rate, a weight. Compiled code reads its value then, where it was a constant of
the graph. A read in compiled code must be one that takes a tensor as well: only where the number is
an operand, and never where Python itself needs it (a branch, an index, a size, a text).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import libcst
from libcst import matchers

from compilediag.fixes.edits.effects import (
    Variable,
    Write,
    find_local_name,
    find_variable,
    get_target,
    list_reads,
    list_values,
)
from compilediag.fixes.edits.tree import FillTemplate, Replacement, Source, TreeEdit
from compilediag.rules.changes import Edit, EditImpossible

_IN_PLACE: Mapping[type[libcst.BaseAugOp], str] = MappingProxyType(
    {
        libcst.AddAssign: "add_",
        libcst.SubtractAssign: "sub_",
        libcst.MultiplyAssign: "mul_",
        libcst.DivideAssign: "div_",
        libcst.FloorDivideAssign: "floor_divide_",
        libcst.ModuloAssign: "remainder_",
    }
)
_MODULES = ("Module", "LightningModule")

_TAKE_TENSORS = frozenset(
    ("add", "sub", "mul", "div", "pow", "where", "add_", "sub_", "mul_", "div_", "fill_")
)
"""Functions and methods of torch that take a 0-dim tensor for a number."""

_SIZES = frozenset(("size", "dim", "numel", "ndim"))
_INTEGERS = _SIZES | {"len", "int"}
_NUMBERS = _INTEGERS | {"shape", "float", "round"}
"""Functions and attributes that give numbers of Python's, whatever they are of."""

_KEEP_INTEGERS = (libcst.Add, libcst.Subtract, libcst.Multiply, libcst.FloorDivide, libcst.Modulo)
_COMPARE_TENSORS = (
    libcst.LessThan,
    libcst.LessThanEqual,
    libcst.GreaterThan,
    libcst.GreaterThanEqual,
    libcst.Equal,
    libcst.NotEqual,
)
_TEXTS = (libcst.SimpleString, libcst.FormattedString, libcst.ConcatenatedString)
_REFUSED: Mapping[type[libcst.CSTNode], str] = MappingProxyType(
    {
        **dict.fromkeys(
            (libcst.If, libcst.While, libcst.Assert, libcst.IfExp, libcst.CompIf, libcst.For),
            "decides a branch",
        ),
        libcst.BooleanOperation: "decides a branch",
        libcst.Index: "is an index",
        libcst.Slice: "is an index",
        libcst.FormattedStringExpression: "is part of a text",
    }
)
"""Where Python itself needs a number, by what the number stands in."""


def make_tensor(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "number_as_tensor": make a number a tensor. `code` has the name of a number that the
    line reads (or of an attribute), and the dtype of all its values: "int64" or "float32"."""
    name, dtype = edit.code
    number = _Number(source, find_variable(source, edit.line, name))
    variable, compiled = number.variable, _find_compiled_functions(source, edit.line)
    yield _declare_tensor(number, dtype)
    for write in variable.writes:
        yield _write_in_place(number, write, dtype)
    for read in variable.reads:
        function = next(source.find_ancestors(read, libcst.FunctionDef), None)
        if function in compiled or any(source.find_ancestors(read, libcst.Lambda)):
            number.follow(read)
        else:
            yield Replacement(read, FillTemplate("_.item()"))
    if variable.owner is None:
        yield from _remove_declarations(source, variable)


# Writes


def _declare_tensor(number: _Number, dtype: str) -> Replacement:
    """Declare the first value as a tensor: of a module a buffer that no checkpoint has."""
    source, variable = number.source, number.variable
    first, owner = variable.declared, variable.owner
    value = first.value
    if value is None or _is_no_number(value):
        raise EditImpossible(f"the first value of {variable.name} is not a number")
    if dtype == "int64" and not number.is_integer(value):
        raise EditImpossible(f"the first value of {variable.name} may not be an integer")
    text, target = source.get_code(value), source.get_code(get_target(first))
    made = f"torch.tensor({text}, dtype=torch.{dtype})"
    if text in ("0", "0.0"):
        made = f"torch.zeros((), dtype=torch.{dtype})"
    if owner is None or not owner.bases:
        return Replacement(first, FillTemplate(f"{target} = {made}"))
    if not _is_module(source, owner, first):
        raise EditImpossible(f"{owner.name.value} is not a module whose parts are known")
    me = target.partition(".")[0]
    buffer = f'{me}.register_buffer("{variable.name}", {made}, persistent=False)'
    return Replacement(first, FillTemplate(buffer))


def _is_no_number(value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.Name):
        return value.value == "None"
    others = (libcst.BaseDict, libcst.List, libcst.Tuple, libcst.Lambda)
    return isinstance(value, (*_TEXTS, *others))


def _is_module(source: Source, owner: libcst.ClassDef, first: libcst.CSTNode) -> bool:
    """True where it is a module of torch's, and was made one before the statement."""
    bases = [source.get_code(base.value) for base in owner.bases]
    known = any(base.startswith(("nn.", "torch.nn.")) or base.endswith(_MODULES) for base in bases)
    methods = [function.name.value for function in source.find_all(owner, libcst.FunctionDef)]
    before = [
        source.get_code(call.func)
        for function in source.find_ancestors(first, libcst.FunctionDef)
        for call in source.find_all(function, libcst.Call)
        if source.get_position(call) < source.get_position(first)
    ]
    is_made = any(text.endswith("__init__") and text != "self.__init__" for text in before)
    return is_made and (known or "forward" in methods)


def _write_in_place(number: _Number, write: Write, dtype: str) -> Replacement:
    source, method = number.source, "fill_"
    code, value = source.get_code(write), write.value
    operator = write.operator if isinstance(write, libcst.AugAssign) else None
    if dtype == "int64":
        is_fraction = isinstance(operator, libcst.DivideAssign)
        if is_fraction or value is None or not number.is_integer(value):
            raise EditImpossible(f"`{code}` may set {number.variable.name} to no integer")
    if operator is not None:
        method = _IN_PLACE.get(type(operator), "")
        if not method:
            raise EditImpossible(f"`{code}` has no method that does it in place")
    elif value is None or _is_no_number(value):
        raise EditImpossible(f"`{code}` sets no number")
    return Replacement(
        write, FillTemplate(f"{source.get_code(get_target(write))}.{method}(_)", is_bare=True)
    )


def _remove_declarations(source: Source, variable: Variable) -> Iterator[Replacement]:
    """Remove the `nonlocal` or `global` of a name that nothing assigns any more."""
    scope = source.get_scope(variable.declared)
    for line in source.find_all(source.module, libcst.SimpleStatementLine):
        statement, block = line.body[0], source.get_parent(line)
        if not isinstance(statement, (libcst.Nonlocal, libcst.Global)) or line.leading_lines:
            continue
        names = [declared.name.value for declared in statement.names]
        scopes = {assignment.scope for assignment in source.get_scope(statement)[variable.name]}
        is_alone = len(line.body) == 1 and names == [variable.name]
        has_others = isinstance(block, libcst.IndentedBlock) and len(block.body) > 1
        if is_alone and has_others and scopes == {scope}:
            yield Replacement(line, lambda _: libcst.RemoveFromParent())


# Reads


def _find_compiled_functions(source: Source, line: int) -> set[libcst.FunctionDef]:
    """Find the functions that compiled code may enter: the one with the line, `forward`, what is
    passed to `compile` or decorated with it, hooks, and what these call by name."""
    functions = list(source.find_all(source.module, libcst.FunctionDef))
    passed = {
        argument.value.value
        for call in source.find_all(source.module, libcst.Call)
        if _get_last_name(call.func) == "compile" or "hook" in _get_last_name(call.func)
        for argument in call.args
        if isinstance(argument.value, libcst.Name)
    }
    entry_names = passed | {"forward", "__call__"}
    waiting = [
        function
        for function in functions
        if function.name.value in entry_names
        or any("compile" in source.get_code(d) for d in function.decorators)
    ]
    waiting += [function for function in functions if line in source.get_lines(function)][-1:]
    compiled = set(waiting)
    while waiting:
        called = {_get_last_name(call.func) for call in source.find_all(waiting.pop(), libcst.Call)}
        more = [
            function
            for function in functions
            if function.name.value in called and function not in compiled
        ]
        compiled.update(more)
        waiting += more
    return compiled


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of a file: what its uses and values are."""

    source: Source
    variable: Variable

    def follow(
        self,
        node: libcst.BaseExpression,
        seen: frozenset[str] = frozenset(),
        *,
        is_fresh: bool = False,
    ) -> None:
        """Follow what is computed from a read until it meets a tensor. `is_fresh`: that is a new
        value already, not the variable itself; `seen`: the names that held it on the way.

        Raises:
            EditImpossible: Python needs the number there, or it cannot be followed.
        """
        parent = self.source.get_parent(node)
        if isinstance(parent, libcst.ComparisonTarget):
            parent = self.source.get_parent(parent)
        if isinstance(parent, libcst.BinaryOperation):
            other = parent.left if parent.right is node else parent.right
            if isinstance(other, _TEXTS):
                raise self._make_error(node, "is part of a text")
            if self._is_number(other):
                self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.UnaryOperation):
            if isinstance(parent.operator, libcst.Not):
                raise self._make_error(node, "decides a branch")
            self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.Comparison):
            if len(parent.comparisons) != 1:
                raise self._make_error(parent, "compares more than two values")
            if not isinstance(parent.comparisons[0].operator, _COMPARE_TENSORS):
                raise self._make_error(parent, "decides a branch")
            self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.Arg):
            call = self.source.get_parent(parent)
            if not isinstance(call, libcst.Call) or _get_last_name(call.func) not in _TAKE_TENSORS:
                raise self._make_error(node, "is passed on")
        elif isinstance(parent, (libcst.Assign, libcst.AnnAssign)):
            if parent in self.variable.writes:
                return
            local = find_local_name(self.source, node, parent) if is_fresh else None
            if local is None:
                raise self._make_error(node, "is stored: it would change with the variable")
            for read in list_reads(self.source, local) if local.value not in seen else ():
                self.follow(read, seen | {local.value}, is_fresh=True)
        elif isinstance(parent, libcst.AugAssign):
            to, written = parent.target, parent in self.variable.writes
            to_tensor = isinstance(to, libcst.Name) and not self._is_number(to)
            if not written and to is not node and not to_tensor:
                raise self._make_error(node, "is added to another number")
        else:
            unknown = "leaves the function, or is used in a way that is not known"
            raise self._make_error(node, _REFUSED.get(type(parent), unknown))

    def _is_number(self, node: libcst.BaseExpression) -> bool:
        """True where an expression is evidently a number of Python's, and no tensor."""
        if isinstance(node, (libcst.Integer, libcst.Float)) or node in self.variable.reads:
            return True
        if isinstance(node, libcst.UnaryOperation):
            return self._is_number(node.expression)
        if isinstance(node, libcst.BinaryOperation):
            return self._is_number(node.left) and self._is_number(node.right)
        if isinstance(node, libcst.Call):
            is_of_math = self.source.get_code(node.func).startswith("math.")
            return is_of_math or _get_last_name(node.func) in _NUMBERS
        if isinstance(node, libcst.Subscript):
            return self._is_number(node.value)
        if isinstance(node, libcst.Attribute):
            return node.attr.value in _NUMBERS or self._is_set_to_number(node)
        if isinstance(node, libcst.Name):
            values = list_values(self.source, node)
            return bool(values) and all(map(self._is_number, values))
        return False

    def _is_set_to_number(self, node: libcst.Attribute) -> bool:
        """True for `self.scale` of the class of the variable, where that sets it to a number."""
        owner, text = (
            next(self.source.find_ancestors(node, libcst.ClassDef), None),
            self.source.get_code(node),
        )
        if owner is None or self.variable.owner is not owner:
            return False
        return any(
            isinstance(statement.value, (libcst.Integer, libcst.Float))
            for statement in self.source.find_all(owner, libcst.Assign)
            for target in statement.targets
            if self.source.get_code(target.target) == text
        )

    def is_integer(self, node: libcst.BaseExpression) -> bool:
        """True where an expression is evidently an integer, where the variable is one."""
        if isinstance(node, libcst.Integer) or node in self.variable.reads:
            return True
        if isinstance(node, libcst.UnaryOperation):
            return self.is_integer(node.expression)
        if isinstance(node, libcst.BinaryOperation):
            keeps = isinstance(node.operator, _KEEP_INTEGERS)
            return keeps and self.is_integer(node.left) and self.is_integer(node.right)
        if isinstance(node, libcst.Call):
            name = _get_last_name(node.func)
            if name in ("min", "max"):
                return all(self.is_integer(argument.value) for argument in node.args)
            return name in _INTEGERS
        if isinstance(node, libcst.Subscript):
            return isinstance(node.value, libcst.Attribute) and node.value.attr.value == "shape"
        if not isinstance(node, libcst.Name):
            return False
        assignments = self.source.get_scope(node)[node.value]
        targets = [getattr(assignment, "node", None) for assignment in assignments]
        return bool(targets) and all(map(self._is_counted, targets))

    def _is_counted(self, target: libcst.CSTNode | None) -> bool:
        """True for a parameter that is annotated as an integer, or what a loop counts."""
        if isinstance(target, libcst.Param):
            note = target.annotation
            return note is not None and self.source.get_code(note.annotation) == "int"
        if not isinstance(target, libcst.Name):
            return False
        loop = next(self.source.find_ancestors(target, (libcst.For, libcst.FunctionDef)), None)
        if not isinstance(loop, libcst.For):
            return False
        counter, function = loop.target, "range"
        if isinstance(counter, libcst.Tuple):
            counter, function = counter.elements[0].value, "enumerate"
        call = matchers.Call(func=matchers.Name(function))
        return counter is target and matchers.matches(loop.iter, call)

    def _make_error(self, node: libcst.CSTNode, why: str) -> EditImpossible:
        line = self.source.get_lines(node).start
        return EditImpossible(f"line {line}: `{self.source.get_code(node).strip()}` {why}")


def _get_last_name(function: libcst.BaseExpression) -> str:
    if isinstance(function, libcst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, libcst.Name) else ""
