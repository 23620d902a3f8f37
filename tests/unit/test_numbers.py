"""Which numbers of compiled calls are others than eager's, and the search for frame and layer."""

import math

import pytest

from compilediag.fixes.numbers.first_difference import judge_value
from compilediag.fixes.numbers.narrow import MAX_RUNS, narrow_difference
from compilediag.receipt.schema.comparisons import NarrowedRecord
from compilediag_harness.wire import ComparedValue, SampledValue


def tensor(*values: float, dtype: str = "float32") -> SampledValue:
    norm = math.sqrt(sum(x * x for x in values))
    largest = max(map(abs, values))
    return SampledValue("", "tensor", dtype, (len(values),), values, norm, largest, 0, repr(values))


EAGER = tensor(1.0, 2.0, 3.0)
EXACT = tensor(1.0, 2.0, 3.0, dtype="float64")
OTHER = tensor(1.0, 2.0, 3.5)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (ComparedValue("", (OTHER,), (EAGER,), (EXACT,)), "differs"),
        (ComparedValue("", (tensor(1.0, 2.0, 3.000001),), (EAGER,), (EXACT,)), "same"),
        (ComparedValue("", (OTHER,), (EAGER,), ()), "undetermined"),
        (ComparedValue("", (OTHER,), (EAGER,), (EXACT,), stable=False), "unstable"),
        (ComparedValue("", (EXACT,), (EAGER,), (EXACT,)), "differs"),
        (
            ComparedValue("", (OTHER,), (EAGER,), (tensor(1, 2, 3.6, dtype="float64"),)),
            "undetermined",
        ),
    ],
)
def test_a_value_is_judged_by_float64(value: ComparedValue, kind: str) -> None:
    """Without it, or where eager is far from it, nothing is concluded."""
    assert judge_value(value, floating=True).kind == kind


def found(frame: str | None, cures: set[str], own: list[str], others: list[str]) -> NarrowedRecord:
    """The search where `frame` alone makes the difference, gone with the backends `cures`."""
    tried = set[str]()

    def differs(value: str) -> bool:
        assert value not in tried
        tried.add(value)
        frames, _, backend = value.partition(":")
        return not ((frames == ">=0" or frame in frames.split(",")) and backend in cures)

    return narrow_difference(own, others, differs)


def test_the_frame_and_the_layer_are_found() -> None:
    """In few runs, also among many frames; what no backend removes is Dynamo's."""
    own, others = ["1"], [str(each) for each in range(40) if each != 1]
    every = {"aot_eager", "aot_eager_decomp_partition", "eager"}
    one = found("1", every, own, others)
    assert (one.layer, one.frames, one.override) == ("backend", ("1",), "1:aot_eager")
    far = found("37", every, own, others)
    assert far.runs <= MAX_RUNS
    assert far.frames in (("37",), ())
    assert found("1", {"aot_eager", "eager"}, own, []).layer == "decompositions"
    assert found("1", {"eager"}, own, []).layer == "aot_autograd"
    assert found("1", set(), own, []).layer == "dynamo"
