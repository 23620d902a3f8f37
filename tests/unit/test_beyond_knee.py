"""Batches past the knee: measured by `FixedShape.knee` and found where they were used."""

from collections.abc import Callable, Iterable

import pytest
from knee_pieces import found, measured, used

from compilediag.diagnosis.figures.invocations import build_shapes_section
from compilediag.extensions.knee import NO_MEMORY
from compilediag.timeline.timeline import fold
from compilediag_harness.extensions.knee import Knee, find_knee
from compilediag_harness.shapes.buckets import BucketsImpossible


def test_a_size_that_was_not_used_is_no_finding() -> None:
    """Measuring alone is no fault, nor is a run that never measured."""
    event = measured((64, 4.0, 4.1), (512, 10.0, 10.2), (1024, 32.0, 33.0), knee=512)
    assert found(event, used((64, 5), (512, 7))) == []
    assert found(event) == []
    assert found(used((1024, 3))) == []


def test_calls_above_the_cap_of_memory() -> None:
    """The size was not measured, because it does not fit into memory; it was called."""
    event = measured((64, 4.0, 4.1), (512, 10.0, 10.2), (1024, None, None), problem=NO_MEMORY)
    (finding,) = found(event, used((512, 7), (1024, 1)))
    assert finding.title.startswith("1 call ran at 1024 rows, above the cap of memory")
    unmeasured = measured((64, 4.0, 4.1), (512, None, None), problem="OutOfMemoryError")
    assert found(unmeasured, used((512, 7))) == []
    assert found(measured((64, None, None), problem=NO_MEMORY), used((64, 7))) == []


def test_the_receipt_has_what_was_measured() -> None:
    """The last measurement counts; what was not measured is null."""
    first = measured((64, 1.0, 1.0), knee=64)
    event = measured((512, 10.0, 10.2), (1024, None, None), knee=512, problem=NO_MEMORY)
    timeline = fold([(first, event, used((512, 1)))])
    section = build_shapes_section(timeline)
    knee = section and section.fixed[0].knee
    assert (knee.size, [item.size for item in knee.measured]) == (512, [512, 1024])
    assert knee.measured[0].rows_per_s == pytest.approx(51_200)
    assert (knee.measured[1].call_s, knee.measured[1].problem) == (None, NO_MEMORY)


# --- measuring ---


TABLE = {100: 0.079, 256: 0.122, 512: 0.208, 1024: 3.45}
"""Seconds of a call that an evaluation was once measured with."""


def in_order(series: dict[int, Iterable[float]]) -> Callable[[int], float]:
    """A measurement that gives each size its times one after the other."""
    left = {size: iter(times) for size, times in series.items()}
    return lambda size: next(left[size])


def test_the_table_has_its_knee_at_512() -> None:
    """Throughput rises to 512 and falls to an eighth at 1024: the knee is 512; 1024 is reported as
    a cliff that was measured again."""
    found = find_knee(TABLE.__getitem__, TABLE)
    assert (found.size, found.noise, found.reason) == (512, 0.0, None)
    assert found.gain == pytest.approx((512 / 0.208) / (256 / 0.122) - 1)
    cliff = found.measured[-1]
    assert (cliff.size, cliff.problem, len(cliff.seconds)) == (1024, "past a cliff", 6)


def test_a_size_near_the_best_is_enough() -> None:
    """256 has 97 % of the best throughput: twice the rows are not worth it."""
    found = find_knee({128: 0.010, 256: 0.0165, 512: 0.032}.__getitem__, [512, 128, 256])
    assert found.size == 256


def test_a_disturbed_call_is_no_cliff() -> None:
    """Size 256 is slow once, while something else ran: measured again it is fast, and wins."""
    measure = in_order({128: [0.01] * 5, 256: [0.5] + [0.012] * 9})
    assert find_knee(measure, [128, 256]).size == 256


def test_sizes_are_measured_in_turn() -> None:
    """All sizes upwards, then all downwards: none has its five calls in one bad moment."""
    measured: list[int] = []

    def measure(size: int) -> float:
        measured.append(size)
        return size / 100 + 1.0

    find_knee(measure, [1, 2, 4], rounds=3)
    assert measured == [1, 2, 4, 4, 2, 1, 1, 2, 4]


def test_noise_above_the_gain_names_no_size() -> None:
    """256 gains 8 % over 128, and calls at one size differ by more: no size is named."""
    measure = in_order({128: [1.0, 1.3, 1.0, 1.3, 1.2], 256: [1.85, 2.4, 1.85, 2.4, 2.2]})
    found = find_knee(measure, [128, 256])
    assert (found.size, found.reason is None) == (None, False)
    assert (found.noise or 0) > (found.gain or 0) > 0


def failing(at: int, error: Exception) -> Knee:
    """Sizes 1 to 8 of which one and all above it raise."""

    def measure(size: int) -> float:
        if size >= at:
            raise error
        return 1.0 + size / 10

    return find_knee(measure, [1, 2, 4, 8])


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), MemoryError()])
def test_memory_ends_the_climb(error: Exception) -> None:
    """A size at which memory is exhausted ends the search; what lies below it still counts."""
    found = failing(4, error)
    assert found.size == 2
    assert [(item.size, item.problem) for item in found.measured][-1] == (4, type(error).__name__)


def test_nothing_measured_is_no_knee() -> None:
    """Where the smallest size fails, or does not fit, nothing is claimed."""
    assert failing(1, RuntimeError("no")).size is None
    found = find_knee(lambda _: 1.0, [8, 16], fits=lambda size: size < 8)
    assert (found.size, found.measured[0].problem) == (None, "does not fit into memory")


def test_times_must_be_times() -> None:
    """No size, a size of 0, and a time of 0 seconds are errors, not results."""
    for sizes, seconds in (([], 1.0), ([0], 1.0), ([4], 0.0), ([4], float("nan"))):
        with pytest.raises(BucketsImpossible):
            find_knee(lambda _, taken=seconds: taken, sizes)
