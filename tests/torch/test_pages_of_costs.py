"""The code on the pages about what compiling costs: the bad has what the page is about, and the
good has not. Nothing is timed: a rule that asks for seconds is given the same seconds for both."""

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rule_pages import run_code_of
from torch import distributed

from compilediag.diagnosis.findings import Rule
from compilediag.fixes.numbers import compare_numbers
from compilediag.rules.costs import find_builds_without_cache, find_repeated_blocks, find_restarts
from compilediag.runs.watch import watch
from compilediag.timeline.timeline import Compile, Timeline, fold
from compilediag_harness import attach
from compilediag_harness.base.session import Session
from compilediag_harness.collectors import compiles as collector
from compilediag_harness.trials.trial import ActiveTrial
from compilediag_harness.wire import Event, RecordingPlan, TrialPlan

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings(
        "ignore:`torch.jit:DeprecationWarning", "ignore:dynamo_pgo force disabled:UserWarning"
    ),
]

LONG_S = 100.0
"""What each compile is given: more than any rule asks for."""


Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Runs the code under a heading of a page, as a module of its own."""

    def run(page: str, heading: str) -> ModuleType:
        torch._dynamo.reset()
        return run_code_of(page, heading, tmp_path, monkeypatch)

    return run


def as_long(item: Compile, phase: str) -> Compile:
    """A compile that took its seconds in one phase, half of them in attempts that were begun again,
    if any was."""
    restarted = LONG_S / 2 if item.restart_reasons else 0.0
    return replace(item, seconds=LONG_S, phases=((phase, LONG_S),), restarted_s=restarted)


def found_by(rule: Rule, timeline: Timeline, phase: str = "entire_frame_compile") -> list[str]:
    longer = tuple(as_long(item, phase) for item in timeline.compiles)
    return [item.rule for item in rule(replace(timeline, compiles=longer))]


def test_few_of_a_models_parts_are_no_blocks() -> None:
    """As the layers that turn each resolution of a generator into an image: a call uses one."""
    layers = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Conv2d(8, 3, 1)) for _ in range(collector.MIN_BLOCKS)
    )
    model = torch.nn.ModuleDict({"images": layers})
    found = collector.find_repeated_blocks({"self": model})
    assert found is not None
    assert (found.where, found.count) == ("self.images", collector.MIN_BLOCKS)
    model["body"] = torch.nn.Sequential(*(torch.nn.Linear(8, 8 + n) for n in range(12)))
    assert collector.find_repeated_blocks({"self": model}) is None


@pytest.mark.parametrize(
    ("page", "rule"), [("CD601", find_repeated_blocks), ("CD602", find_restarts)]
)
def test_pages_of_long_compiles(load: Load, page: str, rule: Rule, monkeypatch) -> None:
    """Twelve blocks are one graph, or a frame is traced once more; and not."""
    monkeypatch.setattr(collector, "MIN_COMPILE_S", 0.0)
    for heading, expected in (("Bad", [page]), ("Good", [])):
        with watch() as seen:
            load(page, heading)
        assert seen.timeline.compiles
        assert found_by(rule, seen.timeline) == expected


def test_page_of_caches_that_are_off(load: Load, tmp_path: Path, monkeypatch) -> None:
    """CD604: no cache is looked into."""
    config = pytest.importorskip("torch._inductor.config")
    for heading, expected in (("Bad", ["CD604"]), ("Good", [])):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches" / heading))
        with config.patch(force_disable_caches=False), watch() as seen:
            load("CD604", heading).forward(torch.ones(4))
        assert found_by(find_builds_without_cache, seen.timeline, "compile_file") == expected
    # torch 2.7 remembers the header in this folder, which later kernels would include.
    utils = pytest.importorskip("torch._inductor.utils")
    (getattr(utils, "clear_inductor_caches", None) or utils.clear_caches)()


def test_page_of_guards(load: Load) -> None:
    """CD621: a guard for each number, and one for their sum."""
    evaluated: list[int] = []
    for heading in ("Bad", "Good"):
        with watch() as seen:
            load("CD621", heading)
        evaluated.append(sum(item.evaluated or 0 for item in seen.timeline.guard_sets))
    assert evaluated[0] - evaluated[1] > 1990
    assert 0 < evaluated[1] < 100


def test_page_of_tiny_graphs(load: Load) -> None:
    """CD631: the same operations in twenty calls, and in one."""
    found: list[tuple[int, int]] = []
    for heading in ("Bad", "Good"):
        with watch() as seen:
            load("CD631", heading)
        (only,) = seen.timeline.compiles
        found.append((seen.calls, only.graph_ops or 0))
    (calls, operations), (one, all_operations) = found
    assert (calls, one) == (20, 1)
    assert all_operations >= 20 * operations


def test_page_of_ranks_that_wait(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """CD641: rank 0 compiles after three collectives, and before the first."""
    before: list[int] = []
    for heading in ("Bad", "Good"):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
        reduced: list[int] = []
        reduce = distributed.all_reduce

        def counting(*args: Any, _real: Any = reduce, _to: list[int] = reduced) -> Any:
            _to.append(len(torch._dynamo.utils.get_compilation_metrics()))
            return _real(*args)

        torch._dynamo.utils.clear_compilation_metrics()
        with monkeypatch.context() as patched:
            patched.setattr(distributed, "all_reduce", counting)
            load("CD641", heading)
        assert reduced[-1] == 1
        before.append(reduced.index(1))
    assert before == [3, 0]


def test_page_of_other_numbers(load: Load) -> None:
    """CD651: the backend leaves an operation out, and replaces it by an equal one."""
    for heading, same in (("Bad", False), ("Good", True)):
        events: list[Event] = []
        session = Session(events.append)
        recording = RecordingPlan(1, 60.0, repeats=True)
        session.trial = ActiveTrial(TrialPlan(recording=recording))
        attach.install(session)
        try:
            load("CD651", heading)
            attach.finish(session)
        finally:
            attach.uninstall(session)
        numbers = compare_numbers(fold([events]))
        assert numbers.calls == 1
        assert numbers.same is same
