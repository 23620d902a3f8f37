"""What a program hands us: numbers and configurations, and no tensor is ever read."""

import argparse
import enum
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from compilediag_harness.user_api.to_jsonable import (
    MAX_VALUES,
    parse_config,
    parse_count,
    parse_float,
)


class Tensor:
    """Stands for one on a device: whoever reads it waits."""

    def item(self) -> float:
        pytest.fail("a tensor was read")

    __float__ = __index__ = __bool__ = __int__ = __str__ = __repr__ = item  # type: ignore[assignment]


class Recipe(enum.Enum):
    """A choice."""

    FAST = 1


@dataclass
class Settings:
    """A configuration as programs have them."""

    shots: int
    path: Path


def test_numbers() -> None:
    """Whatever is a real number is one; None is "not measured"; nothing is too large."""
    assert parse_float(None, "x") is None
    assert [parse_float(value, "x") for value in (1, 0.5, True, Fraction(1, 4))] == [
        1,
        0.5,
        1,
        0.25,
    ]
    assert (parse_float(10**400, "x"), parse_float(-(10**400), "x")) == (math.inf, -math.inf)


@pytest.mark.parametrize("value", ["1", [1.0], Decimal(1), 1j, object()])
def test_what_is_no_number(value: object) -> None:
    """A text that looks like one is none."""
    with pytest.raises(TypeError, match=r"metric 'loss' must be a number, not a "):
        parse_float(value, "metric 'loss'")


def test_a_tensor_is_refused_and_not_read() -> None:
    """The message names how the program reads it, and what that costs; ours never does."""
    with pytest.raises(TypeError, match=r"item\(\) reads it, and waits for the device"):
        parse_float(Tensor(), "metric 'loss'")
    with pytest.raises(TypeError, match=r"step must be an integer.*item\(\)"):
        parse_count(Tensor(), "step")
    with pytest.raises(TypeError, match=r"config\['x'\] is a .*Tensor"):
        parse_config({"x": Tensor()})


def test_to_counts() -> None:
    """Steps are integers from 0 on."""
    assert parse_count(7, "step") == 7
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        parse_count(-1, "step")
    for value in (1.5, True, None, "3"):
        with pytest.raises(TypeError, match="step must be an integer"):
            parse_count(value, "step")


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (None, {}),
        ({"a": 1, 2: None}, {"a": 1, "2": None}),
        ({"nan": math.nan, "inf": math.inf}, {"nan": "nan", "inf": "inf"}),
        ({"list": [1, (2.5, "x")]}, {"list": [1, [2.5, "x"]]}),
        ({"choice": Recipe.FAST, "half": Fraction(1, 2)}, {"choice": "FAST", "half": 0.5}),
        (Settings(5, Path("data")), {"shots": 5, "path": "data"}),
        ({"inner": Settings(5, Path("data"))}, {"inner": {"shots": 5, "path": "data"}}),
        (argparse.Namespace(lr=3e-4), {"lr": 3e-4}),
    ],
)
def test_configurations(given: Any, plain: dict[str, Any]) -> None:
    """What programs keep theirs in becomes plain values that are the same in every run."""
    assert parse_config(given) == plain


@pytest.mark.parametrize("given", [5, "text", [("a", 1)], Settings, {"f": lambda: 1}, {"b": b"x"}])
def test_what_is_no_configuration(given: object) -> None:
    """An object's address would make every run a lane of its own."""
    with pytest.raises(TypeError, match="config"):
        parse_config(given)


def test_configurations_are_bounded() -> None:
    """Wide, deep and endless ones are refused; long texts are cut."""
    endless: dict[str, Any] = {}
    endless["self"] = endless
    wide = {str(number): number for number in range(MAX_VALUES + 1)}
    for given in (endless, wide):
        with pytest.raises(ValueError, match="config is too large"):
            parse_config(given)
    assert len(parse_config({"text": "x" * 10_000})["text"]) < 600
