"""What the guards of each compile cost a call: evaluated a few times when they are built, in the
compile, where torch evaluates them too."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import is_library
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import GuardsEvaluated, Location, clip

_EVALUATIONS = 9
_BUDGET_NS = 2_000_000
"""Of a compile, which takes a hundred times as long where guards are so many that this is reached.
"""

_KINDS, _LINES, _TEXTS, _TEXT_CHARS = 12, 5, 5, 160


def look(
    session: Session, compile_id: str, scope: Mapping[str, Any], guards: Iterable[Any], manager: Any
) -> float:
    """Records the guards of one compile; returns the seconds that took, which are our own."""
    started = time.monotonic()
    guards = tuple(guards)
    taken: list[float] = []
    if not any(".item()" in code for guard in guards for code in guard.code_list or ()):
        # Such a guard reads a tensor: on a device each evaluation would wait for it.
        taken = torch_guards.evaluations_us(manager, scope, _EVALUATIONS, _BUDGET_NS)
    leaves = torch_guards.evaluated(manager, _TEXTS)
    kinds = leaves.kinds.most_common(_KINDS) if leaves is not None else []
    lines = _lines(guards).most_common(_LINES)
    session.emit(
        GuardsEvaluated(
            t=session.now(),
            step=session.step,
            compile_id=compile_id,
            epoch=session.epoch,
            # The first fills what the guards remember of dicts that did not change.
            eval_us=round(median(taken[1:]), 3) if len(taken) > 1 else None,
            kinds=tuple(kind for kind, _ in kinds),
            counts=tuple(count for _, count in kinds),
            lines=tuple(Location(*line) for line, _ in lines),
            line_counts=tuple(count for _, count in lines),
            evaluated=None if leaves is None else leaves.kinds.total(),
            in_python=None if leaves is None else leaves.in_python,
            python_texts=tuple(clip(text, _TEXT_CHARS) for text in leaves.python_texts)
            if leaves is not None
            else (),
        )
    )
    return time.monotonic() - started


def _lines(guards: Iterable[Any]) -> Counter[tuple[str, int, str]]:
    """The innermost line of each guard that is neither torch's nor the standard library's."""
    library = functools.cache(is_library)
    counts: Counter[tuple[str, int, str]] = Counter()
    for guard in guards:
        # A Guard object that needed nothing to be evaluated has no code.
        for frame in reversed(guard.user_stack or ()) if guard.code_list else ():
            if not library(frame.filename):
                counts[frame.filename, frame.lineno or 0, frame.name] += 1
                break
    return counts
