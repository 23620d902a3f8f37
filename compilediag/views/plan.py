"""The view of `compilediag plan`: the buckets for the sizes of a run, and the code."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.rules.bucket_plan import (
    PlanRecord,
    choose_name,
    find_obstacle,
    format_buckets,
    format_settings,
)
from compilediag.views.document import Table
from compilediag.views.format import format_percent, pluralize
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_table

MAX_PLANS = 8
"""Callables drawn; `--json` has the others."""

NOTHING_KNOWN = (
    "the receipt holds no sizes that change: no compiled callable was called with tensors of "
    "different sizes, or the receipt was not made by `compilediag run` or `watch()`. Run the "
    "program with the batches that it will really see, and plan from that receipt"
)


def render_plan(plans: Sequence[PlanRecord], options: RenderOptions) -> str:
    """Render one block a callable, those called most first."""
    if not plans:
        return "\n".join(options.wrap(NOTHING_KNOWN, "", "  ")) + "\n"
    blocks = [_render_block(plan, options) for plan in plans[:MAX_PLANS]]
    if len(plans) > MAX_PLANS:
        left_out = pluralize(len(plans) - MAX_PLANS, "callable")
        blocks.append([f"and {left_out} more: --json has them"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _render_block(plan: PlanRecord, options: RenderOptions) -> list[str]:
    place = options.format_place(plan.file, plan.line, 200) if plan.file else ""
    if plan.called_at is not None:
        file, _, line = plan.called_at.rpartition(":")
        place = f"called at {options.format_place(file, int(line), 200)}"
    name = options.paint(options.clean(plan.held_by or plan.name, 80), "bold")
    calls = pluralize(sum(plan.calls.values()), "call")
    distinct = pluralize(len(plan.sizes), "size" if len(plan.dims) == 1 else "combination")
    lines = [f"{name}  {options.dot.join(filter(None, (place, calls, distinct)))}"]
    # What changes, and what the plan could not take into account.
    remarks = [f"changes: {_format_dims(dims, options)}" for dims in plan.dims]
    if plan.padded_calls:
        remarks.append(
            f"{pluralize(plan.padded_calls, 'call')} of these came from a FixedShape, at sizes "
            "that it had padded to: the plan takes them for sizes that are needed"
        )
    if not plan.complete:
        remarks.append(
            "most brief steps were only counted: a size that came in no other step is missing "
            "(COMPILEDIAG_EVERY_STEP=1 records all)"
        )
    if plan.other_calls:
        calls = pluralize(plan.other_calls, "call")
        remarks.append(f"{calls} had sizes that are not known: not planned for")
    for sentence in remarks:
        lines += options.wrap(sentence, "  ", "    ")
    lines.append("")
    if plan.buckets is not None or plan.grid is not None:
        for dims, sizes in zip(plan.dims, plan.planned, strict=True):
            sentence = f"{_format_dims(dims, options)}: {', '.join(map(str, sizes))}"
            lines += options.wrap(sentence, "  ", "    ")
    else:
        advice = (
            f"{len(plan.dims)} sizes change independently: a graph for each combination would be "
            "too many. Pad all but one or two of them to their largest size, and plan again"
        )
        return [*lines, *options.wrap(advice, "  ")]
    head = ("buckets", "graphs", "padding")
    rows = [
        (row.name, str(row.graphs), format_percent(row.waste, 1) or "") for row in plan.alternatives
    ]
    compared = render_table(Table(head, rows, right=head[1:]), options)
    return [*lines, "", *compared, "", *_render_code(plan, options)]


def _format_dims(dims: Sequence[str], options: RenderOptions) -> str:
    parts = (place.rpartition(":") for place in dims)
    return " = ".join(f"dim {dim} of {options.clean(name, 60)}" for name, _, dim in parts)


def _render_code(plan: PlanRecord, options: RenderOptions) -> list[str]:
    """Render lines to be copied, or why they are left to the reader."""
    if (obstacle := find_obstacle(plan)) is not None:
        return options.wrap(obstacle, "  ")
    name, fixed = choose_name(plan), plan.fixed
    if fixed is None:
        warmup = "once, before the first batch: every bucket is compiled here"
        lines = (
            f"{name} = cd.FixedShape({name}, {format_settings(plan)})",
            f"{name}.warmup(example)  # {warmup}",
        )
        code = [f"  {options.clean(line, 4000)}" for line in lines]
        return ["  import compilediag as cd", "", *code]
    # The setting of a FixedShape that is there.
    new, now = format_buckets(fixed.axes, plan.planned), format_buckets(fixed.axes, fixed.buckets)
    current = f"FixedShape({name}, ...) pads to {now} now"
    if new == now:
        return options.wrap(f"{current}: as planned", "  ", "    ")
    write = options.wrap(f"{current}; write instead", "  ", "    ")
    return [*write, "", f"  {options.clean(f'buckets={new}', 4000)}"]
