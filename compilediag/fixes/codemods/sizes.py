"""Branches on one size: decided by a tensor that holds the size, every size has the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.branches import choose
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import written_in
from compilediag.fixes.codemods.placed import conditional_at
from compilediag.fixes.codemods.purity import code_of, is_number
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source, with_edits

BRANCH_ON_SIZE = "branch_on_size"
_INTEGER = matchers.Integer() | matchers.UnaryOperation(expression=matchers.Integer())
_SHAPE = matchers.Attribute(value=matchers.Name(), attr=matchers.Name("shape"))
_SIZE = matchers.OneOf(
    matchers.Call(
        func=matchers.Attribute(value=matchers.Name(), attr=matchers.Name("size")),
        args=[matchers.Arg(_INTEGER, keyword=None)],
    ),
    matchers.Subscript(
        value=_SHAPE, slice=[matchers.SubscriptElement(matchers.Index(value=_INTEGER))]
    ),
)


def with_sizes_as_tensors(source: Source, edits: Sequence[Edit]) -> Source:
    """The file with the size in the test of each such branch as a tensor, in the same lines.

    Raises:
        EditImpossible: the line has not one branch that compares a size with a number.
    """
    found = [_as_tensor(source, each) for each in edits if each.kind == BRANCH_ON_SIZE]
    return Source(with_edits(source, found).code) if found else source


def branch_on_size(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "branch_on_size": both sides are computed, and `torch.where` chooses by the size. The
    size in the test must be a tensor already."""
    yield from choose(source, edit)


def _as_tensor(source: Source, edit: Edit) -> Replacement:
    node = conditional_at(source, edit.line)
    test = node.test
    if not isinstance(test, libcst.Comparison) or len(test.comparisons) != 1:
        raise EditImpossible(f"`{code_of(test)}` is not a comparison of a size")
    size, other = test.left, test.comparisons[0].comparator
    if not matchers.matches(size, _SIZE) or not is_number(other):
        raise EditImpossible(f"`{code_of(test)}` does not compare a size with a number")
    root = size.func if isinstance(size, libcst.Call) else getattr(size, "value", size)
    owner = code_of(getattr(root, "value", root))
    for side in (node.body, node.orelse):
        if side is not None and owner in {*written_in(source, side)}:
            raise EditImpossible(f"`{owner}` is changed in a side")
    return Replacement(size, _InTensor(f"torch.full((), {{}}, device={owner}.device)"))


@dataclass(frozen=True)
class _InTensor:
    """An expression in other code."""

    code: str

    def __call__(self, node: libcst.BaseExpression) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code.format(code_of(node)))
