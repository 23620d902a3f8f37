"""The plan of `compilediag plan`: which sizes came how often, the buckets for them, the code."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

from compilediag.receipt.bucket_plan import CallablePlan, FixedSizes, Histogram, Range, histogram
from compilediag.views.format import count
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

MAX_RANGES = 24
"""Lines of the histogram, about."""
MAX_PLANS = 8
"""Callables drawn; `--json` has the others."""
_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""

NOTHING_KNOWN = (
    "the receipt holds no sizes that change: no compiled callable was called with tensors of "
    "different sizes, or the receipt was not made by `compilediag run` or `watch()`. Run the "
    "program with the batches that it will really see, and plan from that receipt"
)


def render_plan(plans: Sequence[CallablePlan], options: RenderOptions) -> str:
    """One block a callable, those called most first."""
    if not plans:
        return "\n".join(options.wrap(NOTHING_KNOWN, "", "  ")) + "\n"
    blocks = [_block(item, options) for item in plans[:MAX_PLANS]]
    if len(plans) > MAX_PLANS:
        blocks.append([f"and {count(len(plans) - MAX_PLANS, 'callable')} more: --json has them"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _block(item: CallablePlan, options: RenderOptions) -> list[str]:
    lines = [*_head(item, options), ""]
    if item.buckets is None and item.grid is None:
        advice = (
            f"{len(item.varying.dims)} sizes change independently: a graph for each combination "
            "would be too many. Pad all but one or two of them to their largest size, and plan "
            "again"
        )
        return [*lines, *options.wrap(advice, "  ")]
    if item.buckets is not None:
        lines += _drawn(histogram(item.counts, item.buckets.buckets, MAX_RANGES), options)
    else:
        lines += _axes(item, options)
    return [*lines, "", *_compared(item, options), "", *_code(item, options)]


def _head(item: CallablePlan, options: RenderOptions) -> list[str]:
    varying = item.varying
    place = options.place(item.file, item.line, 200) if item.file else ""
    if item.called_at is not None:
        file, _, line = item.called_at.rpartition(":")
        place = f"called at {options.place(file, int(line), 200)}"
    name = options.styled(options.text(item.held_by or item.name, 80), "bold")
    calls = count(sum(varying.counts), "call") if item.counted else "calls not counted"
    distinct = count(len(varying.sizes), "size" if len(varying.dims) == 1 else "combination")
    lines = [f"{name}  {options.dot.join(filter(None, (place, calls, distinct)))}"]
    for sentence in (*(f"changes: {_places(d, options)}" for d in varying.dims), *_missing(item)):
        lines += options.wrap(sentence, "  ", "    ")
    return lines


def _missing(item: CallablePlan) -> list[str]:
    """What the plan could not take into account."""
    if not item.counted:
        return ["the sizes are of recompiles, each counted once: how often they come is not known"]
    missing: list[str] = []
    if item.padded_calls:
        missing.append(
            f"{count(item.padded_calls, 'call')} of these came from a FixedShape, at sizes that it "
            "had padded to: the plan takes them for sizes that are needed"
        )
    if not item.complete:
        missing.append(
            "most brief steps were only counted: a size that came in no other step is missing "
            "(COMPILEDIAG_EVERY_STEP=1 records all)"
        )
    if item.varying.other_calls:
        missing.append(
            f"{count(item.varying.other_calls, 'call')} had sizes that are not known: "
            "not planned for"
        )
    return missing


def _places(dims: Sequence[str], options: RenderOptions) -> str:
    parts = (place.rpartition(":") for place in dims)
    return " = ".join(f"dim {dim} of {options.text(name, 60)}" for name, _, dim in parts)


# --- the histogram ----------------------------------------------------------------------------


def _drawn(found: Histogram, options: RenderOptions) -> list[str]:
    """A bar a range of sizes, and an edge under each bucket."""
    ranges = [item for section in found.sections for item in section.ranges]
    ranges += [found.split] if found.split else []
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
    for section in found.sections:
        lines += map(bar, section.ranges)
        edge = f"  {dash * width}{corner} {section.bucket} {dash * 4}"
        edge += f" {count(section.calls, 'call')}, {_share(section.waste)} padding"
        lines.append(options.styled(edge, "cyan"))
    if found.split:
        lines.append(bar(found.split))
        lines.append(options.styled(f"  {' ' * width}  larger than every bucket: split", "cyan"))
    return lines


def _share(waste: float) -> str:
    return "<1 %" if 0 < waste < 0.01 else f"{waste:.0%}".replace("%", " %")


# --- comparison and code ----------------------------------------------------------------------


def _axes(item: CallablePlan, options: RenderOptions) -> list[str]:
    if item.grid is None:
        return []
    lines: list[str] = []
    for dims, sizes in zip(item.varying.dims, (item.grid.first, item.grid.second), strict=True):
        sentence = f"{_places(dims, options)}: {', '.join(map(str, sizes))}"
        lines += options.wrap(sentence, "  ", "    ")
    return lines


def _compared(item: CallablePlan, options: RenderOptions) -> list[str]:
    head = ("buckets", "graphs", "padding")
    rows = [(row.name, str(row.graphs), _share(row.waste)) for row in item.alternatives]
    return table(head, rows, options, right=head[1:])


def _code(item: CallablePlan, options: RenderOptions) -> list[str]:
    """Lines to be copied; a size that one tensor has twice is left to the reader."""
    axes = [_arguments(dims) for dims in item.varying.dims]
    if any(len(tensors) < len(dims) for tensors, dims in zip(axes, item.varying.dims, strict=True)):
        sentence = "one tensor has this size in two dims: name one of them in FixedShape by hand"
        return options.wrap(sentence, "  ")
    if item.fixed is not None:
        return _changed(item, item.fixed, options)
    name = item.held_by or _variable(item.name)
    if item.grid is not None:
        dims, sizes = _two_axes(axes), _listed_axes(item)
    else:
        dims = _literal({tensor: str(dim) for tensor, dim in axes[0].items()})
        sizes = _listed(item.buckets.buckets if item.buckets else ())
    lines = (
        "import compilediag as cd",
        "",
        f"{name} = cd.FixedShape({name}, dims={dims}, buckets={sizes})",
        f"{name}.warmup(example)  # once, before the first batch: every bucket is compiled here",
    )
    return [f"  {options.text(line, 4000)}" if line else "" for line in lines]


def _changed(item: CallablePlan, fixed: FixedSizes, options: RenderOptions) -> list[str]:
    """The setting of a FixedShape that is there."""
    if item.grid is not None:
        new = _listed_axes(item, fixed.axes)
        now = _literal(
            {axis: _listed(its) for axis, its in zip(fixed.axes, fixed.buckets, strict=False)}
        )
    else:
        new = _listed(item.buckets.buckets if item.buckets else ())
        now = _listed(fixed.buckets[0])
    current = f"FixedShape({item.held_by or _variable(item.name)}, ...) pads to {now} now"
    if new == now:
        return options.wrap(f"{current}: as planned", "  ", "    ")
    return [
        *options.wrap(f"{current}; write instead", "  ", "    "),
        "",
        f"  {options.text(f'buckets={new}', 4000)}",
    ]


def _arguments(dims: Sequence[str]) -> dict[str, int]:
    parts = (place.rpartition(":") for place in dims)
    return {name: int(dim) for name, _, dim in parts}


def _variable(name: str) -> str:
    """What the callable is probably called in the program: `policy` for "Policy.forward"."""
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    if "<locals>" in name and name.endswith(".inner"):
        return "compiled"  # what torch wraps around a module
    base = parts[-1].lower() if parts and name.endswith(".forward") else (parts or ["compiled"])[-1]
    return "compiled" if keyword.iskeyword(base) else base


def _two_axes(axes: Sequence[Mapping[str, int]]) -> str:
    by_tensor: dict[str, dict[str, str]] = {}
    for axis, tensors in zip(_AXES, axes, strict=True):
        for tensor, dim in tensors.items():
            by_tensor.setdefault(tensor, {})[axis] = str(dim)
    return _literal({tensor: _literal(dims) for tensor, dims in by_tensor.items()})


def _listed_axes(item: CallablePlan, axes: Sequence[str] = _AXES) -> str:
    sizes = (item.grid.first, item.grid.second) if item.grid else ((), ())
    return _literal({axis: _listed(one) for axis, one in zip(axes, sizes, strict=True)})


def _listed(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _literal(items: Mapping[str, str]) -> str:
    """A dict as Python writes it, its values as they are."""
    keys = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in items)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, items.values(), strict=True)) + "}"
