"""Two receipts compared: what must be equal, what changed, and what is only advisory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compilediag.comparison import CauseKey, FieldChange
from compilediag.diff import compare, lane_differences
from compilediag.errors import LanesNotComparable
from compilediag.receipt.record import from_plain
from compilediag.receipt.schema import Receipt
from compilediag.tally import COUNTS

EXAMPLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "receipt-example.json").read_text(encoding="utf-8")
)


def receipt(change: Callable[[dict[str, Any]], Any] = lambda raw: None) -> Receipt:
    """The example, changed by a function that gets it as JSON."""
    raw = copy.deepcopy(EXAMPLE)
    change(raw)
    return from_plain(Receipt, raw)


def without_the_last(raw: dict[str, Any]) -> None:
    """The fourth compile, which is the only one because of `stash`, did not happen."""
    raw["receipt_id"] = "01JD3Q0000000000000000001A"
    raw["compile"]["events"].pop()
    raw["compile"]["compiles"], raw["compile"]["recompiles"] = 3, 2
    raw["compile"]["frames_detail"][0]["compiles"] = 3


def test_the_same_receipt() -> None:
    """Nothing changed, and everything is told as the same."""
    found = compare(receipt(), receipt())
    assert not found.changed
    assert [item.name for item in found.counts] == list(COUNTS)
    assert [item.change for item in found.counts] == [0] * len(COUNTS)
    assert (found.causes_new, found.causes_gone) == ((), ())
    assert [(item.key.variable, item.before, item.after) for item in found.causes_same] == [
        ("pos.pe", 2, 2),
        ("capture", 1, 1),
        ("stash", 1, 1),
    ]
    assert (found.environment, found.provenance, found.checks, found.frames) == ((), (), (), ())


def test_a_cause_that_is_gone() -> None:
    """Fixed: the cause, its recompile and its compile are missing after."""
    found = compare(receipt(), receipt(without_the_last))
    assert [item.key.variable for item in found.causes_gone] == ["stash"]
    assert {item.name: item.change for item in found.counts if item.change} == {
        "compiles": -1,
        "recompiles": -1,
    }
    assert [(item.function, item.before, item.after) for item in found.frames] == [
        ("forward", 4, 3)
    ]
    assert found.changed


def test_a_cause_that_is_new() -> None:
    """The other way round it is new."""
    found = compare(receipt(without_the_last), receipt())
    assert [item.key for item in found.causes_new] == [
        CauseKey("closure_container", "stash", "model.py", "hook")
    ]
    assert (found.before_id, found.after_id) == (
        "01JD3Q0000000000000000001A",
        "01JD3Q0000000000000000000Z",
    )


def test_lines_may_move() -> None:
    """Lines inserted above make no cause new; the later line is told."""

    def move(raw: dict[str, Any]) -> None:
        for event in raw["compile"]["events"]:
            for cause in event["causes"]:
                cause["line"] += 40

    found = compare(receipt(), receipt(move))
    assert not found.changed
    assert [item.line for item in found.causes_same] == [47, 61, 62]


def test_more_of_the_same_is_a_change() -> None:
    """A cause that now costs two recompiles instead of one is no new cause and yet a change."""

    def repeat(raw: dict[str, Any]) -> None:
        raw["compile"]["events"].append(copy.deepcopy(raw["compile"]["events"][3]))

    found = compare(receipt(), receipt(repeat))
    assert (found.causes_new, found.changed) == ((), True)
    assert [(item.key.variable, item.after) for item in found.causes_same][-1] == ("stash", 2)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda raw: raw["header"]["lane"].update(name="other"), "lane.name"),
        (lambda raw: raw["header"]["lane"].update(preset="full"), "lane.preset"),
        (lambda raw: raw["header"]["lane"].update(precision=None), "lane.precision"),
        (
            lambda raw: raw["header"]["lane"]["numerics_flags"].update(backend="eager"),
            "lane.numerics_flags.backend",
        ),
        (
            lambda raw: raw["header"]["lane"]["numerics_flags"].update(matmul_precision="high"),
            "lane.numerics_flags.matmul_precision",
        ),
    ],
)
def test_other_lanes_are_refused(change: Callable[[dict[str, Any]], Any], path: str) -> None:
    """The message names the field that differs, also one this version does not know."""
    assert [item.path for item in lane_differences(receipt(), receipt(change))] == [path]
    with pytest.raises(LanesNotComparable, match=path):
        compare(receipt(), receipt(change))


def test_environment_is_told_and_does_not_refuse() -> None:
    """Another torch is what one compares for; the load average differs always and says nothing."""

    def upgrade(raw: dict[str, Any]) -> None:
        raw["environment"].update(torch="2.15.0", load_avg_1m=7.5)
        raw["environment"]["hooks_available"]["compile_callback"] = False

    found = compare(receipt(), receipt(upgrade))
    assert found.environment == (
        FieldChange("environment.torch", "2.13.0+cpu", "2.15.0"),
        FieldChange("environment.hooks_available.compile_callback", True, False),
    )
    assert not found.changed


def test_breaks() -> None:
    """A break is the same when place by name, category and reason are; lines may move."""
    site = {"file": "m.py", "function": "f", "gb_id": "GB0170", "reason": "branch", "count": 1}
    site |= {"category": "data_dependent_control_flow", "ownership": "user"}

    def breaks(*lines: int) -> Callable[[dict[str, Any]], None]:
        def change(raw: dict[str, Any]) -> None:
            raw["compile"]["breaks"] = [{**site, "line": line} for line in lines]

        return change

    moved = compare(receipt(breaks(3)), receipt(breaks(9)))
    assert [(item.before, item.after, item.line) for item in moved.breaks_same] == [(1, 1, 9)]
    assert not moved.changed
    assert [item.line for item in compare(receipt(), receipt(breaks(3))).breaks_new] == [3]
    assert [item.line for item in compare(receipt(breaks(3)), receipt()).breaks_gone] == [3]
    assert compare(receipt(breaks(3)), receipt(breaks(3, 9))).changed


def test_findings_by_code_and_variable() -> None:
    """Which findings came and went, in the words of the screen."""

    def fixed(raw: dict[str, Any]) -> None:
        raw["findings"].pop(0)

    assert compare(receipt(), receipt(fixed)).findings_gone == ("CD103 pos.pe",)
    assert compare(receipt(fixed), receipt()).findings_new == ("CD103 pos.pe",)


def test_a_frame_that_now_runs_eager() -> None:
    """The silent fallback is a change of the frame, even with equal counts of compiles."""

    def eager(raw: dict[str, Any]) -> None:
        raw["compile"]["frames_detail"][0]["ran_eager"] = True

    (found,) = compare(receipt(), receipt(eager)).frames
    assert (found.eager_before, found.eager_after, found.before, found.after) == (False, True, 4, 4)


def test_timings_are_told_and_change_nothing() -> None:
    """Seconds stand side by side; a slower run is not a changed one, an unmeasured one is null."""

    def slower(raw: dict[str, Any]) -> None:
        raw["compile"]["time_s"]["total"] = 9.0
        raw["goodput"] = raw["steps"] = None

    found = compare(receipt(), receipt(slower))
    assert {item.name: (item.before_s, item.after_s) for item in found.timings} == {
        "wall": (1.9, None),
        "goodput": (0.01, None),
        "compile": (1.59, 9.0),
        "recompile": (0.43, 0.43),
        "median step": (0.0006, None),
        "longest step": (1.16, None),
    }
    assert not found.changed
