"""What the program measured, in the receipt and on the screen, from events made by hand."""

from typing import Any

import pytest

from compilediag.diagnosis.figures.recorded import MAX_RUNS
from compilediag.diagnosis.reconcile import Agreement
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import Diagnosis
from compilediag.timeline.timeline import fold
from compilediag.views.style import RenderOptions
from compilediag.views.verdict import render
from compilediag_harness.wire import (
    AblationWritten,
    Event,
    RunTracked,
    TrackedMetric,
    TrackedRunsLeftOut,
)

NOTHING = Diagnosis((), "clean", Agreement({}, None, (), {}))
LOSS = TrackedMetric("loss", 3, 2.0, 1.5, 1.0, 3.5, 1.0, 3, 0)


def tracked(number: int = 1, **changes: Any) -> RunTracked:
    """A record of a run."""
    given: dict[str, Any] = {
        "t": 1.0,
        "number": number,
        "name": "eval/copy",
        "config": {"shots": 5},
        "state": "finished",
        "steps": 3,
        "first_step": 0,
        "last_step": 2,
        "wall_s": 4.0,
        "steps_s": 3.0,
        "totals": {"tokens": 24.0},
        "per_s": {"tokens": 8.0},
        "metrics": (LOSS,),
    }
    return RunTracked(**{**given, **changes})


def receipt_of(*processes: list[Event]) -> Receipt:
    """The receipt of a run with these events."""
    facts = RunMetadata("01JD3Q0000000000000000000Z", "2026-11-20T14:45:00Z")
    return build_receipt(fold(processes), NOTHING, facts)


def screen(receipt: Receipt, *, complete: bool = False, width: int = 100) -> str:
    """The verdict as plain text."""
    return render(receipt, RenderOptions(width=width), complete=complete)


def test_the_last_record_of_a_run_counts() -> None:
    """An interim report is replaced by a later one."""
    passing = tracked(state="running", steps=1)
    receipt = receipt_of([passing, tracked(2, name="eval/other"), tracked(steps=9)])
    assert [(run.name, run.steps) for run in receipt.tracked] == [
        ("eval/copy", 9),
        ("eval/other", 3),
    ]


@pytest.mark.parametrize(
    ("metrics", "finite"),
    [
        ((LOSS,), True),
        ((TrackedMetric("train/loss", 2, 1.0, not_finite=1),), False),
        ((TrackedMetric("valLoss", 2, 1.0, not_finite=1),), None),
        ((TrackedMetric("loss_scale", 2, 1.0, not_finite=1),), None),
        ((TrackedMetric("eval-Loss", 0, not_finite=0),), None),
        ((LOSS, TrackedMetric("aux.loss", 0, not_finite=2)), False),
        ((), None),
    ],
)
def test_losses(metrics: tuple[TrackedMetric, ...], finite: bool | None) -> None:
    """Losses are checked where they were observed; other metrics may well be infinite."""
    assert receipt_of([tracked(metrics=metrics)]).checks.losses_finite is finite


def test_no_more_than_a_receipt_can_hold() -> None:
    """The newest are listed, and it is said how many are not."""
    events: list[Event] = [tracked(number) for number in range(MAX_RUNS + 2)]
    receipt = receipt_of([*events, TrackedRunsLeftOut(1.0, 5)])
    assert len(receipt.tracked) == MAX_RUNS
    assert "tracked: 7 more runs are not listed" in receipt.completeness.reasons


def test_ablations_are_linked() -> None:
    """What was validated stands in the receipt, the file among the artifacts, once."""
    given = ("no-rope", "llama", 2, 3, 1, 2, "full", "file:///x/ablation.json")
    first = AblationWritten(1.0, *given, 10, "ab" * 32)
    again = AblationWritten(2.0, *given, 20, "cd" * 32)
    receipt = receipt_of([first, again])
    (report,) = receipt.ablations
    assert (report.name, report.architecture, report.depth) == ("no-rope", "llama", 2)
    (file,) = receipt.artifacts
    assert (file.role, file.uri, file.bytes) == ("ablation", report.uri, 20)
    assert file.sha256 == "cd" * 32


def test_the_screen() -> None:
    """A line for each of the newest runs; all of it, as tables, with --all."""
    runs: list[Event] = [tracked(number, name=f"eval/{number}") for number in range(1, 4)]
    receipt = receipt_of(runs)
    text = screen(receipt)
    assert "tracked eval/3: 3 steps in 4.0 s · loss 2 (1 to 3.5) · tokens 8/s" in text
    assert "eval/1" not in text
    assert "+1 more tracked: compilediag show --all" in text
    whole = screen(receipt, complete=True)
    assert whole.count("metric ") == 3
    assert "more tracked" not in whole


def test_what_did_not_go_well_on_the_screen() -> None:
    """A run that the process did not live to end, and a loss that was never finite."""
    lost = TrackedMetric("loss", 0, not_finite=2)
    events: list[Event] = [tracked(state="running", metrics=(lost,))]
    text = screen(receipt_of(events), width=200)
    assert "in 4.0 s (not finished) · loss not measured, 2 not finite" in text


def test_names_are_escaped() -> None:
    """A name or metric of the program does not reach the terminal as it is."""
    events: list[Event] = [tracked(name="\x1b[31mred\n", metrics=(TrackedMetric("a\x1b", 1, 1.0),))]
    for complete in (False, True):
        assert "\x1b" not in screen(receipt_of(events), complete=complete)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_every_width(width: int) -> None:
    """No line is wider than the terminal, however long names are."""
    long = TrackedMetric("m" * 150, 3, 1.23456e-7, -1.5, -123456.0, 9e99, 0.0, 3, 2)
    events: list[Event] = [tracked(name="n" * 150, metrics=(LOSS, long), per_s={"c" * 90: 1e6})]
    for complete in (False, True):
        lines = screen(receipt_of(events), complete=complete, width=width).splitlines()
        assert [line for line in lines if len(line) > width] == []
