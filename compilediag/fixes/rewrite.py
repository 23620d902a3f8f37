"""All edits of a file at once: text in, text out, by libcst: comments and layout stay as they are.

Two operators make them: "call" (something is done before a call) and "wrap" (`FixedShape` around
what is compiled). Every operator looks at the tree as it is, so edits of one file do not move each
other's lines; all replacements are made in one pass, those inside others first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import libcst
from libcst import matchers
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedName,
    QualifiedNameProvider,
    QualifiedNameSource,
)

from compilediag.rules.changes import Edit, EditImpossible

Node = TypeVar("Node", bound=libcst.CSTNode)

Made = libcst.CSTNode | libcst.FlattenSentinel[Any]

_PLACEHOLDER = "_"
_ATOMS = (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Another node in place of one of the tree."""

    node: libcst.CSTNode
    make: Callable[[Any], Made]  #: From the node, which may hold new ones. Equal ones are one.


@dataclass(frozen=True, slots=True)
class Insertion:
    """Statements before a statement, with its indentation, below its comments."""

    node: libcst.BaseStatement
    code: tuple[str, ...]


TreeEdit = Replacement | Insertion


@dataclass(frozen=True, slots=True)
class FillTemplate:
    """The text of an expression or small statement, its expression or value replaced by `_`."""

    template: str

    def __call__(self, node: Any) -> libcst.CSTNode:
        """The new node in place of an expression or assignment."""
        whole: libcst.CSTNode
        if isinstance(node, libcst.BaseExpression):
            whole, value = libcst.parse_expression(self.template), node
        else:
            line = libcst.parse_statement(self.template)
            whole = libcst.ensure_type(line, libcst.SimpleStatementLine).body[0]
            value = node.value
        if self.template.startswith(_PLACEHOLDER) and not isinstance(value, _ATOMS):
            parentheses = {"lpar": [libcst.LeftParen()], "rpar": [libcst.RightParen()]}
            value = value if value.lpar else value.with_changes(**parentheses)
        filled = matchers.replace(whole, matchers.Name(_PLACEHOLDER), value)
        return libcst.ensure_type(filled, libcst.CSTNode)


class Source:
    """The tree of a file with what libcst knows of its nodes."""

    def __init__(self, text: str) -> None:
        """Parse a text.

        Raises:
            EditImpossible: it cannot be parsed.
        """
        try:
            wrapper = MetadataWrapper(libcst.parse_module(text))
        except libcst.ParserSyntaxError as error:
            raise EditImpossible(f"the file cannot be parsed: {error.message}") from error
        # Invariant: nodes are compared by identity, and the wrapper has a copy of what was parsed.
        self.module = wrapper.module
        self._places = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._wrapper = wrapper

    def is_bound_at(self, node: libcst.CSTNode) -> bool:
        """True where a name or attribute gets another value where it stands, or loses it: in an
        assignment, a loop, a `with`, an import, a `del`, as a parameter or as a function."""
        if isinstance(self.get_parent(node), (libcst.ImportAlias, libcst.NameItem)):
            return True
        context = self._wrapper.resolve(ExpressionContextProvider).get(node)
        return context in (ExpressionContext.STORE, ExpressionContext.DEL)

    def find_imported_name(self, node: libcst.CSTNode) -> str | None:
        """Find the full name of what is imported: "torch.compile" of `t.compile` after `import
        torch as t`; None for anything else, and where it may be one of several."""
        known: Any = self._wrapper.resolve(QualifiedNameProvider).get(node, set[QualifiedName]())
        names: set[QualifiedName] = known() if callable(known) else known  # pyright: ignore[reportAssignmentType]
        imported = [name.name for name in names if name.source is QualifiedNameSource.IMPORT]
        return imported[0] if len(names) == len(imported) == 1 else None

    def get_code(self, node: libcst.CSTNode) -> str:
        """Get the text of a node."""
        return self.module.code_for_node(node)

    def get_lines(self, node: libcst.CSTNode) -> range:
        """Get the first to last line, without the comments above it."""
        place = self._places[node]
        return range(place.start.line, place.end.line + 1)

    def get_parent(self, node: libcst.CSTNode) -> libcst.CSTNode:
        """Get the node that a node stands in; of the module, itself."""
        return self._parents.get(node, self.module)

    def find_ancestors(
        self, node: libcst.CSTNode, kind: type[Node] | tuple[type[Node], ...]
    ) -> Iterator[Node]:
        """Find the nodes of a type that a node stands in, the innermost first."""
        while node in self._parents:
            node = self.get_parent(node)
            if isinstance(node, kind):
                yield node

    def find_all(self, node: libcst.CSTNode, kind: type[Node]) -> Iterator[Node]:
        """Find every node of a type below a node, in their order, and the node itself."""
        if isinstance(node, kind):
            yield node
        for child in node.children:
            yield from self.find_all(child, kind)

    def find_statement(self, line: int) -> libcst.SimpleStatementLine:
        """Find the simple statement with a line.

        Raises:
            EditImpossible: there is none.
        """
        for statement in self.find_all(self.module, libcst.SimpleStatementLine):
            if line in self.get_lines(statement):
                return statement
        raise EditImpossible(f"line {line} is not a statement of its own")


def apply_edits(source: Source, edits: Iterable[TreeEdit]) -> libcst.Module:
    """Apply edits to the tree; what two of them do alike is done once.

    Raises:
        EditImpossible: two edits put something different in place of one node.
    """
    replacements: dict[libcst.CSTNode, Replacement] = {}
    insertions: dict[libcst.CSTNode, list[str]] = {}
    for edit in edits:
        if isinstance(edit, Insertion):
            insertions.setdefault(edit.node, []).extend(edit.code)
        elif replacements.setdefault(edit.node, edit).make != edit.make:
            line = source.get_lines(edit.node).start
            raise EditImpossible(f"line {line} would be edited in two ways")
    return source.module.visit(_Editor(replacements, insertions))


class _Editor(libcst.CSTTransformer):
    def __init__(
        self,
        replacements: dict[libcst.CSTNode, Replacement],
        insertions: dict[libcst.CSTNode, list[str]],
    ) -> None:
        super().__init__()
        self._replacements = replacements
        self._insertions = insertions

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        """Edit each node once what stands in it is edited."""
        replacement = self._replacements.get(original_node)
        if replacement is not None:
            updated_node = replacement.make(updated_node)
        code = dict.fromkeys(self._insertions.get(original_node, ()))
        if not code:
            return updated_node
        first, *others = (libcst.parse_statement(line) for line in code)
        first = first.with_changes(leading_lines=updated_node.leading_lines)
        return libcst.FlattenSentinel([first, *others, updated_node.with_changes(leading_lines=())])


def add_imports(module: libcst.Module, packages: Iterable[str]) -> libcst.Module:
    """Add an import of each package that the tree uses by name and does not import."""
    for package in packages:
        used = matchers.Attribute(value=matchers.Name(package))
        if matchers.findall(module, used):
            context = CodemodContext()
            AddImportsVisitor.add_needed_import(context, package)
            module = AddImportsVisitor(context).transform_module(module)
    return module


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
