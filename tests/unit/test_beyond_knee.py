"""Batches past the knee: measured by `FixedShape.knee` and found where they were used."""

from __future__ import annotations

import pytest
from knee_pieces import found, measured, used

from compilediag.diagnosis.figures.invocations import shapes_section
from compilediag.diagnosis.rules.batch_size import NO_MEMORY
from compilediag.timeline.fold import fold


def test_calls_at_a_size_that_loses_are_told_with_the_size_to_stay_at() -> None:
    """The table of the story this began with: best at 512, 1.6 times as long a row at 1024."""
    event = measured((64, 4.0, 4.1), (512, 10.0, 10.2), (1024, 32.0, 33.0), knee=512)
    (finding,) = found(event, used((64, 5), (512, 7), (1024, 3)))
    assert (finding.rule, finding.count) == ("CD409", 3)
    assert finding.title == (
        "3 calls ran at 1024 rows, past the knee: a row takes 1.6 times as long as at 512"
    )
    assert "sizes above 512" in finding.fix.summary
    assert finding.evidence["beyond"] == [{"size": 1024, "calls": 3, "times": pytest.approx(1.6)}]


def test_a_size_that_was_not_used_is_no_finding() -> None:
    """Measuring alone is no fault, nor is a run that never measured."""
    event = measured((64, 4.0, 4.1), (512, 10.0, 10.2), (1024, 32.0, 33.0), knee=512)
    assert found(event, used((64, 5), (512, 7))) == []
    assert found(event) == []
    assert found(used((1024, 3))) == []


def test_noise_makes_it_silent() -> None:
    """Where fast calls at the large size are as good as slow ones at the small size, or lose less
    than the knee gives up anyway, nothing is reported; a loss larger than the noise is, although no
    knee could be named."""
    calls = used((512, 7), (1024, 3))
    assert found(measured((512, 10.0, 16.0), (1024, 32.0, 50.0)), calls) == []
    assert found(measured((512, 10.0, 10.1), (1024, 20.9, 21.0), knee=512), calls) == []
    (finding,) = found(measured((512, 10.0, 18.0), (1024, 320.0, 500.0)), calls)
    assert "16.0 times" in finding.title


def test_a_smaller_size_is_never_beyond() -> None:
    """A row takes longest at the smallest size: that is before the knee, not past it."""
    event = measured((64, 4.0, 4.1), (512, 10.0, 10.2), (1024, 18.0, 18.2), knee=1024)
    assert found(event, used((64, 50), (512, 7), (1024, 3))) == []


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
    section = shapes_section(timeline)
    assert section is not None
    knee = section.fixed[0].knee
    assert knee is not None
    assert (knee.size, [item.size for item in knee.measured]) == (512, [512, 1024])
    assert knee.measured[0].rows_per_s == pytest.approx(51_200)
    assert (knee.measured[1].call_s, knee.measured[1].problem) == (None, NO_MEMORY)


# --- measuring ---
