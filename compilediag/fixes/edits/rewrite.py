"""All edits of a file at once: text in, text out.

Three operators make them: `call` (what a call passes, and what stands before it), `wrap` (around
what is compiled, or around a hook) and `tensorize` (a number as a 0-dim tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import libcst

from compilediag.fixes.edits import call, tensorize, wrap
from compilediag.fixes.edits.effects import LITERALS, names_in
from compilediag.fixes.edits.tree import EditOfTree, Replacement, Source, with_edits, with_imports
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
    written = Source(text)
    numbers = {edit.code[0] for edit in edits if edit.kind == "number_as_tensor"}
    source = _separated(written, numbers)
    try:
        found = [
            each for edit in dict.fromkeys(edits) for each in OPERATORS[edit.kind](source, edit)
        ]
        tree = with_edits(source, found)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error
    if source is not written and not _shared_lines(written):
        edited = Source(tree.code)
        tree = with_edits(edited, [Replacement(each, _on_lines) for each in _shared_lines(edited)])
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


# Assignments of several names or attributes at once, written one by one in the same line: edits of
# one of them need a statement that sets it alone. A line each is made of them when all is edited.


def _separated(source: Source, names: set[str]) -> Source:
    """The file with `a, b = x, y` and `a = b = 0` as statements of their own where a name is one of
    these: only where the order of the assignments makes no difference."""
    found: list[Replacement] = []
    for line in source.below(source.module, libcst.SimpleStatementLine):
        small = line.body[0]
        is_alone = len(line.body) == 1
        pairs = _pairs(small) if is_alone and isinstance(small, libcst.Assign) else []
        targets = [source.code(target) for target, _ in pairs]
        set_here = {text.rpartition(".")[2] for text in targets}
        if len(pairs) < 2 or not names & set_here or len({*targets}) < len(targets):
            continue
        # What is computed from an object may depend on the attribute that it gets.
        owners = {text.rpartition(".")[0] for text in targets}
        computed = [each for _, each in pairs[1:] if not isinstance(each, (libcst.Name, *LITERALS))]
        changed = any(names_in(value) & set_here for _, value in pairs)
        if changed or any(names_in(value) & owners for value in computed):
            continue
        body = [libcst.Assign([libcst.AssignTarget(target)], value) for target, value in pairs]
        new = line.with_changes(body=body)
        found.append(Replacement(line, lambda _, new=new: new))
    return Source(with_edits(source, found).code) if found else source


def _pairs(
    assign: libcst.Assign,
) -> list[tuple[libcst.BaseAssignTargetExpression, libcst.BaseExpression]]:
    """Each variable, or attribute of one, with its value; nothing where one is something else."""
    value, targets = assign.value, [each.target for each in assign.targets]
    values = [value] * len(targets)
    if len(targets) > 1:
        is_bool = isinstance(value, libcst.Name) and value.value in ("True", "False")
        if not is_bool and not isinstance(value, (libcst.Integer, libcst.Float)):
            return []
    else:
        if not isinstance(targets[0], libcst.Tuple) or not isinstance(value, libcst.Tuple):
            return []
        elements = (*targets[0].elements, *value.elements)
        if any(isinstance(each, libcst.StarredElement) for each in elements):
            return []
        targets = [each.value for each in targets[0].elements]
        values = [each.value for each in value.elements]
    named = [each.value if isinstance(each, libcst.Attribute) else each for each in targets]
    if len(targets) != len(values) or not all(isinstance(each, libcst.Name) for each in named):
        return []
    return list(zip(targets, values, strict=True))  # pyright: ignore[reportReturnType]


def _shared_lines(source: Source) -> list[libcst.SimpleStatementLine]:
    """The lines of several statements."""
    lines = source.below(source.module, libcst.SimpleStatementLine)
    return [line for line in lines if len(line.body) > 1]


def _on_lines(
    line: libcst.SimpleStatementLine,
) -> libcst.FlattenSentinel[libcst.SimpleStatementLine]:
    """A line each for its statements."""
    alone = [small.with_changes(semicolon=libcst.MaybeSentinel.DEFAULT) for small in line.body]
    made = [libcst.SimpleStatementLine([each]) for each in alone]
    made[0] = made[0].with_changes(leading_lines=line.leading_lines)
    made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return libcst.FlattenSentinel(made)
