"""Guards that are already false after a step: the next call will recompile.

Looked for after a step in which something compiled, at most 50 ms long. Complete for state that
the compiled code changes itself; blind to a flag that other code flips between steps, and to
guards on arguments, whose next values nobody knows.
"""

from __future__ import annotations

import time
import types

from compilediag_harness.base.session import Session
from compilediag_harness.collectors.baselines import Baselines
from compilediag_harness.collectors.false_guards import Question, false_guards
from compilediag_harness.source import source_locations
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import FalseGuard, HazardsChecked

BUDGET_S = 0.05


class HazardCollector:
    """Asks the newest cache entry of every freshly compiled frame whether it still holds."""

    def __init__(self, session: Session, baselines: Baselines, tensor_type: type) -> None:
        self._session = session
        self._baselines = baselines
        self._tensor_type = tensor_type
        self._again: list[types.CodeType] = []

    def step_ended(self, step: int, compiled: bool) -> None:
        """Checks the frames compiled in this step, and once more those that were armed in the step
        before: other code may have disarmed them meanwhile."""
        codes = [*self._baselines.take_fresh(), *self._again] if compiled or self._again else []
        self._again = []
        started = time.monotonic()
        for code in dict.fromkeys(codes):
            armed = self._check(code, step, started + BUDGET_S)
            if armed:
                self._again.append(code)
        if codes:
            self._session.charge(time.monotonic() - started)

    def _check(self, code: types.CodeType, step: int, deadline: float) -> bool:
        session, started = self._session, time.monotonic()
        baseline = self._baselines.newest(code)
        if baseline is None or source_locations.is_library(code.co_filename):
            return False
        where = source_locations.of_code(code)
        if started >= deadline:
            session.emit(
                HazardsChecked(
                    session.now(), step, where, (), 0, 0, 0.0, f"over {BUDGET_S * 1e3:.0f} ms"
                )
            )
            return False
        entries = torch_guards.cache_entries(code)
        if not entries:
            return False
        f_locals = {name: v for name, ref in baseline.roots.items() if (v := ref()) is not None}
        question = Question(code, f_locals, self._baselines, self._tensor_type, deadline, False)
        answer = false_guards(entries[0], question)
        if answer.diff.checked == 0:
            return False  # a dead entry, as at the end of the process: it tells nothing either way
        armed = tuple(guard for guard in answer.diff.guards if _foretells(guard))
        session.emit(
            HazardsChecked(
                session.now(),
                step,
                where,
                armed,
                answer.diff.checked,
                answer.diff.unevaluated,
                time.monotonic() - started,
                None if answer.finished else f"over {BUDGET_S * 1e3:.0f} ms",
            )
        )
        return bool(armed)


def _foretells(guard: FalseGuard) -> bool:
    """Whether a guard that is false between calls will be false in the next one: global modes and
    shapes of arguments are set again by then."""
    return bool(guard.source) and guard.source not in ("L", "G") and guard.leaf != "SHAPE"
