"""The same run accounted by ml-goodput-measurement and by us: ten recompiles among 1001 steps.

The run is made up, so that the truth is known. The peer is compared only where it is installed.
"""

import datetime as dt
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from timelines import attempt

from compilediag.diagnosis.figures.goodput import Account, compute_account
from compilediag.timeline.timeline import Compile, Process, Step, Timeline
from compilediag_harness.wire import Location, ProcessEnded

STEPS, STEP_S = 1001, 0.1
FIRST_COMPILE_S, RECOMPILE_S = 30.0, 20.0
RECOMPILES = range(50, 1000, 95)
WHERE = Location("model.py", 3, "forward")
TRUTH = STEPS * STEP_S


def walls(recompiles: range) -> Iterator[tuple[int, float, float]]:
    """(step, begin, seconds of compiling) of every step."""
    now = 0.0
    for number in range(STEPS):
        compiling = FIRST_COMPILE_S if number == 0 else RECOMPILE_S * (number in recompiles)
        yield number, now, compiling
        now += compiling + STEP_S


def ours(recompiles: range) -> Account:
    """Our account of the run, from its steps and compiles."""
    steps: list[Step] = []
    compiles: list[Compile] = []
    for number, began, compiling in walls(recompiles):
        end = began + compiling + STEP_S
        steps.append(Step(0, number, end, end - began, None, None, None, compiling))
        if compiling:
            compiles.append(compiled(number, began + compiling, compiling, len(compiles)))
    ended = ProcessEnded(steps[-1].end, {}, 0.0, 0, None)
    timeline = Timeline(
        processes=(Process(0, None, None, {}, ended),), steps=tuple(steps), compiles=tuple(compiles)
    )
    found = compute_account(timeline, None)
    assert (found.goodput_ns or 0) + sum(part or 0 for part in found.badput_ns.values()) == (
        found.wall_ns
    )
    return found


def compiled(step: int, t: float, seconds: float, place: int) -> Compile:
    kind = "recompile" if place else "first"
    return replace(attempt(f"0/{place}", kind=kind, step=step, seconds=seconds), t=t)


def test_recompiles_are_badput() -> None:
    """What is left is the work itself, and both kinds of compile stand apart."""
    found = ours(RECOMPILES)
    assert found.goodput_ns == pytest.approx(TRUTH * 1e9)
    assert found.badput_ns["compile_first"] == pytest.approx(FIRST_COMPILE_S * 1e9)
    assert found.badput_ns["recompile"] == pytest.approx(len(RECOMPILES) * RECOMPILE_S * 1e9)
    assert found.fraction == pytest.approx(0.3032, abs=1e-4)


def the_peer() -> Any:
    """The module that accounts. Its package imports a cloud's clients first, which accounting has
    no use for: they are 19 packages, and `make` installs the peer without them."""
    name = "ml_goodput_measurement"
    spec = find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip(f"{name} is not installed: pip install --no-deps ml-goodput-measurement")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, package)
        for client in ("google", "google.cloud", "google.cloud.logging"):
            patch.setitem(sys.modules, client, MagicMock())
        for module in ("src", "src.goodput"):
            patch.delitem(sys.modules, f"{name}.{module}", raising=False)
        return import_module(f"{name}.src.goodput")


def theirs(recompiles: range, folder: Path) -> float:
    """The peer's share of productive time of the same run."""
    peer = the_peer()
    start = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    log = Log("job")
    recorder = peer.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time(start)
    end = 0.0
    for number, began, compiling in walls(recompiles):
        recorder.record_step_start_time(number, start + dt.timedelta(seconds=began))
        end = began + compiling + STEP_S
    recorder.record_job_end_time(start + dt.timedelta(seconds=end))
    calculator = peer.GoodputCalculator("job", "log", log, cache_dir=str(folder))
    share, _, _ = calculator.get_job_goodput()
    return float(share) / 100


class Log:
    """What the peer writes to its cloud, kept in memory."""

    def __init__(self, job_name: str) -> None:
        self.job_name = job_name
        self.job_start_time = None
        self._entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self._entries.append(entry)

    def read_cloud_logging_entries(self, *_args: Any, **_options: Any) -> Any:
        return list(self._entries), None


@pytest.mark.filterwarnings("ignore")
def test_the_peer_counts_recompiles_as_productive(tmp_path: Path) -> None:
    """Without recompiles both agree; with ten the peer has three times as much as was
    worked."""
    none = range(0)
    agreed = theirs(none, tmp_path / "none")
    assert ours(none).fraction == pytest.approx(agreed, abs=2e-3)
    assert theirs(RECOMPILES, tmp_path / "ten") > 2.9 * (ours(RECOMPILES).fraction or 0.0)
