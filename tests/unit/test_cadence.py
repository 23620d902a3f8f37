"""Cadences: the program's own period, and what a probe makes of it."""

import pytest

from compilediag_harness.user_api.cadence import cadence, format_variable_name, parse_setting


def fires(every: int = 4, steps: int = 12) -> list[int]:
    entropy = cadence("attention-entropy", every)
    return [step for step in range(steps) if entropy.due(step)]


def test_the_program_decides_when_nothing_is_set() -> None:
    """`step % every == 0`, as one would write it."""
    assert fires() == [0, 4, 8]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("off", []),
        ("OFF", []),
        ("6", [0, 6]),
        ("5+2", [2, 7]),
        ("4+5", [1, 5, 9]),
        (" 3 ", [0, 3, 6, 9]),
    ],
)
def test_a_probe_moves_it(monkeypatch, setting: str, expected: list[int]) -> None:
    """Off, another period, or another offset, by environment variable."""
    monkeypatch.setenv("COMPILEDIAG_CADENCE_ATTENTION_ENTROPY", setting)
    assert fires() == expected


@pytest.mark.parametrize("setting", ["", "0", "-4", "4+", "often", "4.5", "1e3"])
def test_a_bad_setting_is_said_and_changes_nothing(monkeypatch, setting: str) -> None:
    """The program runs on as written, with one warning that names the variable."""
    monkeypatch.setenv(format_variable_name("attention-entropy"), setting)
    with pytest.warns(UserWarning, match="COMPILEDIAG_CADENCE_ATTENTION_ENTROPY"):
        assert fires() == [0, 4, 8]
    with pytest.raises(ValueError, match="period"):
        parse_setting(setting)


def test_a_period_below_one_is_refused() -> None:
    """It would never, or always, fire: a mistake in the program."""
    with pytest.raises(ValueError, match="every must be 1 or more"):
        cadence("metric", 0)
