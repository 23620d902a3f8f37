"""What a trend tells of receipts: which measure, which way, since which of them, and why."""

import random
import sys
from typing import Any

import pytest
from many_receipts import Change, commit, entry, measured

from compilediag.errors import UsageError
from compilediag.extensions.fleet.changes import ChangeEvent, Trend, group_changes
from compilediag.extensions.fleet.entry import (
    Entry,
    ReceiptFilter,
    group_by_config,
    label_configs,
    merge_by_preset,
)
from compilediag.extensions.fleet.measures import MEASURES
from compilediag.extensions.fleet.stats import compute_stats
from compilediag.extensions.fleet.trend import Rules, compute_trends

DRAW = random.Random(20_261_121)
NOISE = [1 + 0.02 * DRAW.gauss(0, 1) for _ in range(400)]
"""Two percent, the same in every test."""


def steady(number: int, **more: Any) -> Change:
    """A run as all others: half a second a step, give or take the noise."""
    median = more.pop("median", 0.5) * NOISE[number % len(NOISE)]
    return measured(
        steps__median=median,
        steps__p90=1.1 * median,
        throughput__steps_per_s=1 / median,
        goodput__fraction=0.8 * (1 + (NOISE[-1 - number % len(NOISE)] - 1) / 4),
        **more,
    )


def entries(numbers: range, **more: Any) -> list[Entry]:
    return [entry(number, steady(number, **more)) for number in numbers]


def only(found: tuple[Trend, ...]) -> Trend:
    (lane,) = found
    return lane


def event_of(found: tuple[Trend, ...]) -> ChangeEvent:
    (event,) = group_changes(only(found))
    return event


def test_steady_receipts_have_no_changes() -> None:
    """A hundred runs that differ by noise only: every series is steady, with its level."""
    lane = only(compute_trends(entries(range(100))))
    assert group_changes(lane) == ()
    assert all(series.enough for series in lane.series)
    levels = {series.measure: series.level for series in lane.series}
    assert levels["step_s"] == pytest.approx(0.5, rel=0.01)
    assert levels["recompiles"] == 1


def test_a_slowdown_is_named_with_receipt_and_commit() -> None:
    """What began together is told together: the receipt, its commit, and the last one before."""
    made = [*entries(range(60)), *entries(range(60, 90), median=0.6)]
    event = event_of(compute_trends(made))
    assert event.state == "worse"
    assert event.first.path == "r00060.json"
    assert event.first.commit == commit(60)
    assert [change.measure for change in event.changes] == ["steps_per_s", "step_s"]
    change = event.surest
    assert (change.earliest.path, change.latest.path) == ("r00060.json", "r00060.json")
    assert change.last_before.commit == commit(59)
    assert not change.same_commit
    assert change.receipts == 30
    assert event.changes[1].ratio == pytest.approx(1.2, rel=0.02)


def test_a_recompile_that_stays_is_a_change() -> None:
    """One recompile more in three runs in a row: counts have no noise."""
    made = [*entries(range(30)), *entries(range(30, 33), compile__recompiles=2)]
    event = event_of(compute_trends(made))
    (change,) = event.changes
    assert (change.measure, change.before, change.after) == ("recompiles", 1, 2)
    assert (event.state, change.first.path, change.chance) == ("worse", "r00030.json", None)


def test_counts_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scipy they are followed all the same, and what needs it says so."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    made = [*entries(range(30)), *entries(range(30, 33), compile__recompiles=2)]
    event = event_of(compute_trends(made, Rules(measures=("recompiles",))))
    assert event.first.path == "r00030.json"
    with pytest.raises(UsageError, match="need scipy"):
        compute_trends(made)


def test_the_newest_receipt_alone_is_not_lasting() -> None:
    """It may be the beginning of something: it is said, and not called lasting."""
    made = [*entries(range(30)), *entries(range(30, 31), compile__graph_breaks=4)]
    event = event_of(compute_trends(made))
    (change,) = event.changes
    assert (event.state, change.measure, change.lasting) == ("beginning", "graph_breaks", False)
    assert change.receipts == 1


def test_what_was_mended_is_not_a_complaint() -> None:
    """A change that a later one took back says until when it lasted; the better end is told."""
    made = [*entries(range(30)), *entries(range(30, 60), median=0.7), *entries(range(60, 90))]
    found = only(compute_trends(made, Rules(measures=("step_s",))))
    better, undone = group_changes(found)
    assert (better.state, better.first.path) == ("better", "r00060.json")
    assert (undone.state, undone.first.path) == ("undone", "r00030.json")
    assert undone.changes[0].undone == better.first


def test_the_same_commit_is_no_cause() -> None:
    """Where the code is the same on both sides, the trend says so, and what else is not."""
    same = {"header__provenance__git_commit": "a" * 40}
    newer = {**same, "environment__torch": "2.14.0", "median": 0.6, "steps__count": 90}
    made = [*entries(range(40), **same), *entries(range(40, 70), **newer)]
    change = event_of(compute_trends(made)).surest
    assert change.same_commit
    assert [tuple(fact) for fact in change.also] == [
        ("torch", "2.13.0+cpu", "2.14.0"),
        ("steps of the run", "12", "90"),
    ]
    dirty = [*entries(range(40), **same), *entries(range(40, 70), **newer)]
    dirty[40] = dirty[40]._replace(dirty=True)
    assert not event_of(compute_trends(dirty)).surest.same_commit


def test_machines_are_not_compared() -> None:
    """Another machine is slower, and that is no regression: its timings are a series of their own.
    Counts do not depend on it."""
    slow = {"environment__cpu_model": "slow", "median": 0.9, "compile__recompiles": 3}
    made = [*entries(range(40)), *entries(range(40, 80), **slow)]
    lane = only(compute_trends(made))
    assert lane.machines == 2
    (event,) = group_changes(lane)
    assert [change.measure for change in event.changes] == ["recompiles"]
    assert "machine" in [fact.name for fact in event.changes[0].also]


def test_runs_that_did_not_end_well_are_left_out() -> None:
    """Their figures are of half a run; they count for the checks, and can be asked for."""
    bad = {"status": "killed", "checks__exit_code_zero": False, "median": 0.9}
    made = [*entries(range(50)), *entries(range(50, 80), **bad)]
    lane = only(compute_trends(made))
    assert lane.left_out == {"killed": 30}
    (event,) = group_changes(lane)
    assert [change.measure for change in event.changes] == ["checks_passed"]
    assert event.first.path == "r00050.json"
    every = group_changes(only(compute_trends(made, Rules(any_status=True))))
    assert "step_s" in {change.measure for event in every for change in event.changes}


def test_more_series_do_not_mean_more_false_alarms() -> None:
    """The permitted error is that of the whole trend: of 40 folders of steady receipts, with ten
    noisy series each, hardly one has an alarm."""
    alarms = 0
    for seed in range(40):
        draw = random.Random(seed)
        made = [_noisy(draw, number) for number in range(40)]
        alarms += bool(group_changes(only(compute_trends(made))))
    assert alarms <= 2


def _noisy(draw: random.Random, number: int) -> Entry:
    """A receipt with noise in everything that varies, outliers among it."""
    template = _TEMPLATE._replace(receipt_id=f"{number}-{draw.random()}", path=f"{number}.json")
    values = {
        item.name: (1 + 0.05 * draw.gauss(0, 1)) * (2 if draw.random() < 0.05 else 1)
        if item.kind == "noisy"
        else float(draw.random() < 0.9)
        for item in MEASURES
    }
    return template._replace(created_s=float(number), values=values)


_TEMPLATE = entry(0)


def test_stray_times_and_missing_ones() -> None:
    """A receipt without a time is left out and told; the order of names is not that of time."""
    made = [*entries(range(40)), *entries(range(40, 70), median=0.6)]
    DRAW.shuffle(made)
    made.append(entry(99, measured(header__created_at_utc="?")))
    made.sort(key=lambda item: item.created_s or 0.0)
    found = only(compute_trends(made))
    assert found.left_out == {"without a time": 1}
    assert group_changes(found)[0].first.path == "r00040.json"


def test_only_the_newest_are_followed() -> None:
    """As many as asked; how many are older is told."""
    made = [*entries(range(40)), *entries(range(40, 70), median=0.6)]
    found = only(compute_trends(made, Rules(last=25)))
    assert (found.receipts, found.older) == (25, 45)
    assert group_changes(found) == ()


def test_lanes_are_apart() -> None:
    """Each lane has its own trend; labels tell lanes of one name apart by what differs."""
    flags = "header__lane__numerics_flags__mode"
    made = [
        *entries(range(3), header__lane__preset="small"),
        *entries(range(3, 6), **{"header__lane__preset": "small", flags: "max-autotune"}),
        *entries(range(6, 9), header__lane__name="other"),
    ]
    labels = list(label_configs(group_by_config(made)).values())
    assert labels == [
        "gpt-small/train small fp32 mode=unknown",
        "gpt-small/train small fp32 mode=max-autotune",
        "other fp32",
    ]
    presets = {lane.name for lane in group_by_config(merge_by_preset(made))}
    assert presets == {"small", "(no preset)"}


def test_receipts_can_be_chosen() -> None:
    """By lane, by pattern, by preset, by time."""
    made = [
        *entries(range(3), header__lane__preset="small"),
        *entries(range(3, 6), header__lane__name="vit"),
    ]
    second = made[1].created_s
    chosen = {
        ReceiptFilter(configurations=("vit",)): [3, 4, 5],
        ReceiptFilter(configurations=("gpt-*",)): [0, 1, 2],
        ReceiptFilter(presets=("small",)): [0, 1, 2],
        ReceiptFilter(since_s=second): [1, 2, 3, 4, 5],
        ReceiptFilter(until_s=second): [0],
        ReceiptFilter(): list(range(6)),
    }
    for choice, numbers in chosen.items():
        paths = [item.path for item in filter(choice.wants, made)]
        assert paths == [f"r{number:05d}.json" for number in numbers]


def test_stats_are_medians_and_pass_rates() -> None:
    """Per lane: medians, peaks, endings, and the checks of the last hundred runs."""
    made = [
        entry(n, measured(steps__median=n, status="failed" if n < 3 else "complete"))
        for n in range(150)
    ]
    failed = measured(checks__no_oom=False, checks__losses_finite=False)
    made += [entry(n, failed) for n in range(150, 160)]
    (lane,) = compute_stats(made)
    assert lane.receipts == 160
    assert lane.statuses == {"complete": 157, "failed": 3}
    assert lane.checks.runs == 100
    assert lane.checks.passed == 90
    assert lane.checks.failed == {"no_oom": 10, "losses_finite": 10}
    assert lane.measures["step_s"].max == 149
    assert lane.throughput == "steps_per_s"
    (newest,) = compute_stats(made, last=10)
    assert (newest.receipts, newest.checks.passed) == (10, 0)


def test_the_throughput_is_the_one_most_receipts_have() -> None:
    """Tokens where half of the runs tell them, else steps: units are never mixed."""
    made = entries(range(10))
    assert compute_stats(made)[0].throughput == "steps_per_s"
    made += entries(range(10, 30), throughput__tokens_per_s=1000.0)
    assert compute_stats(made)[0].throughput == "tokens_per_s"
    assert compute_stats(made)[0].measures["tokens_per_s"].receipts == 20
