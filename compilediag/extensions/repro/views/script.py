"""The script of a finding: what it stands for, what it assumes, the user's lines, the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.views import modes
from compilediag.extensions.repro.views.changes import change_of
from compilediag.extensions.repro.views.owners import INPUT, Lines, instances_program, program_of
from compilediag.extensions.repro.views.values import MAX_ELEMENTS, ones, shape_of
from compilediag.extensions.repro.views.variables import guarded_variable
from compilediag.receipt.user_line import leading_call
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord

_REASONS: Mapping[str, str] = {
    "CD116": "its guards lie in torch's own optimizer, over the state of a training run",
    "CD119": "no guard sees the change, so nothing compiles again",
    "CD150": "it has not happened yet: the next call of the run would have compiled again",
    "CD151": "it is a forecast over many values",
    "CD152": "it is the end of a series of recompiles: repeat the findings that it consists of",
    "CD153": "it depends on the autograd graph of the run",
    "CD154": "it depends on what was declared dynamic, and on the operations of the frame",
    "CD190": "no rule covers its guard",
}
"""Why codes have no small program."""

_FAMILIES: Mapping[str, str] = {
    "CD2": "a graph break comes from an operation, not from a value: its line is the program",
    "CD3": "it is about the time of steps, not about a guard",
    "CD4": "it is about CUDA graphs of the run, not about a guard",
    "CD5": "it is about a program as a whole",
    "CD9": "it is about the record of the run, not about a guard",
}
_MAX_COMMENT_CHARS = 300
_SHAPE = re.compile(r"\[[\d, ]*\]")


def script_of(
    number: int, finding: FindingRecord, quoted: Sequence[str] = (), inputs: str | None = None
) -> str:
    """The text of the script for a finding.

    Args:
        number: of the finding in its receipt.
        finding: one finding.
        quoted: the user's lines around the place to blame, as they are to be shown.
        inputs: shapes of a call of the compiled callable, as the receipt has them.

    Raises:
        ReproImpossible: there is no small program for it; the message says why.
    """
    program, assumed = _program(finding)
    shape, assumption = _input_shape(inputs)
    program = [line.replace(INPUT, ones(shape)) for line in program]
    lines = [*_head(number, finding, (*assumed, assumption)), *_quoted(finding, quoted)]
    imports = ["import enum", ""] if any("(enum.Enum)" in line for line in program) else []
    imports.append("import torch")
    if any("nn." in line for line in program):
        imports.append("from torch import nn")
    return "\n".join([*lines, "", *imports, *_spaced(program)]) + "\n"


def _spaced(program: Lines) -> Lines:
    """Two blank lines before a definition, one before a statement."""
    starts = program[0].startswith(("@", "class ", "def "))
    return ["", "", *program] if starts else ["", *program]


def _program(finding: FindingRecord) -> tuple[Lines, tuple[str, ...]]:
    rule, evidence = finding.rule, finding.evidence
    reason = _REASONS.get(rule) or _FAMILIES.get(rule[:3])
    if reason is not None:
        raise ReproImpossible(reason)
    variable = finding.variable or ""
    kind = evidence.get("kind") if isinstance(evidence.get("kind"), str) else None
    guard, source = str(evidence.get("guard") or ""), str(evidence.get("source") or "")
    if rule == "CD111":
        return modes.mode_program(kind)
    if rule == "CD112":
        return modes.backend_program(), ()
    if rule == "CD113":
        return modes.aliasing_program(guard), ()
    if rule == "CD115":
        return modes.hooks_program(variable), ("a hook was added; the run may have removed one",)
    if rule == "CD118":
        return modes.size_one_program(guard), ()
    place = guarded_variable(rule, variable.removesuffix(".__code__"), source)
    change = change_of(rule, kind, evidence)
    if any(line.startswith(f"class {place.root}(") for line in change.classes):
        raise ReproImpossible(f"{place.root!r} is the name of a class and of the variable")
    if rule == "CD117":
        return instances_program(place, change), change.assumed
    return program_of(place, change), change.assumed


def _input_shape(inputs: str | None) -> tuple[list[int], str]:
    """The shape of the tensors that are passed beside the variable, and where it is from."""
    found = _SHAPE.search(inputs or "")
    shape = shape_of(found[0]) if found else None
    if not shape or prod(shape) > MAX_ELEMENTS:
        return [2, 4], "other inputs were not recorded: a tensor [2, 4] of float32 is passed"
    return shape, f"the run was called with {inputs}: its first tensor is passed, as float32"


def _head(number: int, finding: FindingRecord, assumed: Sequence[str]) -> Lines:
    evidence = finding.evidence
    parts = [
        ("rule", f"{finding.rule} {finding.slug}"),
        ("variable", finding.variable),
        ("expected", evidence.get("expected")),
        ("met", evidence.get("actual")),
        ("guard", evidence.get("guard")),
        ("where", _where(finding)),
    ]
    return [
        f"# Finding {number}, repeated by a small program. Made by `compilediag repro`.",
        "#",
        "# This is NOT the program that was run: the functions below were written for this script.",
        "# They have the same kind of guard on a variable of the same name, with the same values.",
        "#",
        *[f"#   {label:<9} {_comment(value)}" for label, value in parts if value],
        *[f"#   {'' if i else 'assumed':<9} {_comment(text)}" for i, text in enumerate(assumed)],
        "#",
        "# Look at it with `compilediag run THIS_FILE`, or TORCH_LOGS=recompiles python THIS_FILE.",
    ]


def _quoted(finding: FindingRecord, quoted: Sequence[str]) -> Lines:
    if not quoted:
        return []
    title = f"# The lines of the run, as they read when this was written ({_where(finding)}):"
    lines = [f"#   {_comment(line)}" for line in quoted]
    return ["#", _comment(title)[:_MAX_COMMENT_CHARS], "#", *lines]


def _where(finding: FindingRecord) -> str | None:
    place, call = finding.location, leading_call(finding)
    called = f", called at {call.file}:{call.line}" if call is not None else ""
    return f"{place.file}:{place.line} in {place.function}{called}" if place else None


def _comment(text: object) -> str:
    """A text of the target on one line, which cannot leave its comment."""
    return clean(text, limit=_MAX_COMMENT_CHARS)
