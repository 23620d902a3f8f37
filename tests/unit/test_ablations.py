"""Reports of ablations: validated before they are written, read again, refused with reasons."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilediag_harness.base.session import Session
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker.ablations import (
    Ablation,
    AblationInvalid,
    ablation,
    read_ablation,
)
from compilediag_harness.wire import AblationWritten, Event

GIVEN: dict[str, Any] = {
    "architecture": "llama",
    "depth": 2,
    "steps": [0, 100, 200],
    "curves": {"loss": [3.0, 2.5, None]},
    "layers": {0: {"grad_norm": [1, 2, 3]}, 1: {"grad_norm": [1.0, 2.0, math.nan]}},
    "config": {"width": 64},
    "baseline": "full",
}


def report(**changes: Any) -> Ablation:
    """The report above, changed."""
    return ablation("no-rope", **{**GIVEN, **changes})


@pytest.fixture
def received() -> Iterator[list[Event]]:
    """The events of a session."""
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    tracked_run.sinks.install(session)
    yield events
    tracked_run.sinks.uninstall(session)


def test_written_and_read(tmp_path: Path, received: list[Event]) -> None:
    """What is read is what was written; NaN became null and is counted; the receipt can link it."""
    path = tmp_path / "made" / "ablation.json"
    assert report().write(path) == str(path)
    assert os.listdir(path.parent) == ["ablation.json"]
    found = read_ablation(path)
    assert found.document() == report().document()
    assert found.steps == [0, 100, 200]
    assert found.curves == {"loss": [3.0, 2.5, None]}
    assert found.layers["1"] == {"grad_norm": [1.0, 2.0, None]}
    assert (found.not_finite, found.baseline, found.config) == (1, "full", {"width": 64})
    (event,) = received
    assert isinstance(event, AblationWritten)
    assert (event.name, event.architecture, event.depth) == ("no-rope", "llama", 2)
    assert (event.steps, event.curves, event.layers) == (3, 1, 2)
    assert (event.uri, event.bytes) == (path.as_uri(), path.stat().st_size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"curves": {"loss": [1.0, 2.0]}}, r"curves\['loss'\] has 2 numbers for 3 steps"),
        ({"layers": {0: {"n": [1]}, 1: {}}}, r"layers\['0'\]\['n'\] has 1 numbers for 3 steps"),
        ({"layers": {0: {}}}, "depth is 2, and there is no layer 1"),
        ({"layers": {0: {}, 1: {}, 2: {}}}, "'2' is beyond depth 2: layers are 0 to 1"),
        ({"layers": {"a": {}, 1: {}, 0: {}}}, "'a' must hold exactly one number"),
        ({"layers": {"0.1": {}, 1: {}, 0: {}}}, r"'0\.1' must hold exactly one number"),
        ({"layers": [[]]}, "layers must map each layer"),
        ({"architecture": " "}, "architecture must name the model under test"),
        ({"architecture": None}, "architecture must name the model under test"),
        ({"depth": 0}, "depth must be 1 or more"),
        ({"steps": []}, "steps must hold 1 to"),
        ({"steps": [0, 200, 200]}, "steps must ascend: 200 follows 200"),
        ({"curves": {"loss": "abc"}}, r"curves\['loss'\] must be a list"),
        ({"curves": 5}, "curves must map"),
        ({"curves": None, "layers": None}, "there is no curve"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    """A report that contradicts itself is not made, and the message names where."""
    with pytest.raises(AblationInvalid, match=message):
        report(**changes)


def test_every_problem_is_named() -> None:
    """One look at the message is enough."""
    with pytest.raises(AblationInvalid) as caught:
        report(architecture="", curves={"a": [1], "b": [2]}, layers={0: {}})
    assert str(caught.value).count(";") == 3


@pytest.mark.parametrize("keys", [("0", "1"), ("h.0", "h.1"), ("m.layers.0.mlp", "m.layers.1.mlp")])
def test_layer_keys_may_be_module_names(keys: tuple[str, ...]) -> None:
    """The one number in them is the layer; several keys may be of one layer."""
    layers = {key: {"norm": [1.0, 2.0, 3.0]} for key in (*keys, f"{keys[0]}.attention")}
    assert len(report(layers=layers).layers) == 3


def test_numbers_only() -> None:
    """A text in a curve is no number, whatever it looks like."""
    with pytest.raises(TypeError, match=r"curves\['loss'\] must be a number"):
        report(curves={"loss": [1.0, "2", 3.0]})


def test_validated_again_before_it_is_written(tmp_path: Path, received: list[Event]) -> None:
    """A curve that has grown since is found, and the file that was there stays."""
    path = tmp_path / "ablation.json"
    made = report()
    made.write(path)
    before = path.read_bytes()
    received.clear()
    made.curves["loss"].append(1.0)
    with pytest.raises(AblationInvalid, match="has 4 numbers for 3 steps"):
        made.write(path)
    assert (path.read_bytes(), received) == (before, [])


def test_fields_of_a_later_version_survive(tmp_path: Path) -> None:
    """A report of a newer minor version is read, and written back with everything."""
    path = tmp_path / "ablation.json"
    document = {**report().document(), "schema_version": "1.4", "later": {"a": 1}}
    path.write_text(json.dumps(document))
    read_ablation(path).write(path)
    assert json.loads(path.read_text())["later"] == {"a": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not readable as JSON"),
        (b'{"schema": "compilediag.ablation", ', "not readable as JSON"),
        (b"[]", "is no compilediag.ablation"),
        (b'{"schema": "compilediag.receipt"}', "is no compilediag.ablation"),
        (b'{"schema": "compilediag.ablation"}', "no schema version"),
        (b'{"schema": "compilediag.ablation", "schema_version": "2.0"}', "upgrade compilediag"),
        (b'{"schema": "compilediag.ablation", "schema_version": "1.0"}', "depth must be"),
    ],
)
def test_files_that_are_no_report(tmp_path: Path, content: bytes, message: str) -> None:
    """Half-written, foreign, newer and incomplete files are refused in one sentence."""
    path = tmp_path / "ablation.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_ablation(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be no report is not decoded."""
    monkeypatch.setattr(tracked_run, "MAX_BYTES", 10)
    path = tmp_path / "ablation.json"
    path.write_bytes(b" " * 11)
    with pytest.raises(ValueError, match="is larger than"):
        read_ablation(path)
