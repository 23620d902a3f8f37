"""Two receipts compared: what must be equal, what changed, and what is only advisory."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gate_receipts import branch, first, place
from gate_receipts import receipt as made
from screens import comparison_screen
from timelines import attempt, false_guard, recompile

from compilediag.compare.diff import Comparison, FieldChange, compare
from compilediag.compare.keys import COUNTS
from compilediag.errors import ConfigurationsNotComparable
from compilediag.receipt import file
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.timeline import Compile
from compilediag.views.diff import show_comparison
from compilediag.views.markdown import render_overview
from compilediag.views.style import RenderOptions

EXAMPLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "receipt-example.json").read_text(encoding="utf-8")
)


def receipt(change: Callable[[dict[str, Any]], Any] = lambda raw: None) -> Receipt:
    """The example, changed by a function that gets it as JSON."""
    raw = copy.deepcopy(EXAMPLE)
    change(raw)
    return msgspec.convert(raw, Receipt)


def without_the_last(raw: dict[str, Any]) -> None:
    """The fourth compile, which is the only one because of `stash`, did not happen."""
    raw["receipt_id"] = "01JD3Q0000000000000000001A"
    raw["compile"]["events"].pop()
    raw["compile"]["compiles"], raw["compile"]["recompiles"] = 3, 2
    raw["compile"]["frames_detail"][0]["compiles"] = 3


def test_phases_of_compiling_that_changed() -> None:
    """Only those that differ by enough to be seen, and none where one run has no phases."""

    def timed(**by_phase: float) -> Receipt:
        total = sum(by_phase.values())
        seconds = {"attempts": 1, "total": total, "restarted": 0.0, "by_phase": by_phase}
        return receipt(lambda raw: raw["compile"].update(seconds=seconds))

    found = compare(timed(dynamo=1.0, guards=0.5), timed(dynamo=1.05, kernel_builds=4.0))
    changed = [item for item in found.timings if item.name.startswith("compile: ")]
    assert [(item.name, item.before_s, item.after_s) for item in changed] == [
        ("compile: guards", 0.5, 0.0),
        ("compile: kernel_builds", 0.0, 4.0),
    ]
    assert "compile: kernel_builds" in comparison_screen(found, RenderOptions(width=100))
    found = compare(timed(dynamo=1.0), receipt(lambda raw: raw["compile"].update(seconds=None)))
    assert not [item for item in found.timings if item.name.startswith("compile: ")]


def test_the_same_receipt() -> None:
    """Nothing changed, and everything is told as the same."""
    found = compare(receipt(), receipt())
    assert not found.changed
    assert [item.name for item in found.counts] == list(COUNTS)
    assert [item.change for item in found.counts] == [0] * len(COUNTS)
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
    last = EXAMPLE["compile"]["events"][3]
    found = compare(receipt(), receipt(lambda raw: raw["compile"]["events"].append(last)))
    assert (found.causes_new, found.changed) == ((), True)
    assert [(item.key.variable, item.after) for item in found.causes_same][-1] == ("stash", 2)


def test_environment_is_shown_and_does_not_refuse() -> None:
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
    fixed = receipt(lambda raw: raw["findings"].pop(0))
    assert compare(receipt(), fixed).findings_gone == ("CD103 pos.pe",)
    assert compare(fixed, receipt()).findings_new == ("CD103 pos.pe",)


def test_a_frame_that_now_runs_eager() -> None:
    """The silent fallback is a change of the frame, even with equal counts of compiles."""
    eager = receipt(lambda raw: raw["compile"]["frames_detail"][0].update(ran_eager=True))
    (found,) = compare(receipt(), eager).frames
    assert (found.eager_before, found.eager_after, found.before, found.after) == (False, True, 4, 4)


def older(raw: dict[str, Any]) -> None:
    """A receipt of a version that knew less of the lane."""
    raw["schema_version"] = "0.9"
    raw["header"]["lane"]["numerics_flags"]["matmul_precision"] = None


def test_a_field_that_an_older_version_lacks_does_not_separate_lanes(monkeypatch) -> None:
    """When the lane learns to tell a flag, receipts from before stay comparable, and it is said
    which flag they do not tell."""
    flag = receipt(
        lambda raw: raw["header"]["lane"]["numerics_flags"].update(matmul_precision="high")
    )
    path = "numerics_flags.matmul_precision"
    monkeypatch.setitem(file.ADDED_TO_CONFIGURATION, path, (1, 0))
    found = compare(receipt(older), flag)
    assert found.configuration_not_recorded == (FieldChange(f"lane.{path}", None, "high"),)
    assert not compare(flag, flag).configuration_not_recorded
    with pytest.raises(ConfigurationsNotComparable, match="matmul_precision"):
        compare(receipt(), flag)

    def other(raw: dict[str, Any]) -> None:
        older(raw)
        raw["header"]["lane"]["name"] = "other"

    with pytest.raises(ConfigurationsNotComparable, match=r"lane\.name"):
        compare(receipt(other), flag)


def tracked(name: str = "eval/copy", **changes: Any) -> dict[str, Any]:
    """A tracked run, as a receipt has it."""
    run: dict[str, Any] = {"name": name, "config": {"shots": 5}, "state": "finished", "steps": 3}
    run["metrics"] = [{"name": "loss", "count": 3, "mean": 2.0}]
    return {**run, "per_s": {"tokens": 8.0}, "peak_bytes": 5, "peak_at_start_bytes": 4, **changes}


def test_numbers_are_shown_and_change_nothing() -> None:
    """Peaks, rates and the means of tracked runs stand side by side; one that only one measured is
    there too."""

    def measured(loss: float, peak: int | None) -> Callable[[dict[str, Any]], None]:
        def change(raw: dict[str, Any]) -> None:
            run = tracked()
            run["metrics"][0]["mean"] = loss
            raw.update(tracked=[run], memory={"host_peak_bytes": peak}, throughput=None)
            raw["goodput"]["fraction"] = None

        return change

    found = compare(receipt(measured(2.0, 100)), receipt(measured(1.5, None)))
    assert {item.name: (item.before, item.after) for item in found.numbers} == {
        "host_peak_bytes": (100, None),
        "eval/copy: loss": (2.0, 1.5),
        "eval/copy: tokens_per_s": (8.0, 8.0),
        "eval/copy: peak_bytes": (5, 5),
    }
    assert not found.changed


def test_tracked_runs_of_other_lanes_are_not_compared() -> None:
    """Another configuration is another lane: the difference is named, and no figure is set
    against one of it. Runs that did not end well have none."""

    def runs(*items: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        return lambda raw: raw.update(tracked=list(items), memory=None)

    found = compare(receipt(runs(tracked())), receipt(runs(tracked(config={"shots": 0}))))
    assert found.tracked_configurations == (FieldChange("tracked.eval/copy.shots", 5, 0),)
    assert not [item for item in found.numbers if item.name.startswith("eval/copy")]
    failed = compare(receipt(runs(tracked())), receipt(runs(tracked(state="failed"))))
    assert not [item for item in failed.numbers if item.name.startswith("eval/copy")]


def test_the_code_that_changed_is_named() -> None:
    """Commit, whether there were changes, and the digest of the script."""

    def edited(raw: dict[str, Any]) -> None:
        raw["header"]["provenance"].update(git_commit="f" * 40, git_dirty=True)
        raw["header"]["provenance"]["source_sha256"]["model.py"] = "0" * 64

    changed = compare(receipt(), receipt(edited)).provenance
    assert {item.path.partition(".")[2] for item in changed} == {
        *("git_commit", "git_dirty", "source_sha256.model.py")
    }


# --- a fix changes the data ----------------------------------------------------------------------


def given(
    samples: int | None = 40, elements: int | None = 160, steps: int | None = 10, **lane: Any
) -> Receipt:
    """A run of a model that was given so much, in a lane with other fields."""

    def change(raw: dict[str, Any]) -> None:
        raw["throughput"] = {"callable": "Model.forward", "samples": samples, "elements": elements}
        raw["throughput"]["samples_per_s"] = samples
        raw["steps"] = {**raw["steps"], "count": steps} if steps is not None else None
        fields = raw["header"]["lane"]
        for name, value in lane.items():
            (fields if name in fields else fields["numerics_flags"])[name] = value

    return receipt(change)


FIXES = {
    "drop_last": given(32, 128, steps=8),
    "padded": given(48, 192),
    "padded to longer rows": given(40, 320),
    "dynamic": given(dynamic=True),
    "a copy of the script": given(name="model_padded.py"),
    "a setting": given(matmul_precision="high"),
    "another default dtype": given(precision="bf16", default_dtype="torch.bfloat16"),
    "several at once": given(32, 128, steps=8, dynamic=True, name="fixed.py"),
}


@pytest.mark.parametrize("after", FIXES.values(), ids=FIXES)
def test_what_a_fix_changes_is_refused_with_the_way_out(after: Receipt) -> None:
    """Without the option, in a sentence that names it; with it, counts and causes are compared."""
    with pytest.raises(ConfigurationsNotComparable, match="add --changed-data") as raised:
        compare(given(), after)
    found = compare(given(), after, other_data=True)
    assert [item.key.variable for item in found.causes_same] == ["pos.pe", "capture", "stash"]
    first, *_ = found.changed_data.fields
    assert first.path in str(raised.value) or not first.path.startswith("lane")


@pytest.mark.parametrize(
    "lane", [{"backend": "eager"}, {"mode": "max-autotune"}, {"preset": "full"}]
)
def test_other_runs_stay_refused(lane: dict[str, str]) -> None:
    """No fix changes the backend: the option allows it as little, and is not advised for it."""
    for other_data in (False, True):
        with pytest.raises(ConfigurationsNotComparable, match=next(iter(lane))) as raised:
            compare(given(), given(32, **lane), other_data=other_data)
        assert "--changed-data" not in str(raised.value)


def comparable(found: Comparison) -> dict[str, bool]:
    """By the name of a figure."""
    return {item.name: item.comparable for item in (*found.timings, *found.numbers)}


def test_times_of_other_work_are_not_compared() -> None:
    """Seconds of compiles are; those of steps, rates and peaks only where the work is the same."""
    other = comparable(compare(given(), given(32, 128, steps=8), other_data=True))
    assert {name for name, value in other.items() if value} == {"compile", "recompile"}
    assert not other["median step"]
    assert not other["samples_per_s"]
    for same in (given(), given(dynamic=True), given(name="copy.py")):
        assert all(comparable(compare(given(), same, other_data=True)).values())
    assert not comparable(compare(given(), given(precision="bf16"), other_data=True))["wall"]
    unknown = compare(given(None, None), given(None, None), other_data=True)
    assert not comparable(unknown)["median step"], "what is not known is not the same"
    assert all(comparable(compare(given(None), given(None))).values())


def test_the_first_line_names_what_was_accepted() -> None:
    """On the screen, in Markdown and, by field, in JSON; the figures stand apart."""
    found = compare(given(), given(32, 128, steps=8, dynamic=True), other_data=True)
    assert [(item.path, item.before, item.after) for item in found.changed_data.fields] == [
        ("lane.numerics_flags.dynamic", None, True),
        ("throughput.samples", 40, 32),
        ("throughput.elements", 160, 128),
        ("steps.count", 10, 8),
    ]
    screen = comparison_screen(found, RenderOptions(width=300))
    assert screen.splitlines()[0] == (
        "changed data (--changed-data): dynamic not set → True, samples 40 → 32, elements 160 → "
        "128, steps 10 → 8 of Model.forward; counts and causes are compared, times and memory are "
        "not"
    )
    below = screen.partition("not comparable: the runs did other work")[2]
    assert "median step" in below
    assert "samples_per_s" in below
    assert "median step" not in screen.removesuffix(below)
    drawn = render_overview(show_comparison(found, RenderOptions()))
    assert drawn.startswith("changed data (--changed-data): dynamic not set → True, samples 40")
    assert "### the same counts" in drawn
    assert "**not comparable: the runs did other work**" in drawn
    same = comparison_screen(compare(given(), given(), other_data=True), RenderOptions(width=300))
    assert same.startswith("changed data (--changed-data): the same work of Model.forward; counts,")


def recompiled(function: str, frame: int = 0) -> tuple[Compile, Compile]:
    """A frame with one recompile that is blamed on the frame."""
    where = place(function)
    cause = recompile(f"{frame}/1", where=where, guards=[false_guard(user=None)])
    again = attempt(f"{frame}/1", kind="recompile", step=1, where=where, cause=cause)
    return attempt(f"{frame}/0", where=where), again


def in_frame(function: str, *, inlined: str | None = None) -> Receipt:
    """Such a frame, and a break in what it inlines."""
    return made(*recompiled(function), breaks=[branch(function=inlined or function)])


def test_a_cause_survives_a_padded_wrapper() -> None:
    """What pads and calls the function is the frame now; its own lines stay its own."""
    found = compare(in_frame("step"), in_frame("padded_step", inlined="step"))
    assert (found.causes_new, found.causes_gone, found.breaks_new, found.breaks_gone) == ((),) * 4
    assert [(item.function, item.after) for item in found.frames] == [
        ("step", 0),
        ("padded_step", 2),
    ]
    other = compare(in_frame("step"), made(first("step"), *recompiled("other", 1)))
    assert [item.key.function for item in other.causes_gone] == ["step"]
    assert [item.key.function for item in other.causes_new] == ["other"]
