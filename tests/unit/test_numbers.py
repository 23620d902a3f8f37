"""Which compiled calls give other numbers than eager: by the same call in float64."""

import math

import pytest

from compilediag.fixes.numbers import compare_numbers
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import (
    EAGER,
    IN_DOUBLE,
    OWN_BACKEND,
    ROUNDS,
    CallDigest,
    CallVaried,
    Location,
)

FLOATS = f"(float32[4]){ROUNDS}"
WHOLE = "(int64[4])"


def made(
    variation: str, total: float, exact: int = 0, structure: str = FLOATS, raised: str | None = None
) -> CallVaried:
    digest = () if raised else (CallDigest(total, 0.0, 0.0, exact),)
    place = Location("train.py", 3, "loss_of")
    return CallVaried(9.0, place, "gradients", 5, variation, structure, digest, raised, 0, step=4)


def judged(
    own: CallVaried,
    exact: float | None = 1.0,
    again: float = 1.0,
    eager: str = FLOATS,
    in_double: str = "(float64[4])",
):
    raised = None if exact else "TypeError: double"
    calls = (
        made(EAGER, 1.0, structure=eager),
        made(EAGER, again, structure=eager),
        made(IN_DOUBLE, exact or 0.0, structure=in_double, raised=raised),
        own,
    )
    return compare_numbers(fold([list(calls)]))


def compiled(total: float, **more) -> CallVaried:
    return made(OWN_BACKEND, total, **more)


@pytest.mark.parametrize(
    ("section", "found"),
    [
        (judged(compiled(1.5)), (False, 0, 0)),
        (judged(compiled(1.00001)), (True, 0, 0)),
        (judged(compiled(1.5), exact=None), (True, 0, 1)),
        (judged(compiled(1.5), exact=1.4), (True, 0, 1)),
        (judged(compiled(1.5), again=1.2), (True, 1, 0)),
        (judged(compiled(1.0, exact=7)), (True, 0, 1)),
        (judged(compiled(1.0, structure=f"(float64[4]){ROUNDS}")), (False, 0, 0)),
        (judged(compiled(1.0, structure=f"(float32[5]){ROUNDS}")), (False, 0, 0)),
        (
            judged(compiled(1.0, structure=f"(float32[5]){ROUNDS}"), in_double="(float64[3])"),
            (True, 0, 1),
        ),
        (judged(compiled(1.0, exact=7, structure=WHOLE), eager=WHOLE), (False, 0, 0)),
        (judged(compiled(1.0, raised="RuntimeError: no")), (True, 0, 1)),
    ],
)
def test_a_call_is_judged_by_float64(section, found) -> None:
    """Without it, or where eager is far from it, nothing is concluded."""
    assert (section.same, section.unstable, section.undetermined) == found
    assert (section.calls, section.values) == (1, 1)


def test_a_difference_names_the_call() -> None:
    (difference,) = judged(compiled(1.5)).differences
    assert (difference.call, difference.step, difference.calls) == (5, 4, 1)
    assert (difference.function.function, difference.dtype) == ("loss_of", "float32")
    assert math.isfinite(float(difference.text.rpartition(" ")[2]))


def test_without_a_call_nothing_is_said() -> None:
    section = compare_numbers(fold([[]]))
    assert (section.same, section.problem) == (None, "no compiled call returned")
