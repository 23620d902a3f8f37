"""The plan of `compilediag plan`: which sizes came how often, the buckets for them, the code."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

from compilediag.receipt.bucket_plan import CallablePlan, FixedSizes, Histogram, Range, histogram
from compilediag.views.style import RenderOptions
from compilediag.views.table import table
from compilediag.views.text import hang
from compilediag.views.words import count

MOST_RANGES = 24
"""Lines of the histogram, about."""
MOST_PLANS = 8
"""Callables drawn; `--json` has the others."""
_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""

NOTHING_KNOWN = (
    "the receipt holds no sizes that change: no compiled callable was called with tensors of "
    "different sizes, or the receipt was not made by `compilediag run` or `watch()`. Run the "
    "program with the batches that it will really see, and plan from that receipt"
)


def render_plan(plans: Sequence[CallablePlan], look: RenderOptions) -> str:
    """One block a callable, those called most first."""
    if not plans:
        return "\n".join(hang(NOTHING_KNOWN, look.width, "", "  ")) + "\n"
    blocks = [_block(item, look) for item in plans[:MOST_PLANS]]
    if len(plans) > MOST_PLANS:
        blocks.append([f"and {count(len(plans) - MOST_PLANS, 'callable')} more: --json has them"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _block(item: CallablePlan, look: RenderOptions) -> list[str]:
    lines = [*_head(item, look), ""]
    if item.buckets is None and item.grid is None:
        said = (
            f"{len(item.varying.dims)} sizes change independently: a graph for each combination "
            "would be too many. Pad all but one or two of them to their largest size, and plan "
            "again"
        )
        return [*lines, *hang(said, look.width, "  ", "  ")]
    if item.buckets is not None:
        lines += _drawn(histogram(item.counts, item.buckets.buckets, MOST_RANGES), look)
    else:
        lines += _axes(item, look)
    lines += ["", *_compared(item, look), "", *_code(item, look)]
    return lines


def _head(item: CallablePlan, look: RenderOptions) -> list[str]:
    varying = item.varying
    place = f"{look.path(item.file)}:{item.line}" if item.file else ""
    name = look.styled(look.text(item.name, 80), "bold")
    calls = count(sum(varying.counts), "call") if item.counted else "calls not counted"
    distinct = count(len(varying.sizes), "size" if len(varying.dims) == 1 else "combination")
    said = look.dot.join(part for part in (place, calls, distinct) if part)
    lines = [f"{name}  {said}"]
    for dims in varying.dims:
        lines += hang(f"changes: {_places(dims, look)}", look.width, "  ", "    ")
    for told in _missing(item):
        lines += hang(told, look.width, "  ", "    ")
    return lines


def _missing(item: CallablePlan) -> list[str]:
    """What the plan does not know."""
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
            "(COMPILEDIAG_EVERY_STEP=1 looks at all)"
        )
    if item.varying.other_calls:
        missing.append(
            f"{count(item.varying.other_calls, 'call')} had sizes that are not known: "
            "not planned for"
        )
    return missing


def _places(dims: Sequence[str], look: RenderOptions) -> str:
    told = (place.rpartition(":") for place in dims)
    return " = ".join(f"dim {dim} of {look.text(name, 60)}" for name, _, dim in told)


# --- the histogram ----------------------------------------------------------------------------


def _drawn(found: Histogram, look: RenderOptions) -> list[str]:
    """A bar a range of sizes, and an edge under each bucket."""
    ranges = [item for section in found.sections for item in section.ranges]
    ranges += [found.split] if found.split else []
    most = max(item.calls for item in ranges)
    label = max(len(_label(item, look)) for item in ranges)
    digits = len(f"{most:,}")
    room = max(look.width - label - digits - 8, 8)
    lines: list[str] = []
    for section in found.sections:
        lines += [_bar(item, most, label, room, look) for item in section.ranges]
        told = f" {section.bucket} "
        padding = f" {count(section.calls, 'call')}, {_share(section.waste)} padding"
        line = _dash(look) * label
        edge = f"  {line}{_corner(look)}{told}{_dash(look) * 4}{padding}"
        lines.append(look.styled(edge, "cyan"))
    if found.split:
        lines.append(_bar(found.split, most, label, room, look))
        lines.append(look.styled(f"  {' ' * label}  larger than every bucket: split", "cyan"))
    return lines


def _label(item: Range, look: RenderOptions) -> str:
    between = "-" if look.ascii_only else "–"
    return f"{item.low}" if item.low == item.high else f"{item.low}{between}{item.high}"


def _bar(item: Range, most: int, label: int, room: int, look: RenderOptions) -> str:
    width = -(-item.calls * room // most)
    told = f" {item.calls:,}" if item.calls else ""
    side = "|" if look.ascii_only else "│"
    bar = ("#" if look.ascii_only else "█") * width
    return f"  {_label(item, look):>{label}} {side}{bar}{told}"


def _dash(look: RenderOptions) -> str:
    return "-" if look.ascii_only else "─"


def _corner(look: RenderOptions) -> str:
    return "-+" if look.ascii_only else "─┴─"


def _share(waste: float) -> str:
    return "<1 %" if 0 < waste < 0.01 else f"{waste:.0%}".replace("%", " %")


# --- comparison and code ----------------------------------------------------------------------


def _axes(item: CallablePlan, look: RenderOptions) -> list[str]:
    if item.grid is None:
        return []
    lines: list[str] = []
    for dims, sizes in zip(item.varying.dims, (item.grid.first, item.grid.second), strict=True):
        told = f"{_places(dims, look)}: {', '.join(map(str, sizes))}"
        lines += hang(told, look.width, "  ", "    ")
    return lines


def _compared(item: CallablePlan, look: RenderOptions) -> list[str]:
    head = ("buckets", "graphs", "padding")
    rows = [(row.name, str(row.graphs), _share(row.waste)) for row in item.alternatives]
    return table(head, rows, look, right=head[1:])


def _code(item: CallablePlan, look: RenderOptions) -> list[str]:
    """Lines to be copied; a size that one tensor has twice is left to the reader."""
    axes = [_arguments(dims) for dims in item.varying.dims]
    if any(len(tensors) < len(dims) for tensors, dims in zip(axes, item.varying.dims, strict=True)):
        told = "one tensor has this size in two dims: name one of them in FixedShape by hand"
        return hang(told, look.width, "  ", "  ")
    if item.fixed is not None:
        return _changed(item, item.fixed, look)
    name = _variable(item.name)
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
    return [f"  {look.text(line, 4000)}" if line else "" for line in lines]


def _changed(item: CallablePlan, fixed: FixedSizes, look: RenderOptions) -> list[str]:
    """The setting of a FixedShape that is there."""
    if item.grid is not None:
        new = _listed_axes(item, fixed.axes)
        now = _literal(
            {axis: _listed(its) for axis, its in zip(fixed.axes, fixed.buckets, strict=False)}
        )
    else:
        new = _listed(item.buckets.buckets if item.buckets else ())
        now = _listed(fixed.buckets[0])
    said = f"FixedShape({_variable(item.name)}, ...) pads to {now} now"
    if new == now:
        return hang(f"{said}: as planned", look.width, "  ", "    ")
    return [
        *hang(f"{said}; write instead", look.width, "  ", "    "),
        "",
        f"  {look.text(f'buckets={new}', 4000)}",
    ]


def _arguments(dims: Sequence[str]) -> dict[str, int]:
    told = (place.rpartition(":") for place in dims)
    return {name: int(dim) for name, _, dim in told}


def _variable(name: str) -> str:
    """What the callable is probably called in the program: `policy` for "Policy.forward"."""
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    told = parts[-1].lower() if parts and name.endswith(".forward") else (parts or ["compiled"])[-1]
    return "compiled" if keyword.iskeyword(told) else told


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
    spelled = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in items)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(spelled, items.values(), strict=True)) + "}"
