"""All edits of a file at once: text in, text out.

Two operators make them: "call" (something else is passed in a call, or done before it) and "wrap"
(`FixedShape` around what is compiled).
"""

from __future__ import annotations

import itertools
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
from compilediag.rules.changes import Edit, EditImpossible, normalize_expression

# --- call ----------------------------------------------------------------------------------------

_NAME = "given"


def edit_argument(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "argument": pass something made of an argument. `code`: the call as `ast.unparse` has
    it, which of its arguments, and what is passed, with `_` for it: "_.contiguous()"."""
    text, index, template = edit.code
    for call in _find_calls(source, edit.line, text):
        passed = call.args[int(index)]
        if passed.star:
            raise EditImpossible(f"line {edit.line} passes what it holds, not the argument itself")
        yield Replacement(passed.value, FillTemplate(template))


def insert_before(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "before": put `code`, statements of a line each, in front of the statement."""
    statement = source.find_statement(edit.line)
    used = {name for line in edit.code for name in _collect_names(libcst.parse_statement(line))}
    if inside := used & _collect_bound_names(source, statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


def assign_arguments(source: Source, edit: Edit) -> Iterator[TreeEdit]:
    """Kind "assigned": assign arguments to variables, do something with each, and pass them.
    `code`: the call, then pairs of an argument and a statement with `{}` for its variable."""
    text = normalize_expression(edit.code[0])
    call, *others = _find_calls(source, edit.line, text)
    if others:
        raise EditImpossible(f"line {edit.line} has the call {text} more than once")
    statement = next(source.find_ancestors(call, libcst.SimpleStatementLine), None)
    if statement is None or len(statement.body) != 1:
        raise EditImpossible(f"`{source.get_code(call)}` is not in a statement of its own")
    _require_first(source, call, statement)
    wanted = [normalize_expression(text) for text in edit.code[1::2]]
    # The arguments with these texts, in their order. What is computed before one of them is
    # computed after it with the edit: that must be plain.
    missing, arguments = {*wanted}, dict[str, libcst.BaseExpression]()
    for passed in call.args:
        argument = normalize_expression(source.get_code(passed.value))
        if argument in missing and not passed.star:
            arguments[argument] = passed.value
            missing.remove(argument)
        elif missing:
            _require_plain(source, passed)
    if missing:
        raise EditImpossible(f"the call does not pass `{min(missing)}`")
    several = len(arguments) > 1
    names = {
        text: _choose_fresh_name(source, f"{_NAME}{at}" if several else _NAME)
        for at, text in enumerate(arguments, 1)
    }
    for text, value in arguments.items():
        yield Replacement(value, FillTemplate(names[text]))
    made = [f"{name} = {text}" for text, name in names.items()]
    done = [line.format(names[text]) for text, line in zip(wanted, edit.code[2::2], strict=True)]
    yield Insertion(statement, (*made, *done))


def _find_calls(source: Source, line: int, text: str) -> list[libcst.Call]:
    """Find the calls around a line that read so but for quotes, blanks, comments; one or more."""
    calls = [
        call
        for call in source.find_all(source.module, libcst.Call)
        if line in source.get_lines(call) and normalize_expression(source.get_code(call)) == text
    ]
    if not calls:
        raise EditImpossible(f"line {line} has no call {text}")
    return calls


def _is_plain(node: libcst.CSTNode) -> bool:
    """True where nothing happens when it is computed: a name with attributes, a literal."""
    if isinstance(node, libcst.Attribute):
        return _is_plain(node.value)
    plain = (libcst.Name, libcst.Integer, libcst.Float, libcst.SimpleString)
    return isinstance(node, plain)


def _require_plain(source: Source, node: libcst.BaseExpression | libcst.Arg) -> None:
    """Refuse an edit where computing an expression later may do something else; `*items` takes the
    items.

    Raises:
        EditImpossible: it is more than a name or a literal.
    """
    value = node.value if isinstance(node, libcst.Arg) and not node.star else node
    if not _is_plain(value):
        raise EditImpossible(f"`{source.get_code(node)}` would be computed later")


def _require_first(source: Source, call: libcst.Call, statement: libcst.CSTNode) -> None:
    """Refuse an edit unless a statement always evaluates a call, after plain expressions only.

    Raises:
        EditImpossible: that is not evident.
    """
    _require_plain(source, call.func)
    child: libcst.CSTNode = call
    while (parent := source.get_parent(child)) is not statement:
        if isinstance(parent, libcst.Call) and child is not parent.func:
            for operand in (parent.func, *parent.args):
                if operand is child:
                    break
                _require_plain(source, operand)
        elif isinstance(parent, libcst.BinaryOperation) and child is parent.right:
            _require_plain(source, parent.left)
        elif isinstance(parent, libcst.AugAssign):
            _require_plain(source, parent.target)
        elif not _is_evaluated_at_once(parent, child):
            raise EditImpossible(f"`{source.get_code(call)}` may not be the first that is computed")
        child = parent


def _is_evaluated_at_once(parent: libcst.CSTNode, child: libcst.CSTNode) -> bool:
    """True where a node always evaluates a child, before anything else."""
    if isinstance(parent, (libcst.Attribute, libcst.Subscript, libcst.Assign, libcst.AnnAssign)):
        return child is parent.value
    if isinstance(parent, libcst.BinaryOperation):
        return child is parent.left
    whole = (libcst.Call, libcst.Arg, libcst.Expr, libcst.Return, libcst.UnaryOperation)
    return isinstance(parent, whole)


def _collect_names(node: libcst.CSTNode) -> set[str]:
    """Collect every name below a node, those of attributes and keywords too."""
    names = {node.value} if isinstance(node, libcst.Name) else set[str]()
    return names.union(*map(_collect_names, node.children))


def _choose_fresh_name(source: Source, wanted: str) -> str:
    """Choose a name that stands nowhere in the file."""
    taken = _collect_names(source.module)
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain((wanted,), numbered) if name not in taken)


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
        "argument": edit_argument,
        "assigned": assign_arguments,
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
