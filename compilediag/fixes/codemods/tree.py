"""The syntax tree of a file, and edits of it as replacements of its nodes.

Every codemod looks at the tree as it is, so edits of one file do not move each other's lines; all
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
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from compilediag.fixes.codemods.edit import EditImpossible

Node = TypeVar("Node", bound=libcst.CSTNode)


Made = libcst.CSTNode | libcst.FlattenSentinel[Any] | libcst.RemovalSentinel


@dataclass(frozen=True, slots=True)
class Replacement:
    """Another node in place of one of the tree."""

    node: libcst.CSTNode
    make: Callable[[Any], Made]
    """From the node, in which nodes below it may be replaced already. Equal ones are one."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """Statements before a statement, with its indentation, below its comments."""

    node: libcst.BaseStatement
    code: tuple[str, ...]


EditOfTree = Replacement | Insertion


class Source:
    """The tree of a file with the lines and parents of its nodes."""

    def __init__(self, text: str) -> None:
        """Parses a text.

        Raises:
            EditImpossible: it cannot be parsed.
        """
        try:
            wrapper = MetadataWrapper(libcst.parse_module(text))
        except libcst.ParserSyntaxError as error:
            raise EditImpossible(f"the file cannot be parsed: {error.message}") from error
        self.module = wrapper.module
        self._places = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._wrapper = wrapper

    def scope(self, node: libcst.CSTNode) -> Scope:
        """Where the names of a node get their values.

        Raises:
            EditImpossible: that is not known.
        """
        scopes = self._wrapper.resolve(ScopeProvider)
        for each in (node, *self.around(node, libcst.CSTNode)):
            if (found := scopes.get(each)) is not None:
                return found
        raise EditImpossible("the names of the file cannot be followed")

    def is_imported(self, name: libcst.Name) -> bool:
        """Whether a name is an imported one."""
        found = self.scope(name)[name.value]
        return any(isinstance(each, ImportAssignment) for each in found)

    def code(self, node: libcst.CSTNode) -> str:
        """The text of a node."""
        return self.module.code_for_node(node)

    def position(self, node: libcst.CSTNode) -> tuple[int, int]:
        """Line and column where it begins."""
        start = self._places[node].start
        return start.line, start.column

    def lines_of(self, node: libcst.CSTNode) -> range:
        """First to last line, without the comments above it."""
        place = self._places[node]
        return range(place.start.line, place.end.line + 1)

    def parent(self, node: libcst.CSTNode) -> libcst.CSTNode:
        """What a node stands in; of the module, itself."""
        return self._parents.get(node, self.module)

    def around(self, node: libcst.CSTNode, kind: type[Node]) -> Iterator[Node]:
        """The nodes of a type that a node stands in, the innermost first."""
        while node in self._parents:
            node = self.parent(node)
            if isinstance(node, kind):
                yield node

    def below(self, node: libcst.CSTNode, kind: type[Node]) -> Iterator[Node]:
        """Every node of a type below a node, in their order, and the node itself."""
        if isinstance(node, kind):
            yield node
        for child in node.children:
            yield from self.below(child, kind)

    def statement_at(self, line: int) -> libcst.SimpleStatementLine:
        """The simple statement with a line.

        Raises:
            EditImpossible: there is none.
        """
        for statement in self.below(self.module, libcst.SimpleStatementLine):
            if line in self.lines_of(statement):
                return statement
        raise EditImpossible(f"line {line} is not a statement of its own")

    def functions_at(self, line: int) -> list[libcst.FunctionDef]:
        """The functions that a line stands in, the innermost first."""
        functions = self.below(self.module, libcst.FunctionDef)
        return [each for each in functions if line in self.lines_of(each)][::-1]


def with_edits(source: Source, edits: Iterable[EditOfTree]) -> libcst.Module:
    """The tree with edits; what two of them do alike is done once.

    Raises:
        EditImpossible: two edits put something different in place of one node.
    """
    replacements: dict[libcst.CSTNode, Replacement] = {}
    insertions: dict[libcst.CSTNode, list[str]] = {}
    for edit in edits:
        if isinstance(edit, Insertion):
            insertions.setdefault(edit.node, []).extend(edit.code)
        elif replacements.setdefault(edit.node, edit).make != edit.make:
            line = source.lines_of(edit.node).start
            raise EditImpossible(f"line {line} would be edited in two ways")
    editor = _Editor(replacements, insertions)
    return source.module.visit(editor)


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
        replacement = self._replacements.get(original_node)
        if replacement is not None:
            updated_node = replacement.make(updated_node)
        code = dict.fromkeys(self._insertions.get(original_node, ()))
        return _below(list(code), updated_node) if code else updated_node


def _below(
    code: list[str], statement: libcst.SimpleStatementLine
) -> libcst.FlattenSentinel[libcst.BaseStatement]:
    first, *others = (libcst.parse_statement(line) for line in code)
    first = first.with_changes(leading_lines=statement.leading_lines)
    defines = isinstance(statement, (libcst.ClassDef, libcst.FunctionDef))
    apart = [each for each in statement.leading_lines if each.comment is None] if defines else []
    return libcst.FlattenSentinel([first, *others, statement.with_changes(leading_lines=apart)])


def with_imported(module: libcst.Module, package: str) -> libcst.Module:
    """The tree with an import of a package at its top, where the module has none."""
    imported = matchers.ImportAlias(name=matchers.Name(package), asname=None)
    if any(matchers.matches(alias, imported) for alias in _imports_of(module)):
        return module
    context = CodemodContext()
    AddImportsVisitor.add_needed_import(context, package)
    return AddImportsVisitor(context).transform_module(module)


def _imports_of(module: libcst.Module) -> Iterator[libcst.ImportAlias]:
    for statement in module.body:
        if isinstance(statement, libcst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, libcst.Import):
                    yield from small.names


def uses(node: libcst.CSTNode, package: str) -> bool:
    """Whether code below a node uses an attribute of the name of a package."""
    return bool(matchers.findall(node, matchers.Attribute(value=matchers.Name(package))))
