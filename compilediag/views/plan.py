"""The view of `compilediag plan`: a histogram of sizes, the buckets for them, the code."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.rules.bucket_plan import (
    PlanRecord,
    Range,
    SizesOfBucket,
    has_size_twice,
    histogram,
    listed_buckets,
    name_of,
    settings_of,
)
from compilediag.views.document import Table
from compilediag.views.format import count
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import table

MAX_RANGES = 24
"""Lines of the histogram, about."""
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
    blocks = [_block(item, options) for item in plans[:MAX_PLANS]]
    if len(plans) > MAX_PLANS:
        blocks.append([f"and {count(len(plans) - MAX_PLANS, 'callable')} more: --json has them"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _block(item: PlanRecord, options: RenderOptions) -> list[str]:
    place = options.place(item.file, item.line, 200) if item.file else ""
    if item.called_at is not None:
        file, _, line = item.called_at.rpartition(":")
        place = f"called at {options.place(file, int(line), 200)}"
    name = options.styled(options.text(item.held_by or item.name, 80), "bold")
    calls = "calls not counted" if item.counts is None else count(sum(item.counts), "call")
    distinct = count(len(item.sizes), "size" if len(item.dims) == 1 else "combination")
    lines = [f"{name}  {options.dot.join(filter(None, (place, calls, distinct)))}"]
    # What changes, and what the plan could not take into account.
    told = [f"changes: {_places(each, options)}" for each in item.dims]
    if item.counts is None:
        told.append(
            "the sizes are of recompiles, each counted once: how often they come is not known"
        )
    else:
        if item.padded_calls:
            told.append(
                f"{count(item.padded_calls, 'call')} of these came from a FixedShape, at sizes "
                "that it had padded to: the plan takes them for sizes that are needed"
            )
        if not item.complete:
            told.append(
                "most brief steps were only counted: a size that came in no other step is missing "
                "(COMPILEDIAG_EVERY_STEP=1 records all)"
            )
        if item.other_calls:
            calls = count(item.other_calls, "call")
            told.append(f"{calls} had sizes that are not known: not planned for")
    for sentence in told:
        lines += options.wrap(sentence, "  ", "    ")
    lines.append("")
    if item.buckets is not None:
        counts = {size[0]: calls for size, calls in item.calls.items()}
        lines += _drawn(*histogram(counts, item.buckets, MAX_RANGES), options)
    elif item.grid is not None:
        for dims, sizes in zip(item.dims, item.planned, strict=True):
            sentence = f"{_places(dims, options)}: {', '.join(map(str, sizes))}"
            lines += options.wrap(sentence, "  ", "    ")
    else:
        advice = (
            f"{len(item.dims)} sizes change independently: a graph for each combination would be "
            "too many. Pad all but one or two of them to their largest size, and plan again"
        )
        return [*lines, *options.wrap(advice, "  ")]
    head = ("buckets", "graphs", "padding")
    rows = [(row.name, str(row.graphs), _share(row.waste)) for row in item.alternatives]
    compared = table(Table(head, rows, right=head[1:]), options)
    return [*lines, "", *compared, "", *_code(item, options)]


def _places(dims: Sequence[str], options: RenderOptions) -> str:
    parts = (place.rpartition(":") for place in dims)
    return " = ".join(f"dim {dim} of {options.text(name, 60)}" for name, _, dim in parts)


def _drawn(
    sections: Sequence[SizesOfBucket], split: Range | None, options: RenderOptions
) -> list[str]:
    """Draw a bar for each range of sizes, and an edge under each bucket."""
    ranges = [item for section in sections for item in section.ranges]
    ranges += [split] if split else []
    labels = ("-", "|", "#", "-+", "-") if options.ascii_only else ("–", "│", "█", "─┴─", "─")
    between, side, block, corner, dash = labels
    names = {
        item: f"{item.low}" if item.low == item.high else f"{item.low}{between}{item.high}"
        for item in ranges
    }
    highest = max(item.calls for item in ranges)
    width = max(map(len, names.values()))
    room = max(options.width - width - len(f"{highest:,}") - 8, 8)

    def bar(item: Range) -> str:
        drawn = block * -(-item.calls * room // highest)
        calls = f" {item.calls:,}" if item.calls else ""
        return f"  {names[item]:>{width}} {side}{drawn}{calls}"

    lines: list[str] = []
    for section in sections:
        lines += map(bar, section.ranges)
        edge = f"  {dash * width}{corner} {section.bucket} {dash * 4}"
        edge += f" {count(section.calls, 'call')}, {_share(section.waste)} padding"
        lines.append(options.styled(edge, "cyan"))
    if split:
        lines.append(bar(split))
        lines.append(options.styled(f"  {' ' * width}  larger than every bucket: split", "cyan"))
    return lines


def _share(waste: float) -> str:
    return "<1 %" if 0 < waste < 0.01 else f"{waste:.0%}".replace("%", " %")


def _code(item: PlanRecord, options: RenderOptions) -> list[str]:
    """Render lines to be copied; a size that one tensor has twice is left to the reader."""
    if has_size_twice(item):
        sentence = "one tensor has this size in two dims: name one of them in FixedShape by hand"
        return options.wrap(sentence, "  ")
    name, fixed = name_of(item), item.fixed
    if fixed is None:
        warmup = "once, before the first batch: every bucket is compiled here"
        lines = (
            f"{name} = cd.FixedShape({name}, {settings_of(item)})",
            f"{name}.warmup(example)  # {warmup}",
        )
        code = [f"  {options.text(line, 4000)}" for line in lines]
        return ["  import compilediag as cd", "", *code]
    # The setting of a FixedShape that is there.
    new, now = listed_buckets(fixed.axes, item.planned), listed_buckets(fixed.axes, fixed.buckets)
    current = f"FixedShape({name}, ...) pads to {now} now"
    if new == now:
        return options.wrap(f"{current}: as planned", "  ", "    ")
    write = options.wrap(f"{current}; write instead", "  ", "    ")
    return [*write, "", f"  {options.text(f'buckets={new}', 4000)}"]
