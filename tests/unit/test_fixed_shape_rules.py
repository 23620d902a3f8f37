"""Fixed shapes outside the process: records folded, findings, the receipt, in batches."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.figures.invocations import build_shapes_section, plan_padding
from compilediag.diagnosis.findings import make_place
from compilediag.receipt.schema.invocations import FixedShapeRecord
from compilediag.rules.fixed_shapes import (
    find_contamination,
    find_early_exit_waste,
    find_late_compiles,
    find_padding_waste,
)
from compilediag.timeline.fixed_shapes import MAX_REQUESTED_SIZES, SizeRun, collect_fixed_shapes
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness import wire
from compilediag_harness.base.session import Session
from compilediag_harness.shapes import shape_log

PLACE = wire.Location("/home/user/app.py", 4, "score")


def used(
    *calls: tuple[int, int, int], buckets: tuple[int, ...] = (4, 8), priced: bool = False
) -> wire.FixedShapeUsed:
    """Calls as (rows, size, count)."""
    return wire.FixedShapeUsed(
        1.0,
        0,
        PLACE,
        ("rows",),
        (buckets,),
        sizes=tuple((rows,) for rows, _, _ in calls),
        run=tuple((size,) for _, size, _ in calls),
        counts=tuple(count for _, _, count in calls),
        priced=priced,
    )


def split(*, in_graphs: tuple[int, ...] = (), number: int = 0) -> wire.FixedShapeUsed:
    """Two batches of 11, each of which ran as 8 and 3, and five of 6."""
    return wire.FixedShapeUsed(
        *(1.0, number, PLACE, ("rows",), ((4, 8),)),
        sizes=((8,), (3,), (6,)),
        run=((8,), (4,), (8,)),
        counts=(2, 2, 5),
        asked=((11,), (), (6,)),
        in_graphs=in_graphs,
        dims=(("obs:0", "mask:0"),),
    )


def wasteful(count: int = 8, *, priced: bool = False) -> wire.FixedShapeUsed:
    """Batches of 20 and of 70 rows; the latter run at 512."""
    return used((20, 64, count), (70, 512, count), buckets=(64, 512), priced=priced)


def checked(*outputs: tuple[str, str]) -> wire.PaddingChecked:
    """Outputs as (path, kind)."""
    return wire.PaddingChecked(
        *(2.0, 0, 0, PLACE, (3,), (4,), ("zeros", "large"), (7,), False),
        outputs=tuple(path for path, _ in outputs),
        kinds=tuple(kind for _, kind in outputs),
        notes=tuple(f"seen {kind}" for _, kind in outputs),
        max_abs=tuple(0.5 for _ in outputs),
        bitwise=tuple(kind == "safe" for _, kind in outputs),
    )


def rows_run(
    computed: int, active: int, steps: int = 10, *, compaction: bool = False
) -> wire.RowsRun:
    return wire.RowsRun(3.0, steps, 0, PLACE, steps, 8, computed, active, 0, compaction)


WARMED = wire.FixedShapeWarmed(1.0, 0, 0, PLACE, 2, 2, backward=False, began=0.5)
LATE = wire.FixedShapeCompiled(4.0, 6, 0, PLACE, (3,), (4,), ("DYNAMO 0/2",))


def timeline(*events: wire.Event) -> Timeline:
    return fold([events], user_roots=("/home/user",))


def recorded(run: Timeline) -> FixedShapeRecord:
    """What the receipt has of the first FixedShape."""
    return build_shapes_section(run).fixed[0]


def test_calls_are_added_up_by_size() -> None:
    """Over all records; padding is what ran and was not real."""
    (item,) = collect_fixed_shapes(0, [used((3, 4, 2), (4, 4, 1)), used((6, 8, 1))])
    assert item.sizes == (SizeRun((4,), 3, 10), SizeRun((8,), 1, 6))
    assert item.padding_waste == 20 / 16 - 1
    assert collect_fixed_shapes(0, [WARMED])[0].padding_waste is None


def test_contamination_names_the_output_and_the_fix() -> None:
    """Harmless kinds are no finding; of several harmful ones the first is named, all are kept."""
    (finding,) = find_contamination(
        timeline(checked(("a", "safe"), ("b", "contaminated"), ("c", "parity"), ("d", "rng")))
    )
    assert (finding.rule, finding.severity, finding.variable) == ("CD406", "error", "b")
    assert (finding.location, finding.count) == (make_place(PLACE), 2)
    assert finding.title == "b depends on padding: seen contaminated, and 1 more"
    assert "mask=" in finding.fix.summary
    assert not list(find_contamination(timeline(checked(("a", "nan_leak"), ("b", "rng")))))


@pytest.mark.parametrize(
    ("kinds", "unseen", "probes", "verdict"),
    [
        (("safe", "nan_leak"), (), ("padding in use", "large"), "safe"),
        (("safe",), (), ("zeros",), "safe"),  # of an older journal
        (("safe",), (), ("padding in use",), "unknown"),
        (("safe",), ("variable it (builtins.generator)",), ("zeros",), "unknown"),
        (("safe", "rng"), (), ("zeros",), "unknown"),
        (("unknown",), (), ("zeros",), "unknown"),
        (("unknown", "state"), ("global q (queue.Queue)",), ("zeros",), "unsafe"),
    ],
)
def test_the_receipt_has_a_verdict_of_three_values(kinds, unseen, probes, verdict) -> None:
    """Safe only where everything was looked into and something was tried; what was not is named."""
    event = replace(
        checked(*((str(index), kind) for index, kind in enumerate(kinds))),
        unseen=unseen,
        probes=probes,
    )
    padding = recorded(timeline(event)).padding
    assert (padding.verdict, padding.safe) == (verdict, verdict == "safe")
    assert padding.unseen == unseen


@settings(deadline=None, max_examples=40)
@given(
    counts=st.dictionaries(st.integers(1, 64), st.integers(1, 9), min_size=1, max_size=12),
    buckets=st.sets(st.integers(2, 63), max_size=4),
)
def test_planned_sizes_never_pad_more(counts: dict[int, int], buckets: set[int]) -> None:
    """Nor are they more, and each call fits."""
    chosen = (*sorted(buckets), 64)
    calls = [
        (size, next(item for item in chosen if item >= size), count)
        for size, count in counts.items()
    ]
    (item,) = collect_fixed_shapes(0, [used(*calls, buckets=chosen)])
    planned = plan_padding(item)
    (sizes,) = planned.buckets
    assert len(sizes) <= len(chosen)
    assert sizes[-1] >= max(counts)
    assert item.elements <= planned.run_elements <= item.run_elements
    ran = (next(its for its in sizes if its >= size) * count for size, count in counts.items())
    assert planned.run_elements == sum(ran)


def test_many_sizes_are_not_spelled_out() -> None:
    """The fix stays one line; the evidence has all of them."""
    sizes = tuple(range(100, 140, 2))
    calls = used(*((size - 60, size, 1) for size in sizes), buckets=(*sizes, 1000))
    (finding,) = find_padding_waste(timeline(calls))
    assert finding.fix.summary.endswith("buckets=planned_buckets of the receipt")
    assert finding.evidence["planned_buckets"] == [[size - 60 for size in sizes]]


def test_two_axes_are_planned_as_a_grid() -> None:
    """As many cells; a length of 0 runs in the smallest bucket. Three axes are not judged."""
    sizes = ((3, 5), (3, 0))
    calls = wire.FixedShapeUsed(
        *(1.0, 0, PLACE, ("B", "T"), ((16,), (64,)), sizes, ((16, 64),) * 2, (20, 2))
    )
    (finding,) = find_padding_waste(timeline(calls))
    assert finding.fix.summary.endswith('buckets={"B": [8], "T": [8]}')
    assert finding.evidence["planned_run_elements"] == 22 * 8 * 8
    three = wire.FixedShapeUsed(
        *(1.0, 0, PLACE, ("B", "T", "U"), ((16,),) * 3, ((3, 3, 3),), ((16, 16, 16),), (20,))
    )
    assert not list(find_padding_waste(timeline(three)))


def test_batches_are_known_as_they_came() -> None:
    """Before padding and splitting; an old journal has nothing of them."""
    (item,) = timeline(split(), split()).fixed_shapes
    assert (item.requested, item.other_batches) == ({(11,): 4, (6,): 10}, 0)
    assert recorded(timeline(used((3, 4, 2)))).requested is None


def test_batches_of_many_sizes_are_bounded() -> None:
    """Sizes beyond those kept are counted."""
    sizes = tuple((size,) for size in range(1, MAX_REQUESTED_SIZES + 4))
    counts = (2,) * len(sizes)
    event = wire.FixedShapeUsed(
        *(1.0, 0, PLACE, ("rows",), ((9999,),), sizes, ((9999,),) * len(sizes), counts), asked=sizes
    )
    (item,) = collect_fixed_shapes(0, [event])
    assert (len(item.requested), item.other_batches) == (MAX_REQUESTED_SIZES, 3 * 2)


def test_waste_is_told_when_most_rows_were_done() -> None:
    """More than half of a loop long enough; the fix depends on whether compaction was on."""
    (finding,) = find_early_exit_waste(timeline(rows_run(80, 30)))
    assert (finding.rule, finding.title) == (
        "CD408",
        "50 of 80 rows were done before they were computed again",
    )
    assert "compaction=True" in finding.fix.summary
    (finding,) = find_early_exit_waste(timeline(rows_run(80, 30, compaction=True)))
    assert "smaller sizes" in finding.fix.summary
    assert not list(find_early_exit_waste(timeline(rows_run(80, 40), rows_run(24, 3, steps=3))))


def test_compiles_after_the_warmup_are_told() -> None:
    """With their steps, sizes and ids."""
    (finding,) = find_late_compiles(timeline(WARMED, LATE, LATE))
    assert (finding.rule, finding.count, finding.steps) == ("CD302", 2, (6,))
    assert finding.evidence["begun"] == ["DYNAMO 0/2"] * 2
    assert not list(find_late_compiles(timeline(WARMED)))
    assert "CD302" in REGISTER


def test_what_was_not_measured_is_null_in_the_receipt() -> None:
    """What was done and proved: the recorded runs of padding_contaminates and early_exit."""
    assert build_shapes_section(timeline()) is None
    warmed = recorded(timeline(used((3, 4, 2)), WARMED, LATE))
    assert (warmed.warmed, warmed.warmup_compiles, warmed.late_compiles) == (True, 2, 1)
    bare = recorded(timeline(used((3, 4, 2))))
    assert (bare.late_compiles, bare.padding, bare.planned_buckets) == (None, None, ((4,),))
    assert bare.planned_waste_fraction == bare.padding_waste_fraction
    priced = recorded(timeline(wasteful(priced=True), WARMED))
    assert (priced.planned_buckets, priced.planned_waste_fraction) == ((), None)


def test_sessions_are_told_in_batches_and_at_the_end() -> None:
    """Equal calls are one row; when the session is gone nothing is kept."""
    events: list[Any] = []
    declared = wire.FixedShapeUsed(0.0, 3, PLACE, ("rows",), ((4, 8),), (), (), ())
    session = Session(events.append, origin=0.0)
    shape_log.sinks.install(session)
    try:
        (sink,) = shape_log.sinks.all
        sink.add(declared, (3,), (4,), (3,), in_graphs=False)  # written at once
        for number in range(5):
            sink.add(declared, (2,), (4,), (2,), in_graphs=number > 2)
        shape_log.sinks.finish(session)
    finally:
        shape_log.sinks.uninstall(session)
    assert (events[0].number, events[0].counts) == (3, (1,))
    assert sum(sum(event.counts) for event in events) == 6
    assert (events[-1].asked, events[-1].in_graphs) == (((2,),), (2,))
    assert not shape_log.sinks.all
