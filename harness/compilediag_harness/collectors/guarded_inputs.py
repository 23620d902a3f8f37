"""The conditions on the tensors that a compiled frame was given, as torch writes them: from these
texts follows which other sizes its graph serves. Nothing of the program's is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.guard_sources import evaluate_source
from compilediag_harness.collectors.false_guards import strip_comments
from compilediag_harness.collectors.leaf_checks import TENSOR_CHECK
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import InputsGuarded, TensorGuard

MAX_TENSORS, MAX_CONDITIONS, MAX_TEXT = 64, 512, 1024
"""Of one compile; of one with more, or with a longer text, nothing is recorded."""

_GIVEN = re.compile(r"L(\['\w+'\])(\[[^\[\]]+\])*")
"""The source of a local variable, or of a member of one that is a container."""


def record_inputs(
    session: Session, compile_id: str, scope: Mapping[str, Any], manager: Any
) -> None:
    """Record those of a compile that just built its guards, with the locals it built them for."""
    tensors: list[TensorGuard] = []
    texts = [strip_comments(text) for text in torch_guards.list_size_conditions(manager)]
    for source, text in torch_guards.iterate_tensor_guards(manager):
        guard = TENSOR_CHECK.match(text) if _GIVEN.fullmatch(source) else None
        tensor = None if guard is None else evaluate_source(source, {"L": scope})
        layout = torch_guards.read_layout(tensor)
        if guard is not None and layout is not None:
            tensors.append(TensorGuard(source, text[: guard.start("size")], *layout))
            for name in ("size", "stride"):
                numbers = enumerate(guard[name].strip("[]").split(", "))
                texts += [f"{source}.{name}()[{at}] == {n}" for at, n in numbers if n.isdigit()]
    few = 0 < len(tensors) <= MAX_TENSORS and len(texts) <= MAX_CONDITIONS
    if few and max(map(len, (*texts, *(its.source for its in tensors)))) <= MAX_TEXT:
        session.emit_in_step(InputsGuarded, compile_id, session.epoch, tuple(tensors), tuple(texts))
