"""The plan of a trial: what is read from its file, and what is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest

from compilediag.timeline.timeline import fold
from compilediag_harness.trials import plan
from compilediag_harness.wire import (
    ArgumentChange,
    CompileOption,
    Location,
    SampledValue,
    SettingChange,
    SourceChange,
    StateRead,
    TrialApplied,
    TrialPlan,
)

PLAN = TrialPlan(
    (
        SettingChange("torch._dynamo.config", "recompile_limit", 12),
        SettingChange("torch._dynamo.config", "capture_scalar_outputs", value=True),
        SettingChange("torch._dynamo.config", "none", None),
    ),
    (CompileOption("dynamic", value=True), CompileOption("share", 0.5)),
    (
        ArgumentChange(Location("train.py", 3, "step"), "x", "mark_dynamic", 0),
        ArgumentChange(Location("train.py", 3, "step"), "y", "requires_grad"),
    ),
    (SourceChange("/train.py", "00", "pass\n"),),
    "force_eager",
    3,
)


def written(folder: Path, document: Any) -> str:
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every field and type, numbers and flags apart; all of them have a default."""
    read = plan.read_plan(written(tmp_path, dataclasses.asdict(PLAN)))
    assert read == PLAN
    assert read.settings[1].value is True
    assert plan.read_plan(written(tmp_path, {})) == TrialPlan()


@pytest.mark.parametrize(
    ("document", "where"),
    cast(
        "list[tuple[object, str]]",
        [
            ([], "plan is no object"),
            ({"nonsense": 1}, "'nonsense'"),
            ({"settings": {}}, "plan.settings is no list"),
            ({"settings": [{"module": "m", "name": "n"}]}, "plan.settings[0]: "),
            (
                {"settings": [{"module": "m", "name": 1, "value": 1}]},
                "plan.settings[0].name is int",
            ),
            ({"settings": [{"module": "m", "name": "n", "value": {}}]}, "plan.settings[0].value"),
            ({"seed": True}, "plan.seed is bool"),
            ({"call_seconds": 1}, "plan.call_seconds is int"),
            ({"stance": 1.5}, "plan.stance is float"),
        ],
    ),
)
def test_a_damaged_plan_is_refused_and_the_place_is_said(document, where, tmp_path) -> None:
    with pytest.raises(ValueError, match="plan") as raised:
        plan.read_plan(written(tmp_path, document))
    assert where in str(raised.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[" * 100_000, b"\xff"):
        path = tmp_path / "plan.json"
        path.write_bytes(content)
        with pytest.raises(ValueError):
            plan.read_plan(str(path))


def test_every_change_has_words_of_its_own() -> None:
    assert len(set(PLAN.labels)) == 3 + 2 + 2 + 1 + 2


def test_the_last_outcome_of_a_change_stands() -> None:
    events = [TrialApplied(1.0, "a"), TrialApplied(1.0, "b"), TrialApplied(2.0, "a", "gone")]
    found = fold([events, [TrialApplied(1.0, "a")]]).trial_applied
    assert [(item.process, item.change, item.problem) for item in found] == [
        (0, "a", "gone"),
        (0, "b", None),
        (1, "a", None),
    ]


def test_the_records_of_one_object_are_put_together() -> None:
    def record(path: str, instance: int = 0) -> StateRead:
        return StateRead(1.0, "Model", (SampledValue(path, "number"),), True, instance)

    held = fold([[record("a"), record("b"), record("a", 1)]])
    assert [
        (state.instance, [answer.path for answer in state.answers]) for state in held.held_states
    ] == [(0, ["a", "b"]), (1, ["a"])]
