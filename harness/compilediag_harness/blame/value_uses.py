"""Uses of a number or flag in the source of the function that reads it, followed into what it
calls: whether a tensor could stand in its place. Nothing of the program is executed."""

from __future__ import annotations

import ast
import builtins
import linecache
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from compilediag_harness.blame.source_locations import is_torch
from compilediag_harness.blame.writes_in_source import find_function_around, iterate_conditions
from compilediag_harness.torch_internals.torch_graphs import classify_argument, is_symbolic
from compilediag_harness.wire import Location, UserCall, ValueUse, clip

_BEGINS = re.compile(r"\s*(?:async\s+)?def\s+(?P<name>\w+)\s*\(")
_MAX_CALLS = 4
"""Calls that a value is followed into, one within the other."""
_MAX_USES = 16
SIZES = ""
"""In place of a name: the sizes of tensors, as far as they are read one by one."""
_WHOLE = frozenset({"isinstance", "issubclass", "type", "id", "callable", "hasattr"})
"""Built-in functions that look at the object, and not at its value."""
_BOUNDS = ("min", "max")
"""Of a symbol and numbers that are written there they are symbols."""
_BY_NAME = {
    **dict.fromkeys((*_BOUNDS, "bool"), "condition"),
    **dict.fromkeys(("int", "float", "round"), "number"),
    "abs": "arithmetic",
    "range": "loop",
}
"""Built-in functions, and what they do with a number."""
_BUILTINS = frozenset(value for value in vars(builtins).values() if callable(value))
_OF_MATH = frozenset(value for value in vars(math).values() if callable(value))


def find_uses(
    readers: Iterable[tuple[Location, Mapping[str, Any]]], name: str
) -> tuple[ValueUse, ...] | None:
    """Find what functions do with the variable or attribute of a name, each kind of use in a line
    once.

    Args:
        readers: a line of each function, and the names of its module.
        name: of the variable or attribute; "['key']" of an item; `SIZES` for those of tensors.

    Returns:
        None where the source of one of them is not known, or there is none.
    """
    uses: dict[ValueUse, None] = {}
    known = False
    waiting, entered = [*readers], set[ast.AST]()
    while waiting:
        place, names = waiting.pop(0)
        function = find_function_around(place.file, place.line)
        if function is None:
            return None
        if name.startswith("[") and function not in entered:  # it may pass on what holds the item
            waiting += ((at, names) for at in _list_called(place.file, function))
        if function in entered:
            continue
        entered.add(function)
        uses.update(dict.fromkeys(_Reader(place.file, function, names, 0).follow(name)))
        known = True
    return tuple(uses)[:_MAX_USES] if known else None


def find_decided_branch(file: str, line: int) -> UserCall | None:
    """Find the branch or loop that is decided by all numbers which a line reads out of tensors,
    with the text of what is read."""
    function = find_function_around(file, line) or ast.Module([], [])
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls = [call for call in calls if call.lineno <= line <= (call.end_lineno or 0)]
    tensors = {call: tensor for call in calls if (tensor := _get_read_tensor(call)) is not None}
    decided = [*map(_Reader(file, function, {}, 0).find_decided, tensors)]
    if not decided or 0 in decided:
        return None
    # Of `int(t.item())` the inner call is the last one.
    return UserCall(file, decided[0], "", clip(ast.unparse([*tensors.values()][-1]), 200))


def _get_read_tensor(call: ast.Call) -> ast.expr | None:
    """Get what a call reads a number out of: `t` of `t.item()` and of `int(t)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value if call.func.attr == "item" and not call.args else None
    named = getattr(call.func, "id", "") in ("int", "float", "bool") and len(call.args) == 1
    return call.args[0] if named else None


def _list_called(file: str, function: ast.AST) -> Iterator[Location]:
    """List the functions of the same file that have the name of one that a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    called = {getattr(func, "attr", getattr(func, "id", "")) for func in calls}
    for number, line in enumerate(linecache.getlines(file), start=1):
        begin = _BEGINS.match(line)
        if begin is not None and begin["name"] in called:
            yield Location(file, number, begin["name"])


class _Reader:
    """A function that reads the value."""

    def __init__(self, file: str, function: ast.AST, names: Mapping[str, Any], depth: int) -> None:
        self._file, self._names, self._depth = file, names, depth
        self._nodes = [node for statement in _list_body(function) for node in ast.walk(statement)]
        self._parents = {
            id(child): node for node in self._nodes for child in ast.iter_child_nodes(node)
        }
        self._tests = {
            id(test) for statement in _list_body(function) for test in iterate_conditions(statement)
        }

    def follow(self, name: str) -> Iterator[ValueUse]:
        """Follow the value from each read of its name, and of the variables computed from it."""
        waiting, known = [(name, False)], {name}
        while waiting:
            name, mixed = waiting.pop()
            for node in self._nodes:
                if not _is_read(node, name):
                    continue
                kind, at, met = self._find_use(node, mixed=mixed)
                if met and not mixed:
                    yield self._make_use("arithmetic", node)
                if kind == "variable":
                    variables = {target.id for target in _list_targets(at)} - known
                    known |= variables
                    waiting += ((variable, met) for variable in variables)
                elif kind == "passed":
                    yield from self._enter_call(cast(ast.Call, at), node, mixed=met)
                elif kind and not (met and kind == "arithmetic"):
                    yield self._make_use(kind, at)

    def find_decided(self, read: ast.AST) -> int:
        """Find the line of the branch or loop that a number decides, whichever functions of numbers
        and variables that hold nothing else it goes through; 0 where there is none."""
        waiting, known = [read], set[str]()
        for node in waiting:
            kind, at, _ = self._find_use(node, mixed=False)
            called = getattr(getattr(at, "func", None), "id", "") if kind == "passed" else ""
            kept = isinstance(self._parents.get(id(at)), ast.Assert)  # in the graph
            if called == "range" or (kind == "condition" and not kept):
                return getattr(at, "lineno", 0)
            waiting += [at] if called in _BY_NAME else []
            for target in _list_targets(at) if kind == "variable" else ():
                named = [n for n in self._nodes if getattr(n, "id", None) == target.id]
                reads = [n for n in named if _is_read(n, target.id)]
                once = len(named) - len(reads) == 1 and target.id not in known
                waiting += reads if once else []
                known.add(target.id)
        return 0

    def _make_use(self, kind: str, at: ast.AST, callee: str = "") -> ValueUse:
        return ValueUse(kind, self._file, getattr(at, "lineno", 0), callee)

    def _find_use(self, node: ast.AST, *, mixed: bool) -> tuple[str, ast.AST, bool]:
        """Find what is done with the value of an expression, through the arithmetic around it.
        `mixed`: it was computed with something else, which may be a tensor: then so is it, and only
        what needs a number counts."""
        kind, inner = "arithmetic" if mixed else "", node
        while True:
            if id(inner) in self._tests:
                return "condition", inner, mixed
            around = self._parents.get(id(inner))
            if isinstance(around, (ast.BinOp, ast.Compare)):
                if isinstance(around, ast.Compare) and all(
                    isinstance(operator, (ast.Is, ast.IsNot)) for operator in around.ops
                ):
                    return "", around, mixed
                kind = "arithmetic"
                mixed = mixed or not all(
                    part is inner or isinstance(part, (ast.Constant, ast.operator, ast.cmpop))
                    for part in ast.iter_child_nodes(around)
                )
            elif isinstance(around, ast.UnaryOp):
                kind = "arithmetic"
            elif isinstance(around, (ast.IfExp, ast.BoolOp)):  # the value of one of its parts
                pass
            elif isinstance(around, ast.AugAssign) and inner is around.value:
                return "arithmetic", around, mixed
            elif isinstance(around, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                return ("variable" if _list_targets(around) else kind or "stored"), around, mixed
            elif isinstance(around, ast.Call) and inner is not around.func:
                return "passed", around, mixed
            elif isinstance(around, ast.Subscript) and inner is not around.value:
                mask = "arithmetic" if mixed else "index"  # `x[y > value]`
                return "slice" if kind == "slice" else mask, around, mixed
            elif isinstance(around, ast.Slice):
                kind = "slice"
            elif isinstance(around, (ast.FormattedValue, ast.JoinedStr)):
                return "text", around, mixed
            elif isinstance(around, ast.Return):
                return kind or "returned", around, mixed
            elif isinstance(around, (ast.Expr, type(None))):
                return kind, inner, mixed
            elif isinstance(around, (ast.Tuple, ast.List, ast.Starred)):
                kind = kind if kind == "slice" else "item"
            elif not isinstance(around, ast.keyword):
                return "arithmetic" if mixed else "other", around, mixed
            inner = around

    def _enter_call(self, call: ast.Call, node: ast.AST, *, mixed: bool) -> Iterator[ValueUse]:
        """Find what a call does with an argument: torch by the schemas of its operators, a function
        of Python by its own source."""
        argument = self._find_argument(call, node)
        function, shown = self._resolve(call.func), ast.unparse(call.func)
        name = shown.rpartition(".")[2]
        if function in _BUILTINS:
            others = [given for given in call.args if not any(n is node for n in ast.walk(given))]
            if name in _BOUNDS and all(isinstance(given, ast.Constant) for given in others):
                yield self._make_use("bound", call, shown)
            elif name not in _WHOLE:
                yield self._make_use(_BY_NAME.get(name, "other"), call, shown)
        elif function in _OF_MATH:
            yield self._make_use("symbolic_math" if is_symbolic(name) else "math", call, shown)
        elif mixed:
            return
        elif type(function) is types.FunctionType and self._depth < _MAX_CALLS:
            yield from self._enter_function(function, call, argument, shown)
        elif argument is None:
            yield self._make_use("item", call, shown)
        else:
            # What is no function of Python is an operator, or a method of what is a tensor.
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            of_module = owner is None or type(self._resolve(owner)) is types.ModuleType
            method = function is None and not of_module
            position = argument + method if isinstance(argument, int) else argument
            kind = classify_argument(name, position, _list_numbers(call, int(method)))
            yield self._make_use(kind or "unknown", call, shown)

    def _enter_function(
        self, function: types.FunctionType, call: ast.Call, argument: int | str | None, shown: str
    ) -> Iterator[ValueUse]:
        code = function.__code__
        tree = find_function_around(code.co_filename, code.co_firstlineno + 1)
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        parameter = argument
        if isinstance(argument, int):
            parameter = named[argument] if argument < code.co_argcount else None
        if tree is None or parameter not in named:
            yield self._make_use("unknown", call, shown)
            return
        inner = _Reader(code.co_filename, tree, function.__globals__, self._depth + 1)
        for use in inner.follow(parameter):
            # The line of torch is nobody's to change: that of its call is.
            outside = is_torch(code.co_filename)
            yield self._make_use(use.kind, call, shown) if outside else use

    @staticmethod
    def _find_argument(call: ast.Call, node: ast.AST) -> int | str | None:
        """Find the position or name of the argument that an expression is in; None inside of a
        container, or behind a star."""
        for key, value in [*enumerate(call.args), *((k.arg, k.value) for k in call.keywords)]:
            if any(part is node for part in ast.walk(value)):
                plain = not isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Starred))
                return key if plain else None
        return None

    def _resolve(self, node: ast.expr) -> Any:
        """Resolve a name by the globals of the function, without running any code of the program;
        None for what is no callable or module."""
        value: Any = None
        if isinstance(node, ast.Name):
            value = self._names.get(node.id, vars(builtins).get(node.id))
        elif isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            value = vars(owner).get(node.attr) if type(owner) is types.ModuleType else None
        known = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
        return value if type(value) in known else None


def _list_body(function: ast.AST) -> list[ast.AST]:
    body: Any = getattr(function, "body", [])
    return cast("list[ast.AST]", body) if isinstance(body, list) else [body]


def _list_targets(node: ast.AST) -> list[ast.Name]:
    targets: Any = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return [target for target in targets if isinstance(target, ast.Name)]


def _is_read(node: ast.AST, name: str) -> bool:
    if name == SIZES:
        return _is_size(node)
    named = getattr(node, "id", None) if isinstance(node, ast.Name) else None
    named = node.attr if isinstance(node, ast.Attribute) else named
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        named = f"[{node.slice.value!r}]"
    return named == name and isinstance(getattr(node, "ctx", None), ast.Load)


def _is_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    called = getattr(node, "func", None)  # of a call alone
    return getattr(called, "attr", getattr(called, "id", "")) in ("size", "numel", "len")


def _list_numbers(call: ast.Call, receiver: int) -> set[int | str]:
    """List the arguments of a call that are numbers as it is written."""
    given = [*enumerate(call.args, receiver), *((k.arg or "", k.value) for k in call.keywords)]
    return {key for key, value in given if isinstance(value, ast.Constant)}
