"""The syntax tree of an edit, by libcst, which keeps every comment and blank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import libcst
from libcst import matchers
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.metadata import CodeRange, PositionProvider

from compilediag.fixes.source_text import Edit

_TORCH = matchers.ImportAlias(name=matchers.Name("torch"), asname=None)
_CALL = matchers.SimpleStatementLine(body=[matchers.Expr(value=matchers.Call())])
_Edited = libcst.BaseStatement | libcst.FlattenSentinel[libcst.BaseStatement]


class Editor(libcst.CSTTransformer):
    """Makes edits; those that it found no statement for stay in `left`."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, edits: Sequence[Edit]) -> None:
        super().__init__()
        self.left = list(edits)
        self._unfit: list[Edit] = []

    def leave_SimpleStatementLine(  # noqa: N802 - libcst's name
        self, original_node: libcst.SimpleStatementLine, updated_node: libcst.SimpleStatementLine
    ) -> _Edited:
        place = cast("CodeRange", self.get_metadata(PositionProvider, original_node))
        lines = range(place.start.line, place.end.line + 1)
        here = [edit for edit in self.left if edit.line in lines]
        if not here:
            return updated_node
        if any(edit.kind == "unless_compiling" for edit in here) and not matchers.matches(
            original_node, _CALL
        ):
            self._unfit += here
            return updated_node
        self.left = [edit for edit in self.left if edit not in here]
        return _with(updated_node, here)

    def why(self) -> str:
        """Why the first of those that are left was not made."""
        edit = self.left[0]
        if edit in self._unfit:
            return f"line {edit.line} is more than a call whose result nobody uses"
        return f"line {edit.line} is no statement of its own"


def _with(statement: libcst.SimpleStatementLine, edits: Sequence[Edit]) -> _Edited:
    before = [line for edit in edits if edit.kind == "before" for line in edit.code]
    above = statement.leading_lines
    last: libcst.BaseStatement = statement
    if any(edit.kind == "unless_compiling" for edit in edits):
        bare = statement.with_changes(leading_lines=())
        condition = libcst.parse_expression("not torch.compiler.is_compiling()")
        last = libcst.If(condition, libcst.IndentedBlock([bare]), leading_lines=above)
    if not before:
        return last
    added = [libcst.parse_statement(line) for line in dict.fromkeys(before)]
    first = added[0].with_changes(leading_lines=above)
    return libcst.FlattenSentinel([first, *added[1:], last.with_changes(leading_lines=())])


def with_torch_imported(tree: libcst.Module) -> libcst.Module:
    """The tree with `import torch` at its top, where the module has none."""
    imports = [
        alias
        for statement in tree.body
        if isinstance(statement, libcst.SimpleStatementLine)
        for small in statement.body
        if isinstance(small, libcst.Import)
        for alias in small.names
    ]
    if any(matchers.matches(alias, _TORCH) for alias in imports):
        return tree
    context = CodemodContext()
    AddImportsVisitor.add_needed_import(context, "torch")
    return AddImportsVisitor(context).transform_module(tree)
