"""What moved is no new fault: files and functions that have another name, and their old place."""

from typing import Any

import pytest
from gate_receipts import again, branch, eager, first, place, receipt
from msgspec.structs import replace
from screens import comparison_screen
from timelines import attempt

from compilediag.compare.changes import relocate
from compilediag.compare.diff import compare
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.run_baseline import ConfigBaseline, build_run_baseline
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.style import RenderOptions

OLD, NEW = "/home/user/app.py", "/home/user/models/app.py"


def run_in(file: str, function: str = "forward", variable: str = "n") -> Receipt:
    """One frame with a recompile, a graph break and an eager function, all in one file."""
    where = place(function, 10, file)
    made = (attempt("0/0", where=where), again(variable, where=where), eager(file=file))
    return receipt(*made, breaks=[branch(function=function, file=file)])


def allowed(made: Receipt) -> ConfigBaseline:
    return record_baseline(made, None, reason="known").baseline


def test_a_moved_file_passes_with_its_reasons() -> None:
    """All three items are known at their new place; nothing is better; the move is a notice."""
    lane = allowed(run_in(OLD))
    judged = judge(run_in(NEW), baseline=lane)
    assert (judged.passed, judged.improvements) == (True, ())
    assert [item.reason for item in judged.known] == ["known"] * 3
    assert sum(text.startswith("moved from") for text in judged.notices) == 3
    again = record_baseline(run_in(NEW), lane)
    assert (again.unexplained, again.without_reason) == ((), ())


def test_a_renamed_function_passes() -> None:
    """The cause and the break are the same in a function of another name."""
    lane = allowed(run_in(OLD))
    judged = judge(run_in(OLD, function="encode"), baseline=lane)
    assert (judged.failures, judged.improvements) == ((), ())


@pytest.mark.parametrize(
    "now",
    [
        run_in(NEW, variable="m"),
        receipt(first(), again(where=place("forward", 10, NEW))),
        run_in(NEW, function="encode", variable="m"),
    ],
)
def test_what_is_not_the_same_is_new(now: Receipt) -> None:
    """Another variable; and the same one in a new file while the old place is still there."""
    judged = judge(now, baseline=allowed(run_in(OLD)))
    assert "cause" in {item.kind for item in judged.failures}
    assert "cause" in {item.kind for item in judged.improvements}


def test_a_move_within_own_code_is_found_in_the_whole_run() -> None:
    """`--own-code-only` judges a part, and what is left out of it is not gone."""
    judged = judge(run_in(NEW), baseline=allowed(run_in(OLD)), own_code_only=True)
    assert (judged.failures, judged.improvements) == ((), ())


def test_diff_shows_a_move_as_one() -> None:
    """Neither new nor gone, in causes, breaks, frames and findings."""
    found = compare(run_in(OLD), run_in(NEW))
    assert not found.changed
    assert (found.causes_new, found.breaks_new, found.findings_new, found.frames) == ((),) * 4
    assert {move.path for move in found.moves} == {"causes", "breaks", "frames", "fallbacks"}
    text = comparison_screen(found, RenderOptions(width=200))
    assert "moved, and the same otherwise" in text
    assert "causes: forward of app.py → forward of models/app.py" in text


def test_more_of_it_at_the_new_place_fails() -> None:
    """A move allows as much as there was, and no more."""
    lane = allowed(run_in(OLD))
    fewer = replace(lane, breaks=(replace(lane.breaks[0], count=0),))
    judged: Any = judge(run_in(NEW), baseline=fewer)
    assert [item.kind for item in judged.failures] == ["break"]


def test_nothing_moves_between_equal_runs() -> None:
    """The baseline is the same object."""
    lane = build_run_baseline(receipt(first(), again("n"))).baseline
    assert relocate(lane, lane).baseline is lane
