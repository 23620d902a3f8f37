"""All edits of a file at once: text in, text out. Text is only put in, at places that the parsed
file gives, so comments and layout stay as they are.

Three operators make them: "call" (something is done before a call), "wrap" (`FixedShape` around
what is compiled) and "pass" (a keyword where it is compiled). Every operator looks at the file as
it is, so edits do not move each other's lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from compilediag.rules.changes import Edit, EditImpossible

Node = TypeVar("Node", bound=ast.AST)


class Insertion(NamedTuple):
    """Text that is put in."""

    line: int  #: From 1.
    offset: int  #: Bytes of UTF-8 of the line before it.
    text: str
    is_line: bool = False  #: A line of its own, before a statement that begins one.


def parse(text: str, error: str) -> ast.Module:
    """Parse a text.

    Raises:
        EditImpossible: it cannot be parsed; the message begins with `error`.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as why:
        raise EditImpossible(f"{error}: {why}") from why


# --- call ----------------------------------------------------------------------------------------


def insert_before(module: ast.Module, edit: Edit) -> Iterator[Insertion]:
    """Kind "before": put `code`, statements of a line each, in front of the statement."""
    simple = [its for its in _walk(module, ast.stmt) if not hasattr(its, "body")]
    here = [x for x in simple if x.lineno <= edit.line <= (x.end_lineno or 0)]
    if not here:
        raise EditImpossible(f"line {edit.line} is not a statement of its own")
    statement = min(here, key=lambda its: (its.lineno, its.col_offset))
    code = [parse(line, "the edit is not valid Python") for line in edit.code]
    used = {name.id for line in code for name in _walk(line, ast.Name)}
    if inside := used & _collect_bound_names(statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    for line in edit.code:
        yield Insertion(statement.lineno, statement.col_offset, line, is_line=True)


def _collect_bound_names(statement: ast.stmt) -> set[str]:
    """Collect the names that only comprehensions, lambdas and `:=` in a statement give values."""
    made = [its.target for its in _walk(statement, ast.comprehension)]
    made += [its.target for its in _walk(statement, ast.NamedExpr)]
    names = {name.id for node in made for name in _walk(node, ast.Name)}
    return names | {arg.arg for arg in _walk(statement, ast.arg)}


# --- wrap ----------------------------------------------------------------------------------------


def wrap_in_fixed_shape(module: ast.Module, edit: Edit) -> Iterator[Insertion]:
    """Kind "fixed_shape": put `compilediag.FixedShape(…, arguments)` around what is compiled under
    a name; `code` is the name and the arguments."""
    name, args = edit.code
    node, _ = _find_compiled(module, name)
    if isinstance(node, ast.FunctionDef):
        line = f"{' ' * node.col_offset}{name} = compilediag.FixedShape({name}, {args})"
        yield Insertion((node.end_lineno or 0) + 1, 0, f"\n\n{line}\n")
    else:
        value = node.value
        yield Insertion(value.lineno, value.col_offset, "compilediag.FixedShape(")
        yield Insertion(value.end_lineno or 0, value.end_col_offset or 0, f", {args})")


def pass_keyword(module: ast.Module, edit: Edit) -> Iterator[Insertion]:
    """Kind "compile_option": pass a keyword to the `torch.compile` that gives a name what it is;
    `code` is the name and the keyword with its value."""
    name, keyword = edit.code
    _, made = _find_compiled(module, name)
    text, back, last = f"({keyword})", 0, made
    if isinstance(made, ast.Call):
        option = keyword.partition("=")[0]
        if {its.arg for its in made.keywords} & {option, None}:
            raise EditImpossible(f"`{option}` may be passed there already")
        given = [*made.args, *made.keywords]
        last = max(given, key=lambda its: (its.end_lineno, its.end_col_offset), default=made)
        text, back = (f", {keyword}", 0) if given else (keyword, 1)
    yield Insertion(last.end_lineno or 0, (last.end_col_offset or 0) - back, text)


def _find_compiled(module: ast.Module, name: str) -> tuple[ast.Assign | ast.FunctionDef, ast.expr]:
    """Find the statement that last gives the name something: what `torch.compile` returns; and
    this call, or the decorator without one."""
    parents = {child: its for its in ast.walk(module) for child in ast.iter_child_nodes(its)}
    statements: list[ast.Assign | ast.FunctionDef] = []
    for node in ast.walk(module):
        if name in _list_bound(node):
            statement = parents[node] if isinstance(node, ast.Name) else node
            if not isinstance(statement, (ast.Assign, ast.FunctionDef)):
                raise EditImpossible(f"{name} gets other values too")
            statements.append(statement)
    if not statements:
        raise EditImpossible(f"{name} is not set in the file")
    last = max(statements, key=lambda its: its.lineno)
    made = last.decorator_list if isinstance(last, ast.FunctionDef) else [last.value]
    if isinstance(last, ast.Assign) and not isinstance(last.value, ast.Call):
        made = []
    names = _list_compile_names(module)
    of_compile = [
        its for its in made if ast.unparse(its.func if isinstance(its, ast.Call) else its) in names
    ]
    if not of_compile:
        raise EditImpossible(f"{name} is not what torch.compile gives")
    blocks = {parents[statement] for statement in statements}
    alone = len(statements) == 1 or all(isinstance(its, ast.Assign) for its in statements)
    if not alone or len(blocks) > 1 or isinstance(parents[last], ast.ClassDef):
        raise EditImpossible(f"{name} is set at several places, or in a class")
    return last, of_compile[0]


def _list_bound(node: ast.AST) -> Sequence[str | None]:
    """List the names that a node itself gives a value, or takes it from."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=name):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case _:
            return ()


def _list_compile_names(module: ast.Module) -> set[str]:
    """List what `torch.compile` is called in a file."""
    names = {"torch.compile"}
    for node in _walk(module, ast.Import):
        names |= {f"{its.asname}.compile" for its in node.names if its.name == "torch"}
    for node in _walk(module, ast.ImportFrom):
        if node.module == "torch":
            names |= {its.asname or its.name for its in node.names if its.name == "compile"}
    return names


def _walk(top: ast.AST, kind: type[Node]) -> Iterator[Node]:
    return (node for node in ast.walk(top) if isinstance(node, kind))


# --- all edits of a file -------------------------------------------------------------------------

Operator = Callable[[ast.Module, Edit], Iterator[Insertion]]

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "before": insert_before,
        "fixed_shape": wrap_in_fixed_shape,
        "compile_option": pass_keyword,
    }
)
"""By `Edit.kind`. Invariant: every kind that a rule makes an edit of is one of them."""


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """Rewrite the text of a file with edits; imports that they need are added.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python; nothing is
            edited then.
    """
    module, own = parse(text, "the file cannot be parsed"), dict.fromkeys(edits)
    wrapped = [edit.code[0] for edit in own if edit.kind == "fixed_shape"]
    if len({*wrapped}) < len(wrapped):
        raise EditImpossible(f"{wrapped[0]} would be edited in two ways")
    made = [its for edit in own for its in OPERATORS[edit.kind](module, edit)]
    insertions = dict.fromkeys([*_import(module, made), *made])
    lines = [*text.encode().splitlines(keepends=True), b""]
    newline = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    # The last place first: those before it stay where they are; of one place the first is on top.
    for its in reversed(sorted(insertions, key=lambda its: its[:2])):  # noqa: C413
        line = lines[its.line - 1]
        before, more, after = line[: its.offset], its.text.encode(), line[its.offset :]
        if its.is_line and before.strip():
            raise EditImpossible(f"line {its.line} is not a statement of its own")
        more = more.replace(b"\n", newline) + (newline + before) * its.is_line
        lines[its.line - 1] = before + more + after
    result = b"".join(lines).decode()
    parse(result, "the edit is not valid Python")
    return result


def _import(module: ast.Module, made: Sequence[Insertion]) -> Iterator[Insertion]:
    """Import the packages that edits use and the file does not, below its docstring."""
    imports = [its for its in module.body if isinstance(its, ast.Import)]
    known = {alias.asname or alias.name.partition(".")[0] for its in imports for alias in its.names}
    first = next(
        its
        for at, its in enumerate(module.body)
        if not (at == 0 and ast.get_docstring(module) is not None)
        and not (isinstance(its, ast.ImportFrom) and its.module == "__future__")
    )
    decorators = getattr(first, "decorator_list", [])
    for package in ("torch", "compilediag"):
        if package not in known and any(f"{package}." in its.text for its in made):
            yield Insertion(
                min(x.lineno for x in (first, *decorators)), 0, f"import {package}", is_line=True
            )
