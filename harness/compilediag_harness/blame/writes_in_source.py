"""Syntax trees of functions, never executed: lines that change a variable, conditions on one."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any, cast

from compilediag_harness.base.object_graph import cache_by_code

MUTATORS = frozenset({
    *("append", "extend", "insert", "pop", "popitem", "clear", "update", "setdefault", "remove"),
    *("add", "discard", "sort", "reverse", "appendleft", "extendleft", "popleft"),
})  # fmt: skip
_OF_TENSOR = frozenset(("data", "requires_grad"))
"""Attributes of a tensor with which it becomes another one to a guard, though its name stays."""


@cache_by_code
def find_mutation_line(code: types.CodeType, name: str) -> int | None:
    """Find the first line in `code` that changes the container or tensor in a variable or attribute
    called `name`: an item stored or deleted, a mutating method called, `+=`, `.data =`."""
    for node in iterate_nodes(code):
        target: ast.expr | None = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value if node.func.attr in MUTATORS else None
        else:
            target = _find_stored_tensor(node)
        if name in (getattr(target, "id", None), getattr(target, "attr", None)):
            return getattr(target, "lineno", None)
    return None


@cache_by_code
def list_attribute_stores(code: types.CodeType, attribute: str) -> tuple[tuple[str, int], ...]:
    """List (dotted base, line) of every `base.attribute = ...` in `code`, as ("model.pos", 12), and
    of `base.attribute.data = ...`."""
    stores: list[tuple[str, int]] = []
    for node in iterate_nodes(code) if attribute in code.co_names else ():
        tensor = _find_stored_tensor(node)
        stored = node if tensor is None else tensor
        if not isinstance(stored, ast.Attribute) or stored.attr != attribute:
            continue
        base = get_dotted_name(stored.value)
        if base is not None and (stored is tensor or not isinstance(stored.ctx, ast.Load)):
            stores.append((base, stored.lineno))
    return tuple(stores)


def _find_stored_tensor(node: ast.AST) -> ast.expr | None:
    """Find the tensor of which an attribute that a guard sees is assigned: `tensor.data = ...`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return None
    return node.value if node.attr in _OF_TENSOR else None


def get_dotted_name(node: ast.expr) -> str | None:
    """Get the text "a.b.c" of a chain of plain names; None for what would have to be computed."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(names)])


def iterate_nodes(code: types.CodeType) -> Iterator[ast.AST]:
    """Iterate over a function's own nodes in source order, without functions inside it."""
    tree = parse_code(code)
    if tree is None:
        return
    only = tree.body[0] if len(tree.body) == 1 else None
    function = isinstance(only, (ast.FunctionDef, ast.AsyncFunctionDef))
    stack: list[Any] = list(reversed(only.body if function else tree.body))
    while stack:
        node = stack.pop()
        if type(node) is list:
            stack.extend(reversed(cast("list[Any]", node)))
        elif isinstance(node, ast.AST) and not isinstance(node, ast.expr_context):
            yield node
            if not isinstance(node, _INNER):
                stack.extend([getattr(node, name, None) for name in reversed(node._fields)])


_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@cache_by_code
def parse_code(code: types.CodeType) -> ast.Module | None:
    """Parse the source of a code object, with the file's line numbers; None without its source."""
    lines, first = linecache.getlines(code.co_filename), 1
    if code.co_name == "<module>":
        return parse_lines(lines, first)
    tree = _parse_function(lines, code.co_firstlineno)
    if tree is not None or (not lines and code.co_filename.startswith("<")):
        return tree  # of generated code without a text there is nothing to look for
    try:
        return parse_lines(*inspect.getsourcelines(code))
    except _UNREADABLE:
        return None


_UNREADABLE = (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


def parse_lines(lines: Sequence[str], first: int) -> ast.Module | None:
    """Parse lines of a file, the first of which has this number; None for what is no code."""
    try:
        # With the file's line numbers: lines that are empty cost less than counting each node up.
        return ast.parse("\n" * (first - 1) + textwrap.dedent("".join(lines)))
    except _UNREADABLE:
        return None


_BEGINS = re.compile(r"\s*(?:async\s+def\s|def\s|@)")
"""The first line of a function."""


def _parse_function(lines: Sequence[str], first: int, through: int = 0) -> ast.Module | None:
    """Parse the function whose text begins in a line: up to the next one that is indented no
    deeper, without the thousands of lines that a library's file may have. None where that is none,
    as where a text of several lines is indented less, or where it ends before `through`."""
    margin, last, defined = -1, 0, False
    for number in range(first, len(lines) + 1):
        text = lines[number - 1].lstrip()
        indent = len(lines[number - 1]) - len(text)
        if not text or text.startswith("#"):
            continue
        if number == first:
            margin = indent
        if indent == margin and not defined and _BEGINS.match(text):
            defined = not text.startswith("@")
        elif indent <= margin and not text.startswith((")", "]", "}")):
            break
        last = number
    return parse_lines(lines[first - 1 : last], first) if defined and last >= through else None


@functools.lru_cache(maxsize=1024)
def find_store_beside_read(file: str, line: int, attribute: str) -> int | None:
    """Find the first line of the innermost function around `line` that assigns `attribute` of the
    very expression `line` reads it of, where nothing between can make that another object."""
    function = find_function_around(file, line)
    if function is None:
        return None
    read: set[str | None] = set()
    stores: list[tuple[int, str | None]] = []
    rebound: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            rebound.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr == attribute:
            if isinstance(node.ctx, ast.Store):
                stores.append((node.lineno, get_dotted_name(node.value)))
            elif isinstance(node.ctx, ast.Load) and node.lineno == line:
                read.add(get_dotted_name(node.value))
    lines = [
        at
        for at, base in stores
        if base is not None and base in read and base.partition(".")[0] not in rebound
    ]
    return min(lines, default=None)


def iterate_conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Iterate over the expressions whose truth decides what runs: Python calls `__bool__` of a
    tensor there, and the graph breaks."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield from node.values[:-1]  # of the last one only the value is used
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand


@functools.lru_cache(maxsize=256)
def find_function_around(file: str, line: int) -> ast.AST | None:
    """Find the innermost function that a line is in."""
    lines = linecache.getlines(file)
    above = (at for at in range(min(line, len(lines)), 0, -1) if _BEGINS.match(lines[at - 1]))
    trees = (_parse_function(lines, at, through=line) for at in above)
    function = next(filter(None, (_find_innermost(tree, line) for tree in trees)), None)
    return function or _find_innermost(parse_lines(lines, 1), line)


def _find_innermost(tree: ast.Module | None, line: int) -> ast.AST | None:
    """Find the innermost function: the last that begins before the line holds it most closely."""
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)


_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@cache_by_code
def find_loop_line(code: types.CodeType, line: int) -> int | None:
    """Find the first line of the innermost loop in `code` whose body runs `line` again and again;
    None where there is none or no source. Where a comprehension shares a line with what it iterates
    over, the two cannot be separated: the caller counts how often the line ran."""
    if code.co_name in _COMPREHENSIONS:  # a function of its own before Python 3.12
        return code.co_firstlineno
    tree = parse_code(code)
    loops = [
        node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.expr | ast.stmt)
        and any(part.lineno <= line <= (part.end_lineno or 0) for part in _iterate_repeated(node))
    ]
    return max(loops, default=None)


def _iterate_repeated(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Iterate over the parts of a loop that run once an iteration; none for what is no loop."""
    if isinstance(node, ast.While):
        yield node.test
    if isinstance(node, ast.While | ast.For | ast.AsyncFor):
        yield from node.body
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        yield node.elt
    if isinstance(node, ast.DictComp):
        yield node.key
        yield node.value
    for generator in getattr(node, "generators", ()):
        yield from generator.ifs
