"""Numbers in words: durations, shares, counts and steps."""

import pytest

from compilediag.views.format import (
    format_metric,
    format_ordinal,
    format_percent,
    format_seconds,
    format_steps,
    pluralize,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not measured"),
        (0.0, "0 s"),
        (0.00042, "0.42 ms"),
        (0.0042, "4.2 ms"),
        (0.042, "42 ms"),
        (0.0996, "0.10 s"),
        (0.996, "1.0 s"),
        (1.234, "1.2 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (3600.0, "1 h 0 min"),
        (7260.0, "2 h 1 min"),
    ],
)
def test_seconds(value: float | None, expected: str) -> None:
    """Two figures and a unit at every size; null is never zero."""
    assert format_seconds(value) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("step_s", None, "not measured"),
        ("step_s", 0.0042, "4.20 ms"),
        ("tokens_per_s", 35210.4, "35,210/s"),
        ("goodput_fraction", 0.6123, "61.2 %"),
        ("host_peak_bytes", 999, "999 B"),
        ("host_peak_bytes", 812_000_000, "774 MiB"),
        ("host_peak_bytes", 3 << 50, "3 PiB"),
        ("loss", 0.371470, "0.3715"),
        ("loss", -1234.5, "-1,234"),
        ("loss", 1e300, "1e+300"),
        ("loss", 0.0, "0"),
    ],
)
def test_figures_have_the_unit_of_their_name(name: str, value: float | None, expected: str) -> None:
    """Seconds, bytes, shares and rates by the end of the name; other numbers to four figures."""
    assert format_metric(name, value) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0.43, 1.9, "23 %"),
        (0.0, 2.0, "0 %"),
        (0.001, 2.0, "<1 %"),
        (None, 2.0, None),
        (1.0, None, None),
        (1.0, 0.0, None),
    ],
)
def test_percent(part: float | None, whole: float | None, expected: str | None) -> None:
    """A share of something not measured is not shown."""
    assert format_percent(part, whole) == expected


def test_count_has_its_plural() -> None:
    found = [pluralize(n, "recompile") for n in (0, 1, 1234)]
    assert found == ["0 recompiles", "1 recompile", "1,234 recompiles"]


def test_ordinal() -> None:
    """The English endings, the teens included."""
    expected = [format_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 111)]
    assert expected == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th"]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((), ""),
        ((0,), "step 0"),
        ((8, 4), "steps 4, 8"),
        ((4, 8, 12), "every 4th step from 4 to 12"),
        ((3, 4, 5, 6), "steps 3 to 6"),
        ((1, 2, 4), "steps 1, 2, 4"),
        ((1, 2, 4, 8, 16), "steps 1, 2, 4 (+2 more)"),
        ((5, 5, 5), "step 5"),
    ],
)
def test_steps(numbers: tuple[int, ...], expected: str) -> None:
    """A rhythm is claimed only for three equally distant steps or more."""
    assert format_steps(numbers) == expected
