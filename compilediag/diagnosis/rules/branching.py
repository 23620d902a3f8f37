"""Whether a line of source decides by a value: a tensor in its place would break the graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def decides_by(line: str, variable: str) -> bool:
    """Whether a condition in the line reads the variable, such as "level" or "self.level". False
    where the line is no whole statement: nothing is known then."""
    tree = _parsed(line)
    if tree is None or not variable:
        return False
    return any(_is(node, variable) for test in _conditions(tree) for node in ast.walk(test))


def _parsed(line: str) -> ast.AST | None:
    line = line.strip()
    header = line.removeprefix("el") if line.startswith("elif ") else line
    for text in (line, f"{header} pass", f"def f():\n {header}", f"def f():\n {header} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _conditions(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield from node.values[:-1]  # of the last one only the value is used
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand


def _is(node: ast.AST, variable: str) -> bool:
    """Whether an expression is the variable; displayed names may lack the `self` in front."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    spelled = ast.unparse(node)
    return spelled == variable or spelled.endswith(f".{variable}")
