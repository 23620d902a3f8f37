"""Fixed shapes outside of the process: records folded, findings, the receipt, told in batches."""

from __future__ import annotations

from typing import Any

from compilediag.codes import REGISTER
from compilediag.fixed_shapes import SizeRun, fixed_shapes_of
from compilediag.fold import fold
from compilediag.receipt.places import Places
from compilediag.receipt.shapes_part import shapes_section
from compilediag.rules.fixed_shapes import (
    find_contamination,
    find_early_exit_waste,
    find_late_compiles,
)
from compilediag.timeline import Timeline
from compilediag_harness.session import Session
from compilediag_harness.shapes import shape_log
from compilediag_harness.wire import (
    Event,
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    Location,
    PaddingChecked,
    RowsRun,
)

PLACE = Location("/home/user/app.py", 4, "score")


def used(*calls: tuple[int, int, int]) -> FixedShapeUsed:
    """Calls as (rows, size, count)."""
    return FixedShapeUsed(
        1.0,
        0,
        PLACE,
        ("rows",),
        ((4, 8),),
        sizes=tuple((rows,) for rows, _, _ in calls),
        run=tuple((size,) for _, size, _ in calls),
        counts=tuple(count for _, _, count in calls),
    )


def checked(*outputs: tuple[str, str]) -> PaddingChecked:
    """Outputs as (path, kind)."""
    return PaddingChecked(
        *(2.0, 0, 0, PLACE, (3,), (4,), ("zeros", "large"), (7,), False),
        outputs=tuple(path for path, _ in outputs),
        kinds=tuple(kind for _, kind in outputs),
        notes=tuple(f"seen {kind}" for _, kind in outputs),
        max_abs=tuple(0.5 for _ in outputs),
        bitwise=tuple(kind == "safe" for _, kind in outputs),
    )


def rows_run(computed: int, active: int, steps: int = 10, *, compaction: bool = False) -> RowsRun:
    return RowsRun(3.0, steps, 0, PLACE, steps, 8, computed, active, 0, compaction)


WARMED = FixedShapeWarmed(1.0, 0, 0, PLACE, 2, 2, backward=False, began=0.5)
LATE = FixedShapeCompiled(4.0, 6, 0, PLACE, (3,), (4,), ("DYNAMO 0/2",))


def timeline(*events: Event) -> Timeline:
    return fold([events], user_roots=("/home/user",))


def test_calls_are_added_up_by_size() -> None:
    """Over all records; padding is what ran and was not real."""
    (item,) = fixed_shapes_of(0, [used((3, 4, 2), (4, 4, 1)), used((6, 8, 1))])
    assert item.sizes == (SizeRun((4,), 3, 10), SizeRun((8,), 1, 6))
    assert item.padding_waste == 20 / 16 - 1
    assert fixed_shapes_of(0, [WARMED])[0].padding_waste is None


def test_contamination_names_the_output_and_the_fix() -> None:
    """Harmless kinds are no finding; of several harmful ones the first is told, all are kept."""
    (finding,) = find_contamination(
        timeline(checked(("a", "safe"), ("b", "contaminated"), ("c", "parity"), ("d", "rng")))
    )
    assert (finding.rule, finding.severity, finding.variable) == ("CD406", "error", "b")
    assert (finding.location, finding.count) == (PLACE, 2)
    assert finding.title == "b depends on padding: seen contaminated, and 1 more"
    assert "mask=" in finding.fix.summary
    assert not list(find_contamination(timeline(checked(("a", "nan_leak"), ("b", "rng")))))


def test_only_the_last_check_counts() -> None:
    """A mended function is not blamed for what it was."""
    assert not list(find_contamination(timeline(checked(("", "reduced")), checked(("", "safe")))))


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


def test_the_receipt_has_what_was_done_and_proved() -> None:
    """None without a FixedShape; what was not measured is null."""
    assert shapes_section(timeline(), Places(timeline())) is None
    told = timeline(used((3, 4, 2)), WARMED, checked(("a", "safe")), LATE, rows_run(80, 30))
    section = shapes_section(told, Places(told))
    assert section is not None
    (record,) = section.fixed
    assert (record.name, record.line, record.buckets) == ("score", 4, ((4, 8),))
    assert (record.warmed, record.warmup_compiles, record.late_compiles) == (True, 2, 1)
    assert record.padding is not None
    assert record.padding.safe
    assert record.rows is not None
    assert (record.rows.computed_rows, record.rows.active_rows) == (80, 30)
    bare = timeline(used((3, 4, 2)))
    section = shapes_section(bare, Places(bare))
    assert section is not None
    assert (section.fixed[0].late_compiles, section.fixed[0].padding) == (None, None)


def test_sessions_are_told_in_batches_and_at_the_end() -> None:
    """Equal calls are one row; when the session is gone nothing is kept."""
    events: list[Any] = []
    declared = shape_log.Declared(3, PLACE, ("rows",), ((4, 8),))
    session = Session(events.append, origin=0.0)
    shape_log.install(session)
    try:
        shape_log.called(declared, (3,), (4,))  # the first is written at once
        for _ in range(5):
            shape_log.called(declared, (2,), (4,))
        shape_log.finish(session)
    finally:
        shape_log.uninstall(session)
    assert (events[0].number, events[0].counts) == (3, (1,))
    assert sum(sum(event.counts) for event in events) == 6
    assert not shape_log.writers
