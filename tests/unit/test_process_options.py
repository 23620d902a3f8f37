"""The options of a run that its processes need: one variable, and no bad value disturbs the run."""

from __future__ import annotations

import json

import pytest

from compilediag_harness.base import process_options
from compilediag_harness.base.process_options import VARIABLE, ProcessOptions, WitnessPlan

ALL = ProcessOptions(
    steps=5,
    profile_dir='/runs/"a"',
    experiments_s=15.0,
    sync_steps=(7, 6),
    witness=WitnessPlan(frozenset({3, 7}), frozenset({"L['self'].flag"})),
)
ARMS = '"profile_dir":'
"""What `process.py` looks for before torch is there."""


@pytest.mark.parametrize("options", [ALL, ProcessOptions(witness=WitnessPlan())])
def test_what_is_written_is_read(options: ProcessOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field, and an empty plan is not none."""
    monkeypatch.setenv(VARIABLE, options.encode())
    assert process_options.read() == options
    assert (ARMS in options.encode()) is (options.profile_dir is not None)


def test_a_plain_run_has_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded there."""
    assert ProcessOptions().encode() == ""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert process_options.read() == ProcessOptions()


def test_a_name_in_the_program_arms_nothing() -> None:
    """A guard of a variable that has the name of the option."""
    plan = WitnessPlan(sources=frozenset({ARMS, 'L["profile_dir"]', "L['profile_dir']"}))
    assert ARMS not in ProcessOptions(witness=plan).encode()


@pytest.mark.parametrize(
    "text",
    [
        *("no JSON", "[]", "3", "null", '"x"', '{"steps": "many"}', '{"sync_steps": [0, 0]}'),
        *('{"sync_steps": 3}', '{"witness": []}', '{"witness": {"steps": ["a"], "sources": []}}'),
        '{"experiments_s": []}',
        "[" * 100_000,
    ],
)
def test_a_bad_value_is_a_fault_of_ours(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs as if it were not there."""
    monkeypatch.setenv(VARIABLE, text)
    faults: list[str] = []
    assert process_options.read(lambda where, _: faults.append(where)) == ProcessOptions()
    assert faults == [VARIABLE]


def test_a_program_does_one_step_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--steps 1`; unknown keys are those of another version."""
    monkeypatch.setenv(VARIABLE, json.dumps({"steps": -3, "later": 1}))
    assert process_options.read() == ProcessOptions(steps=1)
