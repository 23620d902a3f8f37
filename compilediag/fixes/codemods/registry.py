"""Every codemod by the kind of its edits, and all edits of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import libcst

from compilediag.fixes.codemods import (
    applied,
    arguments,
    assigned,
    branches,
    calls,
    compiled_at_all,
    computed_before,
    contexts,
    fixed_shape,
    flags,
    generators,
    global_state,
    hoisted,
    hooks,
    in_init,
    instances,
    kept_buffer,
    lazy,
    learning_rate,
    lists,
    masks,
    messages,
    neutral,
    numbers,
    operators,
    read_at_once,
    reads,
    sizes,
    statements,
    tables,
    terms,
)
from compilediag.fixes.codemods.choices import with_choices
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.separated import has_shared_lines, on_lines, separated
from compilediag.fixes.codemods.tree import EditOfTree, Source, uses, with_edits, with_imported

_OF_ONE_NAME = ("flag_as_tensor", "number_as_tensor")
"""Edits of a variable, which need statements that set nothing else."""

Codemod = Callable[[Source, Edit], Iterator[EditOfTree]]

CODEMODS: Mapping[str, Codemod] = MappingProxyType(
    {
        "applied": applied.applied,
        "argument": arguments.argument,
        "assigned": assigned.assigned,
        "before": statements.before,
        "mode": global_state.mode,
        "set_first": global_state.set_first,
        "unless_compiling": statements.unless_compiling,
        "largest_in_init": lazy.largest_in_init,
        "rate_as_tensor": learning_rate.rate_as_tensor,
        "flag_as_tensor": flags.flag_as_tensor,
        "number_as_tensor": numbers.number_as_tensor,
        "fixed_shape": fixed_shape.around,
        "fixed_shape_buckets": fixed_shape.other_buckets,
        "branch": branches.branch,
        "branch_on_size": sizes.branch_on_size,
        "message": messages.message,
        "without_disable": calls.without_disable,
        "around_call": contexts.around_call,
        "disabled_hook": hooks.disabled_hook,
        "hoisted": hoisted.hoisted,
        "keyword": arguments.keyword,
        "kept_buffer": kept_buffer.kept_buffer,
        "neutral_argument": neutral.neutral_argument,
        "registered_once": hooks.registered_once,
        "every_term": terms.every_term,
        "once_in_init": in_init.once_in_init,
        "chosen_by_buffer": instances.chosen_by_buffer,
        "padded_list": lists.padded_list,
        "own_kernel": operators.own_kernel,
        "generator_as_list": generators.generator_as_list,
        "compile_returned": compiled_at_all.compile_returned,
        "without_switch": compiled_at_all.without_switch,
        "as_list": calls.as_list,
        "as_dense": calls.as_dense,
        "masked": masks.masked,
        "as_tensor": reads.as_tensor,
        "tables_as_tensors": tables.tables_as_tensors,
        "read_at_once": read_at_once.read_at_once,
    }
)


_OF_A_FILE: Mapping[str, Callable[[Source, Sequence[Edit]], Iterator[EditOfTree]]] = (
    MappingProxyType({"computed_before": computed_before.computed_before})
)
"""Those that make all edits of their kind in a file at once."""


_SHOWN: Mapping[str, Callable[[Source, Edit], tuple[int, str]]] = MappingProxyType(
    {"disabled_hook": hooks.shown_registrations}
)


def shown_by_codemods(text: str, edit: Edit) -> tuple[int, str] | None:
    """As `edit.shown` has it."""
    found = _SHOWN.get(edit.kind)
    return found(Source(text), edit) if found is not None else None


def edited_by_codemods(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python.
    """
    try:
        return _edited(text, edits)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error


def _edited(text: str, edits: Sequence[Edit]) -> str:
    names = {edit.code[0] for edit in edits if edit.kind in _OF_ONE_NAME}
    written = Source(text)
    apart = separated(written, names)
    source = with_choices(apart, edits)
    source = sizes.with_sizes_as_tensors(source, edits)
    once = [*dict.fromkeys(edits)]
    found = [
        each for edit in once if edit.kind in CODEMODS for each in CODEMODS[edit.kind](source, edit)
    ]
    for kind, codemod in _OF_A_FILE.items():
        found += codemod(source, [edit for edit in once if edit.kind == kind])
    tree = with_edits(source, found)
    if apart is not written and not has_shared_lines(written):
        tree = on_lines(Source(tree.code)).module
    for package in ("functools", "torch", "compilediag"):
        tree = with_imported(tree, package) if uses(tree, package) else tree
    return tree.code
