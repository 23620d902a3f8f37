"""All edits of a file at once: text in, text out.

Three operators make them: "call" (something is done before a call), "wrap"
(`FixedShape` around what is compiled) and, in its own
module, `tensorize` (a number as a 0-dim tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.edits import effects, tensorize
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
    used = {
        name for line in edit.code for name in effects.collect_names(libcst.parse_statement(line))
    }
    if inside := used & effects.collect_bound_names(source, statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


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
        "number_as_tensor": tensorize.make_tensor,
    }
)
"""By `Edit.kind`. Invariant: every kind that a rule makes an edit of is one of them."""


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """Rewrite the text of a file with edits; imports that they need are added.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python; nothing is
            edited then.
    """
    written = Source(text)
    numbers = {edit.code[0] for edit in edits if edit.kind == "number_as_tensor"}
    source = _split_assignments(written, numbers)
    try:
        tree_edits = [
            tree_edit
            for edit in dict.fromkeys(edits)
            for tree_edit in OPERATORS[edit.kind](source, edit)
        ]
        tree = apply_edits(source, tree_edits)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error
    if source is not written and not _find_shared(written):
        edited = Source(tree.code)
        tree = apply_edits(edited, [Replacement(line, _split) for line in _find_shared(edited)])
    return add_imports(tree, ("torch", "compilediag")).code


# Assignments of several names or attributes at once, written one by one in the same line: edits of
# one of them need a statement that sets it alone. A line each is made of them when all is edited.


def _split_assignments(source: Source, names: set[str]) -> Source:
    """Split `a, b = x, y` and `a = b = 0` into statements of their own where a name is one of
    these: only where the order of the assignments makes no difference."""
    replacements: list[Replacement] = []
    for line in source.find_all(source.module, libcst.SimpleStatementLine):
        small = line.body[0]
        is_alone = len(line.body) == 1
        pairs = _pair_targets(small) if is_alone and isinstance(small, libcst.Assign) else []
        targets = [source.get_code(target) for target, _ in pairs]
        set_here = {text.rpartition(".")[2] for text in targets}
        if len(pairs) < 2 or not names & set_here or len({*targets}) < len(targets):
            continue
        # What is computed from an object may depend on the attribute that it gets.
        owners = {text.rpartition(".")[0] for text in targets}
        computed = [
            value
            for _, value in pairs[1:]
            if not isinstance(value, (libcst.Name, *effects.LITERALS))
        ]
        changed = any(effects.collect_names(value) & set_here for _, value in pairs)
        if changed or any(effects.collect_names(value) & owners for value in computed):
            continue
        body = [libcst.Assign([libcst.AssignTarget(target)], value) for target, value in pairs]
        new = line.with_changes(body=body)
        replacements.append(Replacement(line, lambda _, new=new: new))
    return Source(apply_edits(source, replacements).code) if replacements else source


def _pair_targets(
    assign: libcst.Assign,
) -> list[tuple[libcst.BaseAssignTargetExpression, libcst.BaseExpression]]:
    """Pair each variable, or attribute of one, with its value; nothing where one is neither."""
    value, targets = assign.value, [target.target for target in assign.targets]
    values = [value] * len(targets)
    if len(targets) > 1:
        is_bool = isinstance(value, libcst.Name) and value.value in ("True", "False")
        if not is_bool and not isinstance(value, (libcst.Integer, libcst.Float)):
            return []
    else:
        if not isinstance(targets[0], libcst.Tuple) or not isinstance(value, libcst.Tuple):
            return []
        elements = (*targets[0].elements, *value.elements)
        if any(isinstance(element, libcst.StarredElement) for element in elements):
            return []
        targets = [element.value for element in targets[0].elements]
        values = [element.value for element in value.elements]
    named = [target.value if isinstance(target, libcst.Attribute) else target for target in targets]
    if len(targets) != len(values) or not all(isinstance(name, libcst.Name) for name in named):
        return []
    return list(zip(targets, values, strict=True))  # pyright: ignore[reportReturnType]


def _find_shared(source: Source) -> list[libcst.SimpleStatementLine]:
    lines = source.find_all(source.module, libcst.SimpleStatementLine)
    return [line for line in lines if len(line.body) > 1]


def _split(line: libcst.SimpleStatementLine) -> libcst.FlattenSentinel[libcst.SimpleStatementLine]:
    alone = [small.with_changes(semicolon=libcst.MaybeSentinel.DEFAULT) for small in line.body]
    made = [libcst.SimpleStatementLine([statement]) for statement in alone]
    made[0] = made[0].with_changes(leading_lines=line.leading_lines)
    made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return libcst.FlattenSentinel(made)
