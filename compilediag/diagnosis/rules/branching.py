"""What a line of source does with a value: decides by it, fills it, or only reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from compilediag_harness.blame.writes_in_source import MUTATORS, conditions_in, truth_of


def decides_by(line: str, variable: str) -> bool:
    """Whether a condition in the line reads the variable, such as "level" or "self.level": a tensor
    in its place would break the graph. False where the line is no whole statement: nothing is known
    then."""
    tree = _parsed(line)
    if tree is None or not variable:
        return False
    return any(_is(node, variable) for test in conditions_in(tree) for node in truth_of(test))


def fills(line: str, variable: str) -> bool:
    """Whether the line changes the container: an item stored, a mutating method called, `+=`. The
    object that holds it may have another name there."""
    tree = _parsed(line)
    if tree is None or not variable:
        return False
    member = variable.rpartition(".")[2]
    holder = variable.rpartition("[")[0] if variable.endswith("]") else ""
    return any(
        _is(target, variable)
        or (isinstance(target, ast.Attribute) and target.attr == member)
        or bool(holder and (source := _taken_from(target)) and _is(source, holder))
        for target in _changed(tree)
    )


def _taken_from(node: ast.AST) -> ast.expr | None:
    """The container of which an expression is some item: `seen[name]`, `seen.setdefault(name, [])`.
    Which item a constant names is known."""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in ("setdefault", "get"):
        return called.value
    return None


def takes_item(line: str, variable: str) -> bool:
    """Whether the line takes an item by the variable, `betas[t]`, and does not call it: a list of
    functions or modules is no table of numbers."""
    tree = _parsed(line)
    if tree is None or not variable:
        return False
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    items = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    return any(
        _is(part, variable)
        for item in items
        if id(item) not in called and not isinstance(item.slice, ast.Slice)
        for part in ast.walk(item.slice)
    )


_COMPUTES = (
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Module,
)


def only_computes(line: str, variable: str) -> bool:
    """Whether the line reads the variable, and only as an operand of arithmetic: not as an index, a
    bound or an argument of a call."""
    tree = _parsed(line)
    if tree is None or not variable:
        return False
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = [node for node in ast.walk(tree) if _is(node, variable)]
    return bool(found) and all(
        isinstance(around, _COMPUTES) for node in found for around in _around(node, parents)
    )


def _around(node: ast.AST, parents: Mapping[int, ast.AST]) -> Iterator[ast.AST]:
    while (parent := parents.get(id(node))) is not None:
        yield parent
        node = parent


def reads(line: str, name: str) -> bool:
    """Whether the line mentions the name."""
    return re.search(rf"\b{re.escape(name)}\b", line) is not None


def _changed(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.value
        elif isinstance(node, ast.AugAssign):
            yield node.target
        elif isinstance(node, ast.Attribute) and node.attr in MUTATORS:
            yield node.value


def _parsed(line: str) -> ast.AST | None:
    line = line.strip()
    header = line.removeprefix("el") if line.startswith("elif ") else line
    for text in (line, f"{header} pass", f"def f():\n {header}", f"def f():\n {header} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _is(node: ast.AST, variable: str) -> bool:
    """Whether an expression is the variable; displayed names may lack the `self` in front."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    spelled = ast.unparse(node)
    return spelled == variable or spelled.endswith(f".{variable}")
