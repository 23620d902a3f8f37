"""The options of a run that its processes need: one variable, and no bad value disturbs the run."""

import pytest

from compilediag_harness.base import process_options
from compilediag_harness.base.process_options import VARIABLE, ProcessOptions, WriteTracingPlan

PLAN = WriteTracingPlan(frozenset({3, 7}), frozenset({'"steps":', "L['scale']"}))
ALL = ProcessOptions(5, experiments_s=15.0, sync_steps=(7, 6), write_tracing=PLAN, past_limit=True)


@pytest.mark.parametrize("options", [ALL, ProcessOptions(), ProcessOptions(write_tracing=PLAN)])
def test_what_is_written_is_read(options: ProcessOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field."""
    monkeypatch.setenv(VARIABLE, options.encode())
    assert process_options.read() == options


@pytest.mark.parametrize(
    "text",
    [
        *("no JSON", "[]", "null", '{"steps": "many"}', '{"sync_steps": [0, 0]}', "[" * 100_000),
        *(
            '{"sync_steps": 3}',
            '{"write_tracing": []}',
            '{"write_tracing": {"steps": ["a"], "sources": []}}',
        ),
    ],
)
def test_a_bad_value_is_a_fault_of_ours(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs as if it were not there."""
    monkeypatch.setenv(VARIABLE, text)
    faults: list[str] = []
    assert process_options.read(lambda where, _: faults.append(where)) == ProcessOptions()
    assert faults == [VARIABLE]
