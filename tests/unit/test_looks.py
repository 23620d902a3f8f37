"""Looks at guards and recompiles disturb neither the collector of garbage nor a device."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import guards_in_use
from compilediag_harness.collectors.registry import CollectorSet
from compilediag_harness.wire import Event, FaultOccurred, GuardsEvaluated


class Look:
    """Stands for the collector of recompiles, and for that of baselines."""

    def __init__(self, error: Exception | None = None) -> None:
        self.collecting: list[bool] = []
        self._error = error

    def record_recompile(self, *_: Any) -> None:
        self.collecting.append(gc.isenabled())
        if self._error is not None:
            raise self._error

    remember = record_recompile


@pytest.mark.parametrize("before", [True, False])
def test_no_collection_is_set_off_and_the_program_s_choice_stays(before: bool) -> None:
    """Also after a fault of ours."""
    events: list[Event] = []
    torch = SimpleNamespace(Tensor=object, nn=SimpleNamespace(Module=object))
    collectors: Any = CollectorSet(Session(events.append), torch)
    collectors.recompiles, collectors._baselines = Look(), Look(ValueError("ours"))
    enabled = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        collectors.handle_recompile([], SimpleNamespace(f_code=Look.record_recompile.__code__), [])
        collectors.handle_guards_built(None, "0/0", {}, (), None)
        assert gc.isenabled() is before
    finally:
        (gc.enable if enabled else gc.disable)()
        collectors.uninstall()
    assert collectors.recompiles.collecting == collectors._baselines.collecting == [False]
    assert [event.where for event in events if isinstance(event, FaultOccurred)] == ["guards built"]


@pytest.mark.parametrize(
    ("code", "evaluated"), [("L['n'] == 3", True), ("L['n'] == L['x'].item()", False)]
)
def test_guards_that_read_a_tensor_are_not_evaluated(code: str, evaluated: bool) -> None:
    """On a device each evaluation would wait for it; torch 2.7 makes such guards."""
    checks: list[Any] = []

    def check(scope: Any) -> bool:
        checks.append(scope)
        return True

    events: list[Event] = []
    manager = SimpleNamespace(root=SimpleNamespace(check=check))
    guard = SimpleNamespace(code_list=[code], user_stack=None)
    guards_in_use.evaluate_guards(Session(events.append), "0/0", {}, iter([guard]), manager)
    (event,) = events
    assert isinstance(event, GuardsEvaluated)
    assert bool(checks) == evaluated == (event.eval_us is not None)
