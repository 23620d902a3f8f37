"""The guards on the tensors that a compiled frame was given and on their sizes, as torch writes
them: from these texts follows which other sizes the graph serves. Nothing is evaluated again, and
nothing of the program's is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.guard_sources import evaluate_source
from compilediag_harness.collectors.false_guards import strip_comments
from compilediag_harness.collectors.leaf_checks import TENSOR_CHECK
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import InputsGuarded, TensorGuard

MAX_TENSORS, MAX_CONDITIONS, MAX_TEXT = 64, 256, 1024
"""Of one compile; of one with more, or with a longer text, nothing is recorded."""

_GIVEN = re.compile(r"L(\['\w+'\])(\[[^\[\]]+\])*")
"""The source of a local variable, or of a member of one that is a container."""


def record_inputs(
    session: Session, compile_id: str, scope: Mapping[str, Any], manager: Any
) -> None:
    """Record the guards of a compile that just built them, with the locals they were built for."""
    tensors = list(_iterate_tensors(scope, manager))
    conditions = [strip_comments(text) for text in torch_guards.list_size_conditions(manager)]
    few = 0 < len(tensors) <= MAX_TENSORS and len(conditions) <= MAX_CONDITIONS
    if few and max(map(len, (*conditions, *(its.source for its in tensors)))) <= MAX_TEXT:
        session.emit_in_step(
            InputsGuarded, compile_id, session.epoch, tuple(tensors), tuple(conditions)
        )


def _iterate_tensors(scope: Mapping[str, Any], manager: Any) -> Iterator[TensorGuard]:
    """Iterate over the guards on tensors among the locals."""
    for source, text in torch_guards.iterate_tensor_guards(manager):
        guard = TENSOR_CHECK.match(text) if _GIVEN.fullmatch(source) else None
        tensor = None if guard is None else evaluate_source(source, {"L": scope})
        layout = torch_guards.read_layout(tensor)
        if guard is not None and layout is not None:
            shape, strides = layout
            required = (_parse_numbers(guard[name], len(shape)) for name in ("size", "stride"))
            yield TensorGuard(source, text[: guard.start("size")], shape, strides, *required)


def _parse_numbers(text: str, count: int) -> tuple[int | None, ...]:
    """Parse "[None, 8]"; "None" stands for so many of them."""
    if text == "None":
        return (None,) * count
    numbers = text.strip("[]").split(", ") if count else ()
    return tuple(None if number == "None" else int(number) for number in numbers)
