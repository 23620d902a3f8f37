"""The steps of a run as columns that a chart draws: milliseconds by phase, and marks of compiles.

A long run is thinned out: of neighbouring steps the longest stands for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.timeline import Step
from compilediag.views import lookups
from compilediag.views.document import Table
from compilediag.views.format import NOT_MEASURED, format_seconds
from compilediag.views.steps import TIMED
from compilediag.views.text import clean

MAX_POINTS = 2000
"""A screen has fewer columns."""

MAX_MARKS = 1000
MAX_LONGEST = 12

Mark = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Columns of equal length, in milliseconds but for the step numbers."""

    numbers: tuple[int, ...] = ()
    """Of several steps in one point, the longest."""
    wall_ms: tuple[float, ...] = ()
    compile_ms: tuple[float, ...] = ()
    median_ms: tuple[float, ...] = ()
    shortest_ms: tuple[float, ...] = ()
    """Of the steps of each point; empty where a point is one step."""
    phases_ms: tuple[tuple[str, tuple[float | None, ...]], ...] = ()
    """The columns of each phase that was measured."""
    marks: tuple[Mark, ...] = ()
    """Compiles: step, kind, text, number of the finding."""
    steps: int = 0
    """All that were timed."""
    steps_per_point: int = 1
    marks_left_out: int = 0

    def get_columns(self) -> dict[str, Any]:
        """Get the columns for the script, under the names that `assets/report.js` reads."""
        return {
            "steps": self.numbers,
            "wall": self.wall_ms,
            "compile": self.compile_ms,
            "median": self.median_ms,
            "shortest": self.shortest_ms,
            "phases": [{"name": name, "ms": values} for name, values in self.phases_ms],
            "marks": self.marks,
        }


def build_step_series(steps: Sequence[Step], receipt: Receipt) -> StepSeries:
    """Build the columns of the steps of one process, and marks for the receipt's compiles."""
    per_point = max(1, -(-len(steps) // MAX_POINTS))
    points = [steps[first : first + per_point] for first in range(0, len(steps), per_point)]
    shown = [max(point, key=lambda step: step.wall_s) for point in points]
    walls = [[step.wall_s for step in point] for point in points] if per_point > 1 else []
    measured = [name for name in TIMED if any(getattr(step, f"{name}_s") for step in shown)]
    phases: list[tuple[str, tuple[float | None, ...]]] = []
    for name in measured:
        values: list[float | None] = [getattr(step, f"{name}_s") for step in shown]
        in_ms = tuple(None if value is None else _round_to_ms(value) for value in values)
        phases.append((name.replace("_", " "), in_ms))
    marks: list[Mark] = []
    number_of = {record.id: number for number, record in lookups.number_findings(receipt)}
    for event in receipt.compile.events:
        if event.step is None:
            continue
        cause = next((candidate for candidate in event.causes if candidate.primary), None)
        what = f"{event.kind} of {event.frame.function}"
        what += "" if event.seconds is None else f", {format_seconds(event.seconds)}"
        finding = rule = None
        if cause is not None:
            what += f": {cause.variable}"
            finding, rule = number_of.get(cause.finding or ""), clean(cause.rule or "", limit=8)
        text = clean(what, limit=200)
        named = {"step": event.step, "kind": event.kind, "text": text}
        marks.append({**named, "finding": finding, "rule": rule})
    return StepSeries(
        numbers=tuple(step.number for step in shown),
        wall_ms=tuple(_round_to_ms(step.wall_s) for step in shown),
        compile_ms=tuple(_round_to_ms(step.compile_s) for step in shown),
        median_ms=tuple(_round_to_ms(median(seconds)) for seconds in walls),
        shortest_ms=tuple(_round_to_ms(min(seconds)) for seconds in walls),
        phases_ms=tuple(phases),
        marks=tuple(marks[:MAX_MARKS]),
        steps=len(steps),
        steps_per_point=per_point,
        marks_left_out=max(0, len(marks) - MAX_MARKS),
    )


def build_longest_table(receipt: Receipt) -> Table | None:
    """Build a table of long steps: what a chart shows, in words."""
    spikes = () if receipt.steps is None else receipt.steps.spikes
    ordered = sorted(spikes, key=lambda spike: -spike.wall_s)[:MAX_LONGEST]
    names = {finding.id: f"finding {nth}" for nth, finding in lookups.number_findings(receipt)}
    rows = [
        (
            f"{spike.step:,}",
            format_seconds(spike.wall_s),
            format_seconds(spike.compile_s),
            names.get(spike.why or "", clean(spike.why or NOT_MEASURED, limit=60)),
        )
        for spike in sorted(ordered, key=lambda spike: spike.step)
    ]
    head = ("step", "took", "compiling", "why")
    return Table(head, rows, "longest steps", right=head[1:3]) if rows else None


def _round_to_ms(value: float) -> float:
    return round(1000 * value, 4)
