"""A training run that is told of: real receivers get the figures of its receipt, and it is the same
run as without."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from collector import Collector
from command_line import compilediag

from compilediag.extensions.telemetry import exporter
from compilediag.extensions.telemetry.settings import TelemetrySettings
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised import Outcome, RunOptions, run

pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """
import os, sys, time
import torch
import compilediag

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.twice = False

    def forward(self, x):
        return self.layer(x) * 2 if self.twice else self.layer(x)

model = Model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(steps):
    for _ in range(steps):
        compiled(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

train(20)
model.twice = True
train(20)
with compilediag.span("checkpoint"):
    time.sleep(0.05)
train(5)
tracker = compilediag.tracker({"task": "words"}, name="valid")
with tracker:
    for step in range(3):
        tracker.record_step(step, {"loss": 0.25 * step}, tokens=128)
seen = os.environ["SEEN"]  # a file that says: the receivers have been told of a running target
until = time.monotonic() + 60
while not os.path.exists(seen) and time.monotonic() < until:
    train(1)
    time.sleep(0.01)
names = ("wandb", "mlflow", "tensorboard", "opentelemetry", "prometheus_client", "requests")
print([name for name in names if name in sys.modules])
sys.exit(3)
"""


@dataclass(frozen=True)
class Told:
    outcome: Outcome
    receipt: Receipt
    collector: Collector
    textfile: str
    out: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """One run, told to all; its program goes on until a push has come that says it runs."""
    pytest.importorskip("opentelemetry.proto")
    pytest.importorskip("prometheus_client")
    folder = tmp_path_factory.mktemp("telemetry")
    program, out = folder / "train.py", folder / "out.txt"
    program.write_text(PROGRAM, encoding="utf-8")
    with Collector() as collector:
        original = collector._keep  # pyright: ignore[reportPrivateUsage]

        def keep(request, body) -> None:
            original(request, body)
            if any(collector.values(item).get("compilediag.steps") for item in collector.metrics):
                (folder / "seen").touch()

        collector._keep = keep  # type: ignore[method-assign]
        textfile = folder / "train.prom"
        wishes = TelemetrySettings(
            otlp=collector.url,
            prometheus_textfile=str(textfile),
            every_s=0.2,
        )
        options = RunOptions(output=str(folder / "run"), live=False, telemetry=wishes)
        environ = {**os.environ, "SEEN": str(folder / "seen")}
        with pytest.MonkeyPatch.context() as patch, out.open("wb") as file:
            patch.setattr(
                exporter, "SHUTDOWN_TIMEOUT_S", 60.0
            )  # a slow machine is no slow receiver
            outcome = _run_with_stdout(file.fileno(), [str(program)], options, environ)
        assert outcome.receipt is not None, outcome.notes
        text = textfile.read_text(encoding="utf-8")
        yield Told(outcome, outcome.receipt, collector, text, out.read_text(encoding="utf-8"))


def _run_with_stdout(fd: int, words, options: RunOptions, environ) -> Outcome:
    kept = os.dup(1)
    os.dup2(fd, 1)
    try:
        return run(words, options, environ)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def test_a_collector_is_told_what_the_receipt_says(told: Told) -> None:
    """The last push holds the receipt's counts, goodput and badput, to the nanosecond."""
    values = told.collector.values(told.collector.metrics[-1])
    compile_part, goodput, steps = told.receipt.compile, told.receipt.goodput, told.receipt.steps
    assert goodput is not None
    assert steps is not None
    assert values["compilediag.recompiles"] == compile_part.recompiles == 1
    assert values["compilediag.compiles"] == compile_part.compiles == 2
    assert values["compilediag.graph_breaks"] == compile_part.graph_breaks
    assert values["compilediag.frames"] == compile_part.frames
    assert values["compilediag.steps"] == steps.count >= 45
    assert values["compilediag.goodput.time"] == goodput.goodput_s
    assert values["compilediag.goodput"] == goodput.fraction
    badput = {
        name.rpartition("/")[2]: value
        for name, value in values.items()
        if name.startswith("compilediag.badput.time/")
    }
    assert badput == {name: taken for name, taken in goodput.badput_s.items() if taken}
    assert values["compilediag.run.active"] == 0
    assert values["compilediag.run.exit_code"] == 3


def test_it_was_told_while_the_target_ran(told: Told) -> None:
    """There were pushes that say that the run goes on, each with at least the steps before it."""
    every = [told.collector.values(request) for request in told.collector.metrics]
    running = [values for values in every if values["compilediag.run.active"]]
    counts = [values["compilediag.steps"] for values in every if "compilediag.steps" in values]
    assert running
    assert counts == sorted(counts)


def test_what_the_program_records_is_told_too(told: Told) -> None:
    """Its loss and its rates, by the names that it gives them."""
    lines = [line for line in told.textfile.splitlines() if "compilediag_tracked" in line]
    value = next(line for line in lines if 'metric="loss"' in line)
    assert 'run="valid"' in value
    assert float(value.split()[-1]) == 0.5
    rate = next(line for line in lines if 'count="tokens"' in line)
    (run,) = told.receipt.tracked or ()
    assert float(rate.split()[-1]) == run.per_s["tokens"]


def test_the_target_is_the_one_it_was(told: Told) -> None:
    """Its exit code and output; nothing was imported into it; the receipt counts what was told."""
    assert told.outcome.exit_code == 3
    assert told.out == "[]\n"
    assert told.outcome.notes == ()
    counts = told.receipt.extensions["telemetry"]
    assert isinstance(counts, dict)
    assert counts["otlp"]["last_taken"] is True
    assert counts["textfile"]["pushes_failed"] == 0


@pytest.mark.parametrize("mode", ["hang", "refuse", "down"])
def test_a_bad_receiver_changes_nothing_but_a_note(mode: str, tmp_path: Path) -> None:
    """It hangs, refuses or is not there: exit code and output as without, the run ends while the
    receiver hangs, and the loss is reported."""
    pytest.importorskip("opentelemetry.proto")
    pytest.importorskip("prometheus_client")
    script = tmp_path / "x.py"
    script.write_text("print('told'); raise SystemExit(5)", encoding="utf-8")
    with Collector(mode=mode) as collector:
        url = "http://127.0.0.1:1" if mode == "down" else collector.url
        words = ["run", "--otlp", url, str(script)]
        done = compilediag(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (5, "told\n")
        assert not collector.release.is_set()  # a receiver that hangs has not answered yet
        notes = [line for line in done.stderr.splitlines() if "telemetry to" in line]
        assert len(notes) == 1
        assert "the run is not affected" in notes[0]
