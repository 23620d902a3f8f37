"""All edits of a file at once: text in, text out.

Three operators make them: `call` (what a call passes, and what stands before it), `wrap` (around
what is compiled, or around a hook) and `tensorize` (a number as a 0-dim tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import libcst

from compilediag.fixes.edits import call, separate, tensorize, wrap
from compilediag.fixes.edits.tree import EditOfTree, Source, with_edits, with_imports
from compilediag.rules.changes import Edit, EditImpossible

Operator = Callable[[Source, Edit], Iterator[EditOfTree]]

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "argument": call.edit_argument,
        "assigned": call.assign_arguments,
        "before": call.insert_before,
        "disabled_hook": wrap.disable_hook,
        "fixed_shape": wrap.wrap_in_fixed_shape,
        "fixed_shape_buckets": wrap.replace_buckets,
        "keyword": call.add_keyword,
        "number_as_tensor": tensorize.make_tensor,
    }
)
"""By the kind of an edit."""


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits; imports that they need are added.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python; nothing is
            edited then.
    """
    try:
        return _rewritten(text, edits)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error


def _rewritten(text: str, edits: Sequence[Edit]) -> str:
    written = Source(text)
    numbers = {edit.code[0] for edit in edits if edit.kind == "number_as_tensor"}
    source = separate.separate_assignments(written, numbers)
    found = [each for edit in dict.fromkeys(edits) for each in OPERATORS[edit.kind](source, edit)]
    tree = with_edits(source, found)
    if source is not written and not separate.has_shared_lines(written):
        tree = separate.put_on_lines(Source(tree.code)).module
    return with_imports(tree, ("torch", "compilediag")).code


def show_edit(text: str, edit: Edit) -> tuple[int, str] | None:
    """A line of the file that an edit changes, and how it reads then, where the edit is made at
    another place than the one it names; None for other edits.

    Raises:
        EditImpossible: the edit cannot be made.
    """
    if edit.kind != "disabled_hook":
        return None
    return wrap.show_registration(Source(text), edit)
