"""Every guarded value that varied, also behind the causes: what the next run would find."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from compilediag.diagnosis.codes import REGISTER, SIZES, TEMPORARY
from compilediag.receipt.finding_keys import (
    name_carried,
    normalize_file,
    normalize_function,
)
from compilediag.receipt.schema.compiles import VariedValue, mask_indices
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.timeline.ownership import classify_ownership
from compilediag.views.document import Block, Table
from compilediag.views.place import name_frames
from compilediag.views.sentence import format_history, name_values
from compilediag.views.style import RenderOptions

MAX_ROWS = 10
"""On the screen of a verdict."""


def build_varied(
    receipt: Receipt, options: RenderOptions, suffix: str = "", *, complete: bool
) -> list[Block]:
    """Build the table of what varied, a row for each act: the values of a frame that one line
    changed. Of less than two rows a finding says as much; `complete` has it even so. `suffix`: see
    `choose_command`."""
    named = {row.variable for row in receipt.compile.varied if not _is_condition(row)}
    acts: dict[object, list[VariedValue]] = {}
    for row in receipt.compile.varied:
        changer = row.changed_at or next(iter(row.writers), None)
        line = None if changer is None else (changer.file, changer.function)
        # What is left of a function behind a graph break is guarded on the same values again.
        function = normalize_function(row.frame.function).removesuffix(" (resumed)")
        variable = row.variable.removesuffix("._base")  # of a view, what it is a view of
        # Items of one list that are another value than in the graph before in the same graphs.
        pairs = pairwise(row.values)
        changed = tuple(new.compile_id for before, new in pairs if new.value != before.value)
        items = (mask_indices(variable), changed)
        if variable.startswith(TEMPORARY):
            items = (name_carried(variable, row.frame.function).partition("[")[0], ())  # one line's
        act = (row.process, row.epoch, row.frame.file, function, line or items)
        # A condition says no more than the value that it is on.
        known = _is_condition(row) and row.variable in named
        # Sizes that a break carries on are those of other tensors; values are nowhere else.
        if not (known or (row.variable.startswith(TEMPORARY) and row.rule in SIZES)):
            acts.setdefault(act, []).append(row)
    # What had the same value in each graph, as parameters that are frozen in some, is one row.
    alike: dict[object, list[VariedValue]] = {}
    for rows in acts.values():
        first = rows[0]
        by = (first.changed_at, first.writers, first.process, first.epoch)
        alike.setdefault((first.frame, first.values, by), []).extend(rows)
    # First what has another value in most graphs: what comes back needs only a few.
    ordered = sorted(alike.values(), key=lambda rows: -max(map(_count_values, rows)))
    seen = any(row.changed_at or row.writers for row in receipt.compile.varied)
    columns = 14 if seen else 24  # what nobody was seen to change has no last column
    frames = name_frames((row.frame for row in receipt.compile.varied), options, columns)
    rows = [_build_row(members, frames, options) for members in ordered]
    if not rows or (len(rows) < 2 and not complete):
        return []
    limit = len(rows) if complete else MAX_ROWS
    left_out = receipt.compile.varied_left_out + max(0, len(rows) - limit)
    more = "counted and not listed" if complete else f"compilediag show --all{suffix}"
    notes = [f"+{left_out} more: {more}"] if left_out else []
    shown = rows[:limit]
    names = ("what varied", "in", "values", "changed by")
    in_one, unseen = len({row[1] for row in rows}) == 1, not any(row[3] for row in shown)
    kept = [n for n in range(4) if not (n == 1 and in_one) and not (n == 3 and unseen)]
    return [
        Table(
            tuple(names[n] for n in kept),
            [tuple(row[n] for n in kept) for row in shown],
            shrink=names[2],
            wide_only=tuple(names[n] for n in (1, 3) if n in kept),
            notes=notes,
            keep_start=True,
        )
    ]


def _build_row(
    members: list[VariedValue], frames: Mapping[FrameName, str], options: RenderOptions
) -> tuple[str, ...]:
    row = next((row for row in members if not _is_condition(row)), members[0])
    names = dict.fromkeys(name_carried(each.variable, row.frame.function) for each in members)
    alike = max(row.alike for row in members)
    if len(names) > 1 and len({mask_indices(name) for name in names}) == 1:
        alike, names = sum(row.alike for row in members), [*map(mask_indices, names)][:1]
    name, limit = name_values([*names], alike), max(options.width // 3, 16)
    if len(names) > 1 and len(name) > limit:
        more = f", +{len(names) - 1}"
        name = options.truncate(next(iter(names)), limit - len(more)) + more
    history = [graph.value for graph in row.values]
    distinct = [value for n, value in enumerate(history) if not n or value != history[n - 1]]
    changer = row.changed_at or next(iter(row.writers), None)
    shown = format_history(distinct, options)
    if any(each.values != row.values for each in members):  # of the first name, not of all
        first = name_carried(row.variable, row.frame.function).rpartition(" ")[2]
        shown = f"{options.clean(first.rpartition('.')[2])}: {shown}"
    place = ""
    if changer is not None and classify_ownership(changer.file) != "torch":
        place = options.format_place(normalize_file(changer.file), changer.line, 20)
    return (
        options.truncate(options.clean(name), limit),
        frames[row.frame],
        "a condition on its size" if _is_condition(row) else shown,
        place,
    )


def _count_values(row: VariedValue) -> int:
    return len({graph.value for graph in row.values})


def _is_condition(row: VariedValue) -> bool:
    return REGISTER[row.rule].changed == "condition"
