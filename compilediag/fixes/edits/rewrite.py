"""All edits of a file at once: text in, text out.

Two operators make them: "call" (something is done before a call) and "wrap" (`FixedShape` around
what is compiled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.edits.tree import (
    FillTemplate,
    Insertion,
    Replacement,
    Source,
    TreeEdit,
    add_imports,
    apply_edits,
)
from compilediag.rules.changes import Edit, EditImpossible

# --- call ----------------------------------------------------------------------------------------


def insert_before(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "before": put `code`, statements of a line each, in front of the statement."""
    statement = source.find_statement(edit.line)
    used = {name for line in edit.code for name in _collect_names(libcst.parse_statement(line))}
    if inside := used & _collect_bound_names(source, statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


def _collect_names(node: libcst.CSTNode) -> set[str]:
    """Collect every name below a node, those of attributes and keywords too."""
    names = {node.value} if isinstance(node, libcst.Name) else set[str]()
    return names.union(*map(_collect_names, node.children))


def _collect_bound_names(source: Source, statement: libcst.CSTNode) -> set[str]:
    """Collect the names that only comprehensions, lambdas and `:=` in a statement give values."""
    parts = (libcst.CompFor, libcst.Lambda, libcst.NamedExpr)
    return {
        name.value
        for name in source.find_all(statement, libcst.Name)
        if source.is_bound_at(name) and any(source.find_ancestors(name, parts))
    }


# --- wrap ----------------------------------------------------------------------------------------


def wrap_in_fixed_shape(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "fixed_shape": put `compilediag.FixedShape(…, arguments)` around what is compiled under
    a name; `code` is the name and the arguments."""
    name, args = edit.code
    node = _find_compiled(source, name)
    if isinstance(node, libcst.FunctionDef):
        yield Replacement(node, _AddLineAfter(f"{name} = compilediag.FixedShape({name}, {args})"))
    else:
        yield Replacement(node.value, FillTemplate(f"compilediag.FixedShape(_, {args})"))


def _find_compiled(source: Source, name: str) -> libcst.Assign | libcst.FunctionDef:
    """Find the statement that last gives the name something: what `torch.compile` returns."""
    stmts: list[libcst.Assign | libcst.FunctionDef] = []
    for binding in source.find_all(source.module, libcst.Name):
        if binding.value != name or not source.is_bound_at(binding):
            continue
        parent = source.get_parent(binding)
        if isinstance(parent, libcst.AssignTarget):
            parent = source.get_parent(parent)
        if not isinstance(parent, (libcst.Assign, libcst.FunctionDef)):
            raise EditImpossible(f"{name} gets other values too")
        stmts.append(parent)
    if not stmts:
        raise EditImpossible(f"{name} is not set in the file")
    last = stmts[-1]
    if isinstance(last, libcst.FunctionDef):
        compiled = any(_is_compile(source, decorator.decorator) for decorator in last.decorators)
        alone = len(stmts) == 1
    else:
        is_call = isinstance(last.value, libcst.Call) and len(last.targets) == 1
        compiled = is_call and _is_compile(source, last.value)
        blocks = {_find_block(source, stmt) for stmt in stmts}
        alone = len(blocks) == 1 and all(isinstance(stmt, libcst.Assign) for stmt in stmts)
    if not compiled:
        raise EditImpossible(f"{name} is not what torch.compile gives")
    if not alone or isinstance(_find_block(source, last), libcst.ClassDef):
        raise EditImpossible(f"{name} is set at several places, or in a class")
    return last


def _is_compile(source: Source, node: libcst.BaseExpression) -> bool:
    function = node.func if isinstance(node, libcst.Call) else node
    return source.find_imported_name(function) == "torch.compile" or matchers.matches(
        function, matchers.Attribute(value=matchers.Name("torch"), attr=matchers.Name("compile"))
    )


def _find_block(source: Source, node: libcst.CSTNode) -> libcst.CSTNode:
    """Find the statement whose body a statement is in, or the module."""
    kinds = (libcst.BaseCompoundStatement, libcst.Module)
    return next(
        block for block in source.find_ancestors(node, libcst.CSTNode) if isinstance(block, kinds)
    )


@dataclass(frozen=True, slots=True)
class _AddLineAfter:
    """A statement behind a function."""

    line: str

    def __call__(self, function: libcst.FunctionDef) -> Any:
        return libcst.FlattenSentinel([function, libcst.parse_statement(f"\n\n{self.line}")])


# --- all edits of a file -------------------------------------------------------------------------

Operator = Callable[[Source, Edit], Iterator[TreeEdit]]

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "before": insert_before,
        "fixed_shape": wrap_in_fixed_shape,
    }
)
"""By `Edit.kind`. Invariant: every kind that a rule makes an edit of is one of them."""


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """Rewrite the text of a file with edits; imports that they need are added.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python; nothing is
            edited then.
    """
    source = Source(text)
    try:
        tree_edits = [
            tree_edit
            for edit in dict.fromkeys(edits)
            for tree_edit in OPERATORS[edit.kind](source, edit)
        ]
        tree = apply_edits(source, tree_edits)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error
    return add_imports(tree, ("torch", "compilediag")).code
