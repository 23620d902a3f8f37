"""Sentences on compiled graphs: what a frame's serve, what a limit hid, why it was traced again."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from compilediag.diagnosis.codes import SIZES
from compilediag.receipt.finding_keys import name_carried
from compilediag.receipt.schema.compiles import (
    AcceptedSizes,
    CompileEvent,
    RefusedSize,
    VariedValue,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.views.format import format_more, format_seconds, join_words
from compilediag.views.lookups import format_target
from compilediag.views.place import name_frames
from compilediag.views.style import RenderOptions

MAX_FRAMES, MAX_LINES, MAX_NAMED = 5, 2, 3
"""Frames on a screen, lines of each, and dimensions, spans of sizes or reasons in one sentence."""

_REASON = re.compile(r" \(guard[^;]*\)(?=;|$)")


def render_graphs(
    receipt: Receipt, options: RenderOptions, suffix: str = "", *, complete: bool
) -> list[str]:
    """Render a line for each frame whose sizes are known, on a screen for the first ones, and what
    a limit hid, or showed since it was lifted. `suffix`: see `choose_command`."""
    # What is left of a function behind a graph break comes last.
    sentences = sorted(list_served(receipt, options), key=lambda text: "(resumed)" in text)
    shown = sentences if complete else sentences[:MAX_FRAMES]
    lines = list[str]()
    left_out = len(sentences) - len(shown)
    for text in shown:
        wrapped = options.wrap(text, "  ", "    ")
        if len(wrapped) > MAX_LINES and not complete:
            # The sizes alone, those of the first dimensions: reasons are what `--all` has.
            parts = _REASON.sub("", text).split("; ")
            while len(wrapped) > MAX_LINES and parts:
                wrapped = options.wrap("; ".join(parts), "  ", "    ")
                parts.pop()
        if complete or len(wrapped) <= MAX_LINES:
            lines += wrapped
        else:  # half a sentence says nothing
            left_out += 1
    more = f": compilediag show --all{suffix}"
    lines += format_more(left_out, more) if lines or not left_out else [f"  sizes served{more}"]
    if receipt.compile.recompile_limit_hits:
        target = options.clean(format_target(receipt), 200)
        unseen = f"what changes once the limit is hit: compilediag run --past-limit {target}"
        lines += options.wrap_warning(unseen, "not seen: ")
    if receipt.header.configuration.past_limit:
        lifted = "for this run alone; by itself torch runs a frame over the limit eager"
        lines += options.wrap_warning(lifted, "recompile limit lifted: ")
    return lines


def list_served(
    receipt: Receipt, options: RenderOptions, only: Container[FrameName] | None = None
) -> list[str]:
    """List a sentence for each frame, or for those given, of which it is known what it serves."""
    details = receipt.compile.frames_detail
    full = (its.frame for its in details if its.headroom.variants == its.headroom.limit)
    eager = {*full, *(its.frame for its in details if its.ran_eager)}
    frames: dict[FrameName, list[str]] = {}
    named: dict[FrameName, list[Sequence[str]]] = {}
    for sizes in receipt.compile.accepted_sizes:
        if only is None or sizes.frame in only:
            does = "runs eager" if sizes.frame in eager else "compiles again"
            frames.setdefault(sizes.frame, []).append(_describe_sizes(sizes, does, options))
            named.setdefault(sizes.frame, []).append(sizes.dimensions)
    apart = {row.frame for row in receipt.compile.varied if not _is_in_one(row, named)}
    like = ", with all else as at its last compile,"
    return [
        name
        + (like if frame in apart else "")
        + f" serves {'; '.join(dict.fromkeys(frames[frame]))}"
        for frame, name in name_frames(frames, options, 30).items()
    ]


def _is_in_one(row: VariedValue, named: Mapping[FrameName, Sequence[Sequence[str]]]) -> bool:
    """True if all that varied in a value are sizes of which it is said together what its frame
    serves: graphs of another mode, or for other sizes beside these, may serve others."""
    shapes = (its.value.strip("[]").split(", ") for its in row.values)
    dimensions = enumerate(zip(*shapes, strict=False))
    sizes = {f"{row.variable}.shape[{dim}]" for dim, seen in dimensions if len({*seen}) > 1}
    groups = named.get(row.frame, ())
    return row.rule in SIZES and len(groups) == 1 and sizes <= {*groups[0]}


def _describe_sizes(sizes: AcceptedSizes, does: str, options: RenderOptions) -> str:
    """Describe sizes: "x.shape[0] 2–15, and compiles again for 1 and 16 or more"."""
    names = (name_carried(name, sizes.frame.function) for name in sizes.dimensions)
    named = _join([options.clean(name, 60) for name in names])
    ends = (" or more" if last >= sizes.largest else f"–{last:,}" for _, last in sizes.spans)
    pairs = zip(sizes.spans, ends, strict=True)
    served = _join([f"{first:,}{end if first < last else ''}" for (first, last), end in pairs])
    (first, last), *others = sizes.spans
    if others or first == last:
        return f"{named} {served} alone, and {does} for any other up to {sizes.largest:,}"
    parts = _describe_parts(sizes, options)
    refused = {0: [], 1: [], 2: ["1"]}.get(first, [f"less than {first:,}"])
    refused += [f"{last + 1:,} or more"] if last < sizes.largest else []
    if not refused:
        return f"any {named}{parts}"
    why = f" ({reason})" if (reason := _format_reason(sizes.refused, options)) else ""
    return f"{named} {served}{parts}, and {does} for {_join(refused)}{why}"


def _describe_parts(sizes: AcceptedSizes, options: RenderOptions) -> str:
    """Describe how many graphs the sizes need: " in 2 graphs (split at 16: guard of …)"."""
    if not sizes.splits:
        return ""
    at = _join([f"{size:,}" for size, _ in sizes.splits])
    reason = _format_reason(sizes.splits[0][1], options) if len(sizes.splits) == 1 else ""
    why = f": {reason}" if reason else ""
    return f" in {len(sizes.splits) + 1} graphs (split at {at}{why})"


def _format_reason(limit: RefusedSize | None, options: RenderOptions) -> str:
    if limit is None:
        return ""
    of = f" of torch's {options.clean(limit.needed_by, 60)}" if limit.needed_by else ""
    at = f", {options.format_place(limit.place.file, limit.place.line)}" if limit.place else ""
    return f"guard{of}: {options.clean(limit.condition, 80)}{at}"


def _join(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    parts = [*parts[:MAX_NAMED], *([f"{more:,} more"] if more > 0 else [])]
    return join_words(parts)


def render_restart(event: CompileEvent, options: RenderOptions, indent: str) -> list[str]:
    """Render why a frame was traced more than once, and what that cost; [] where it was not."""
    if not event.restart_reasons:
        return []
    # Imported where it is needed: it loads the wire, which no other receipt's view needs.
    from compilediag.diagnosis.guards.size_limits import simplify_source

    # What follows the first line of a graph break's reason explains its kind.
    first = (text.strip().partition("\n")[0] for text in event.restart_reasons)
    reasons = [options.clean(text, 160) for text in dict.fromkeys(first)]
    named = [options.clean(simplify_source(source), 80) for source in event.restarted_for]
    floats = f": torch took {_join(named)} for a symbolic float at first" if named else ""
    text = f"traced again, {format_seconds(event.restarted_s)}: {_join(reasons)}{floats}"
    return options.wrap(text, indent, indent + "  ")
