"""The syntax tree of a file, and edits of it as replacements of its nodes.

Every operator looks at the tree as it is, so edits of one file do not move each other's lines; all
replacements are made in one pass, those inside others first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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

from compilediag.rules.changes import EditImpossible

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
