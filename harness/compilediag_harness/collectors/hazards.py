"""Guards that are already false after a step: the next call will recompile.

Looked for after a step in which something compiled, at most 50 ms long. Complete for state that
the compiled code changes itself; blind to a flag that other code flips between steps, and to
guards on arguments, whose next values are not known.
"""

from __future__ import annotations

import time
import types
from typing import TYPE_CHECKING

from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.collectors.baselines import Baselines
from compilediag_harness.collectors.false_guards import GuardValues, described
from compilediag_harness.collectors.leaf_checks import LeafChecks
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import FalseGuard, HazardsChecked

if TYPE_CHECKING:
    from compilediag_harness.blame.witness import Witness

_HAZARD_BUDGET_S = 0.05
"""CPU seconds of all checks after one step: what is left out does not depend on the load."""


class HazardCollector:
    """Checks whether the newest cache entry of every freshly compiled frame still holds."""

    def __init__(
        self, session: Session, baselines: Baselines, witness: Witness | None = None
    ) -> None:
        self._session = session
        self._baselines = baselines
        self._witness = witness
        self._again: list[types.CodeType] = []

    def step_ended(self, step: int, compiled: bool) -> None:
        """Checks the frames compiled in this step, and once more those that were armed in the step
        before: other code may have disarmed them meanwhile."""
        codes = [*self._baselines.take_fresh(), *self._again] if compiled or self._again else []
        self._again = []
        started, deadline = time.monotonic(), time.thread_time() + _HAZARD_BUDGET_S
        for code in dict.fromkeys(codes):
            if self._check(code, step, deadline):
                self._again.append(code)
        if codes:
            self._session.charge(time.monotonic() - started)

    def _check(self, code: types.CodeType, step: int, deadline: float) -> bool:
        session, started = self._session, time.monotonic()
        baseline = self._baselines.newest(code)
        if baseline is None or source_locations.is_library(code.co_filename):
            return False
        where, over = source_locations.location_of(code), f"over {_HAZARD_BUDGET_S * 1e3:.0f} ms"
        if time.thread_time() >= deadline:
            session.emit(HazardsChecked(session.now(), step, where, (), 0, 0, 0.0, over))
            return False
        # Only the first: an entry that was compiled earlier may well be false now.
        entries = torch_guards.cache_entries(code)
        if not entries:
            return False
        f_locals = {name: v for name, ref in baseline.roots.items() if (v := ref()) is not None}
        # A guard on a local that is not at hand cannot be evaluated: `unevaluated` counts it.
        known = self._baselines.of(code, str(entries[0].compile_id))
        lengths = None if known is None else known.lengths
        examined = LeafChecks(f_locals, deadline).of(entries[0], lengths)
        if examined.checked == 0:
            return False  # a dead entry, as at the end of the process: nothing can be concluded
        diff = described(examined, GuardValues(code, f_locals, self._baselines, self._witness))
        armed = tuple(guard for guard in diff.guards if _will_fail(guard))
        session.emit(
            HazardsChecked(
                *(session.now(), step, where, armed, diff.checked, diff.unevaluated),
                seconds=time.monotonic() - started,
                skipped=None if examined.finished else over,
            )
        )
        return bool(armed)


def _will_fail(guard: FalseGuard) -> bool:
    """Whether a guard that is false between calls will be false in the next one: global modes and
    shapes of arguments are set again by then."""
    return bool(guard.source) and guard.source not in ("L", "G") and guard.leaf != "SHAPE"
