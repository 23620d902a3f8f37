"""Experiments that the program has open are told; none is begun, and none can disturb the program.

Where W&B, MLflow or TensorBoard are installed they are the real ones; what happens when they fail
is shown with stand-ins for the program's own modules.
"""

import json
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from compilediag.extensions.telemetry import exporter
from compilediag.extensions.telemetry.exporter import METRICS_FILE
from compilediag.extensions.telemetry.run import describe_failures, read_experiment_counts
from compilediag.extensions.telemetry.settings import TelemetrySettings
from compilediag.runs.supervised import RunOptions, run
from compilediag_harness.extensions import experiments
from compilediag_harness.extensions.experiments import Experiments


def figures(folder: Path, at_unix: float, **values: float) -> None:
    told = {"at_unix": at_unix, "step": 7, "figures": values}
    (folder / METRICS_FILE).write_text(json.dumps(told), encoding="utf-8")


class Wandb(types.ModuleType):
    """What the program's `wandb` looks like from outside: an open run, or none."""

    def __init__(self, run: object) -> None:
        super().__init__("wandb")
        self.run = run


class OpenRun:
    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[dict[str, float], bool]] = []
        self.error = error

    def log(self, values: dict[str, float], *, commit: bool) -> None:
        if self.error is not None:
            raise self.error
        self.told.append((values, commit))


@pytest.fixture
def no_thread(monkeypatch):
    """`poll` is called by the test alone."""
    monkeypatch.setattr(Experiments, "_run", lambda self: None)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


def test_the_two_halves_name_the_same_file() -> None:
    """The inside imports nothing of the outside: a name that both need stands in both."""
    assert experiments.METRICS_FILE == METRICS_FILE


def test_an_open_run_is_told_once_a_period(tmp_path: Path, monkeypatch, no_thread) -> None:
    """New figures are told when the period is over, old ones never; rows stay the program's own."""
    opened = OpenRun()
    monkeypatch.setitem(sys.modules, "wandb", Wandb(opened))
    known = Experiments(str(tmp_path), 15.0)
    known.arm()
    known.poll(100.0)
    assert opened.told == []  # there are no figures yet
    figures(tmp_path, 1.0, x=1.0)
    known.poll(101.0)
    known.poll(120.0)
    figures(tmp_path, 2.0, x=2.0)
    known.poll(110.0)
    known.poll(116.0)
    assert opened.told == [({"x": 1.0}, False), ({"x": 2.0}, False)]
    assert read_experiment_counts(str(tmp_path))["wandb"].succeeded == 2


def test_where_no_run_is_open_nothing_is_told(tmp_path: Path, monkeypatch, no_thread) -> None:
    """The module is imported, and no run was begun: none is begun by us."""
    monkeypatch.setitem(sys.modules, "wandb", Wandb(None))
    known = Experiments(str(tmp_path), 15.0)
    known.arm()
    figures(tmp_path, 1.0, x=1.0)
    known.poll(100.0)
    assert read_experiment_counts(str(tmp_path)) == {}


def test_an_experiment_that_raises_is_counted(tmp_path: Path, monkeypatch, no_thread) -> None:
    """Its error is told in a note, without the secret in it; the next period tries again."""
    opened = OpenRun(ValueError("api_key=AKIAIOSFODNN7EXAMPLE is bad"))
    monkeypatch.setitem(sys.modules, "wandb", Wandb(opened))
    known = Experiments(str(tmp_path), 15.0)
    known.arm()
    for number in (1, 2):
        figures(tmp_path, float(number), x=1.0)
        known.poll(100.0 * number)
    counts = read_experiment_counts(str(tmp_path))["wandb"]
    assert (counts.succeeded, counts.failed) == (0, 2)
    note = describe_failures("wandb", counts)
    assert "2 of 2 updates failed (ValueError" in note
    assert "AKIAIOSFODNN7EXAMPLE" not in note


class Waits:
    """Stands for the event that the thread waits for: so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def wait(self, _: float) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_a_telling_that_fails_before_it_begins_is_counted(tmp_path: Path, monkeypatch) -> None:
    """It ended all telling once, without a word; the next one is tried, and both are told of."""
    opened = OpenRun()
    monkeypatch.setitem(sys.modules, "wandb", Wandb(opened))
    known = Experiments(str(tmp_path), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Experiments, "_run", lambda self: None)
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        known.arm()
    monkeypatch.setattr(experiments.threading, "Event", lambda: Waits(1))
    (tmp_path / METRICS_FILE).write_text("{}", encoding="utf-8")
    known._run()
    figures(tmp_path, 1.0, x=1.0)
    known._run()
    assert opened.told == [({"x": 1.0}, False)]
    counts = read_experiment_counts(str(tmp_path))["wandb"]
    assert (counts.succeeded, counts.failed, counts.problem) == (1, 1, "KeyError: 'at_unix'")


def test_a_process_without_a_problem_hides_no_other_s(tmp_path: Path) -> None:
    """Two ranks tell: the reason of the one that failed stands in the note."""
    for number, problem in ((1, '"no network"'), (2, "null")):
        text = f'{{"wandb": {{"told": 1, "failed": {2 - number}, "problem": {problem}}}}}'
        (tmp_path / f"experiments-{number}.json").write_text(text, encoding="utf-8")
    counts = read_experiment_counts(str(tmp_path))["wandb"]
    assert (counts.succeeded, counts.failed, counts.problem) == (2, 1, "no network")


def test_doctored_counts_are_left_out(tmp_path: Path) -> None:
    """The file lies where the target can write: only what has the right shape is read."""
    for name, text in {
        "1": "[",
        "2": '{"wandb": {"told": "x"}}',
        "3": '{"evil": {"told": 1}}',
    }.items():
        (tmp_path / f"experiments-{name}.json").write_text(text, encoding="utf-8")
    (tmp_path / "experiments-4.json").symlink_to(tmp_path / "experiments-3.json")
    assert read_experiment_counts(str(tmp_path)) == {}


PROGRAM = """
import os, time
import torch
{begin}
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.monotonic() + 60
step = 0
here = os.environ["COMPILEDIAG_RUN_DIR"]
while time.monotonic() < until:
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    {log}
    step += 1
    time.sleep(0.01)
    if step >= 30 and any(name.startswith("experiments-") for name in os.listdir(here)):
        break
{end}
"""

PROGRAMS = {
    "tensorboard": (
        "from torch.utils.tensorboard import SummaryWriter; w = SummaryWriter('tb')",
        "w.add_scalar('loss', 1.0, step)",
        "w.close()",
    ),
    "wandb": (
        "import wandb; r = wandb.init(project='p', mode='offline')",
        "r.log({'loss': 1.0})",
        "assert r.step == step, (r.step, step); r.finish()",
    ),
    "mlflow": (
        "import mlflow; mlflow.set_tracking_uri('file:ml'); mlflow.start_run()",
        "mlflow.log_metric('loss', 1.0, step=step)",
        "mlflow.end_run()",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_real_ones_are_told(name: str, tmp_path: Path, monkeypatch) -> None:
    """A program with an open run of its own; its steps are counted on as it counts them."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    begin, log, end = PROGRAMS[name]
    script = tmp_path / "x.py"
    script.write_text(PROGRAM.format(begin=begin, log=log, end=end), encoding="utf-8")
    monkeypatch.setattr(exporter, "SHUTDOWN_TIMEOUT_S", 60.0)  # a slow machine is no slow receiver
    wishes = TelemetrySettings(experiments=True, every_s=0.2)
    outcome = run([str(script)], RunOptions(live=False, telemetry=wishes))
    assert outcome.receipt is not None, outcome.notes
    assert (outcome.exit_code, outcome.notes) == (0, ())
    counts = outcome.receipt.extensions["telemetry"]["experiments"][name]
    assert counts["told"] >= 1
    assert counts["failed"] == 0
