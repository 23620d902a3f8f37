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
    kept_in,
    reads_of,
    target_of,
    values_of,
    variable_at,
)
from compilediag.fixes.edits.tree import EditOfTree, Filled, Replacement, Source, removed
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
_OF_MODULES = ("Module", "LightningModule")

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


def make_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "number_as_tensor": make a number a tensor. `code` has the name of a number that the
    line reads (or of an attribute), and the dtype of all its values: "int64" or "float64"."""
    name, dtype = edit.code
    number = _Number(source, variable_at(source, edit.line, name))
    variable, compiled = number.variable, _compiled_functions(source, edit.line)
    yield _declared(number, dtype)
    for write in variable.writes:
        yield _in_place(number, write, dtype)
    for read in variable.reads:
        function = next(source.around(read, libcst.FunctionDef), None)
        if function in compiled or any(source.around(read, libcst.Lambda)):
            number.follow(read)
        else:
            yield Replacement(read, Filled("_.item()"))
    if variable.owner is None:
        yield from _undeclared(source, variable)


# Writes


def _declared(number: _Number, dtype: str) -> Replacement:
    """Declare the first value as a tensor: of a module a buffer that no checkpoint has."""
    source, variable = number.source, number.variable
    first, owner = variable.declared, variable.owner
    value = first.value
    if value is None or _is_no_number(value):
        raise EditImpossible(f"the first value of {variable.name} is not a number")
    if dtype == "int64" and not number.is_integer(value):
        raise EditImpossible(f"the first value of {variable.name} may not be an integer")
    text, target = source.code(value), source.code(target_of(first))
    made = f"torch.tensor({text}, dtype=torch.{dtype})"
    if text in ("0", "0.0"):
        made = f"torch.zeros((), dtype=torch.{dtype})"
    if owner is None or not owner.bases:
        return Replacement(first, Filled(f"{target} = {made}"))
    if not _is_module(source, owner, first):
        raise EditImpossible(f"{owner.name.value} is not a module whose parts are known")
    me = target.partition(".")[0]
    buffer = f'{me}.register_buffer("{variable.name}", {made}, persistent=False)'
    return Replacement(first, Filled(buffer))


def _is_no_number(value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.Name):
        return value.value == "None"
    others = (libcst.BaseDict, libcst.List, libcst.Tuple, libcst.Lambda)
    return isinstance(value, (*_TEXTS, *others))


def _is_module(source: Source, owner: libcst.ClassDef, first: libcst.CSTNode) -> bool:
    """True where it is a module of torch's, and was made one before the statement."""
    bases = [source.code(each.value) for each in owner.bases]
    is_known = any(
        base.startswith(("nn.", "torch.nn.")) or base.endswith(_OF_MODULES) for base in bases
    )
    methods = [each.name.value for each in source.below(owner, libcst.FunctionDef)]
    before = [
        source.code(call.func)
        for function in source.around(first, libcst.FunctionDef)
        for call in source.below(function, libcst.Call)
        if source.position(call) < source.position(first)
    ]
    is_made = any(text.endswith("__init__") and text != "self.__init__" for text in before)
    return is_made and (is_known or "forward" in methods)


def _in_place(number: _Number, write: Write, dtype: str) -> Replacement:
    source, method = number.source, "fill_"
    code, value = source.code(write), write.value
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
    return Replacement(write, Filled(f"{source.code(target_of(write))}.{method}(_)", is_bare=True))


def _undeclared(source: Source, variable: Variable) -> Iterator[Replacement]:
    """Remove the `nonlocal` or `global` of a name that nothing assigns any more."""
    scope = source.scope(variable.declared)
    for line in source.below(source.module, libcst.SimpleStatementLine):
        found, block = line.body[0], source.parent(line)
        if not isinstance(found, (libcst.Nonlocal, libcst.Global)) or line.leading_lines:
            continue
        names = [each.name.value for each in found.names]
        scopes = {each.scope for each in source.scope(found)[variable.name]}
        is_alone = len(line.body) == 1 and names == [variable.name]
        has_others = isinstance(block, libcst.IndentedBlock) and len(block.body) > 1
        if is_alone and has_others and scopes == {scope}:
            yield Replacement(line, removed)


# Reads


def _compiled_functions(source: Source, line: int) -> set[libcst.FunctionDef]:
    """Find the functions that compiled code may enter: the one with the line, `forward`, what is
    passed to `compile` or decorated with it, hooks, and what these call by name."""
    functions = list(source.below(source.module, libcst.FunctionDef))
    passed = {
        each.value.value
        for call in source.below(source.module, libcst.Call)
        if _last_name(call.func) == "compile" or "hook" in _last_name(call.func)
        for each in call.args
        if isinstance(each.value, libcst.Name)
    }
    entered = passed | {"forward", "__call__"}
    waiting = [
        each
        for each in functions
        if each.name.value in entered or any("compile" in source.code(d) for d in each.decorators)
    ]
    waiting += source.functions_at(line)[:1]
    found = set(waiting)
    while waiting:
        called = {_last_name(call.func) for call in source.below(waiting.pop(), libcst.Call)}
        more = [each for each in functions if each.name.value in called and each not in found]
        found.update(more)
        waiting += more
    return found


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
        parent = self.source.parent(node)
        if isinstance(parent, libcst.ComparisonTarget):
            parent = self.source.parent(parent)
        if isinstance(parent, libcst.BinaryOperation):
            other = parent.left if parent.right is node else parent.right
            if isinstance(other, _TEXTS):
                raise self._problem(node, "is part of a text")
            if self._is_number(other):
                self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.UnaryOperation):
            if isinstance(parent.operator, libcst.Not):
                raise self._problem(node, "decides a branch")
            self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.Comparison):
            if len(parent.comparisons) != 1:
                raise self._problem(parent, "compares more than two values")
            if not isinstance(parent.comparisons[0].operator, _COMPARE_TENSORS):
                raise self._problem(parent, "decides a branch")
            self.follow(parent, seen, is_fresh=True)
        elif isinstance(parent, libcst.Arg):
            call = self.source.parent(parent)
            if not isinstance(call, libcst.Call) or _last_name(call.func) not in _TAKE_TENSORS:
                raise self._problem(node, "is passed on")
        elif isinstance(parent, (libcst.Assign, libcst.AnnAssign)):
            if parent in self.variable.writes:
                return
            local = kept_in(self.source, node, parent) if is_fresh else None
            if local is None:
                raise self._problem(node, "is kept: it would change with the variable")
            for read in reads_of(self.source, local) if local.value not in seen else ():
                self.follow(read, seen | {local.value}, is_fresh=True)
        elif isinstance(parent, libcst.AugAssign):
            to, written = parent.target, parent in self.variable.writes
            to_tensor = isinstance(to, libcst.Name) and not self._is_number(to)
            if not written and to is not node and not to_tensor:
                raise self._problem(node, "is added to another number")
        else:
            unknown = "leaves the function, or is used in a way that is not known"
            raise self._problem(node, _REFUSED.get(type(parent), unknown))

    def _is_number(self, node: libcst.BaseExpression) -> bool:
        """True where an expression is evidently a number of Python's, and no tensor."""
        if isinstance(node, (libcst.Integer, libcst.Float)) or node in self.variable.reads:
            return True
        if isinstance(node, libcst.UnaryOperation):
            return self._is_number(node.expression)
        if isinstance(node, libcst.BinaryOperation):
            return self._is_number(node.left) and self._is_number(node.right)
        if isinstance(node, libcst.Call):
            is_of_math = self.source.code(node.func).startswith("math.")
            return is_of_math or _last_name(node.func) in _NUMBERS
        if isinstance(node, libcst.Subscript):
            return self._is_number(node.value)
        if isinstance(node, libcst.Attribute):
            return node.attr.value in _NUMBERS or self._is_set_to_number(node)
        if isinstance(node, libcst.Name):
            values = values_of(self.source, node)
            return bool(values) and all(map(self._is_number, values))
        return False

    def _is_set_to_number(self, node: libcst.Attribute) -> bool:
        """True for `self.scale` of the class of the variable, where that sets it to a number."""
        owner, text = next(self.source.around(node, libcst.ClassDef), None), self.source.code(node)
        if owner is None or self.variable.owner is not owner:
            return False
        return any(
            isinstance(each.value, (libcst.Integer, libcst.Float))
            for each in self.source.below(owner, libcst.Assign)
            for target in each.targets
            if self.source.code(target.target) == text
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
            name = _last_name(node.func)
            if name in ("min", "max"):
                return all(self.is_integer(each.value) for each in node.args)
            return name in _INTEGERS
        if isinstance(node, libcst.Subscript):
            return isinstance(node.value, libcst.Attribute) and node.value.attr.value == "shape"
        if not isinstance(node, libcst.Name):
            return False
        assignments = self.source.scope(node)[node.value]
        targets = [getattr(each, "node", None) for each in assignments]
        return bool(targets) and all(map(self._is_counted, targets))

    def _is_counted(self, target: libcst.CSTNode | None) -> bool:
        """True for a parameter that is annotated as an integer, or what a loop counts."""
        if isinstance(target, libcst.Param):
            note = target.annotation
            return note is not None and self.source.code(note.annotation) == "int"
        if not isinstance(target, libcst.Name):
            return False
        loop = next(self.source.around(target, (libcst.For, libcst.FunctionDef)), None)
        if not isinstance(loop, libcst.For):
            return False
        counter, function = loop.target, "range"
        if isinstance(counter, libcst.Tuple):
            counter, function = counter.elements[0].value, "enumerate"
        call = matchers.Call(func=matchers.Name(function))
        return counter is target and matchers.matches(loop.iter, call)

    def _problem(self, node: libcst.CSTNode, why: str) -> EditImpossible:
        line = self.source.lines_of(node).start
        return EditImpossible(f"line {line}: `{self.source.code(node).strip()}` {why}")


def _last_name(function: libcst.BaseExpression) -> str:
    if isinstance(function, libcst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, libcst.Name) else ""
