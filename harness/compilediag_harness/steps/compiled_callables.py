"""What the outermost compiled callables of a program are: the forward of a step, an optimizer's
step, or only a part of a forward. Determined once, when a callable is called for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compilediag_harness.steps.step_clock import StepClock
from compilediag_harness.torch_internals import torch_api, torch_open_calls
from compilediag_harness.user_api.spans import FORWARD, NAMES, OPTIMIZER

_MAX_CALLABLES = 4096


class CompiledCallables:
    """The phases that compiled callables are, by the key that distinguishes them."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._optimizer: type = torch_module.optim.Optimizer
        self._phases: dict[int, int] = {}

    def phase_of(self, key: int, clock: StepClock) -> int:
        """The phase of the call that begins now in this thread. What cannot be separated is noted
        in `clock.partial`."""
        if key not in self._phases:
            if len(self._phases) >= _MAX_CALLABLES:
                self._phases.clear()
            self._phases[key] = self._find_phase(clock)
        return self._phases[key]

    def _find_phase(self, clock: StepClock) -> int:
        if torch_api.in_optimizer_step() and not self._torch.is_grad_enabled():
            return OPTIMIZER  # a kernel of its own; not the forward in its closure
        call = torch_open_calls.called_from()
        if call is None:
            return FORWARD
        function = call.function
        if isinstance(getattr(function, "__self__", None), self._optimizer):
            return OPTIMIZER
        name = str(getattr(function, "__qualname__", type(function).__name__))
        if self._steps_an_optimizer(function):
            missing = f"{name} steps an optimizer in compiled code: its time is in forward"
            clock.partial.setdefault(NAMES[OPTIMIZER], missing)
        elif call.inside is not None:
            missing = f"only the compiled calls inside {call.inside}: the rest of it ran eagerly"
            clock.partial.setdefault(NAMES[FORWARD], missing)
        return FORWARD

    def _steps_an_optimizer(self, function: Any) -> bool:
        """Whether a compiled function calls `step` and can reach an optimizer by name."""
        code = getattr(function, "__code__", None)
        if code is None or "step" not in code.co_names:
            return False
        return any(isinstance(value, self._optimizer) for value in reached(function, code))


def reached(function: Any, code: Any) -> Iterator[Any]:
    """What the names of a function stand for: captured variables and globals."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    scope = getattr(function, "__globals__", {})
    for name in code.co_names:
        yield scope.get(name)
