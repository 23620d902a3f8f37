"""Sentences on compiled graphs: what those of a frame serve, what a recompile limit hid, and why a
frame was traced more than once."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence

from compilediag.receipt.schema.compiles import AcceptedSizes, CompileEvent
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.views.format import format_more, format_seconds
from compilediag.views.style import RenderOptions

MAX_FRAMES, MAX_NAMED = 5, 3
"""Frames on a screen, and dimensions, spans of sizes or reasons in one sentence."""


def render_graphs(receipt: Receipt, options: RenderOptions, *, complete: bool) -> list[str]:
    """Render a line for each frame whose sizes are known, on a screen for the first ones, and what
    a limit hid, or showed since it was lifted."""
    sentences = list_served(receipt, options)
    shown = sentences if complete else sentences[:MAX_FRAMES]
    lines = [line for text in shown for line in options.wrap(text, "  ", "    ")]
    lines += format_more(len(sentences) - len(shown), ": compilediag show --all")
    if receipt.compile.recompile_limit_hits:
        run = receipt.header.run
        target = "" if run.redactions.count else options.clean(shlex.join(run.argv_redacted), 200)
        again = f"compilediag run --past-limit {target or 'TARGET'}"
        unseen = f"what else changes after a recompile limit was hit: {again}"
        lines += options.wrap_warning(unseen, "not seen: ")
    if receipt.header.configuration.past_limit:
        lifted = "for this run alone; by itself torch runs a frame over the limit eager"
        lines += options.wrap_warning(lifted, "recompile limit lifted: ")
    return lines


def list_served(
    receipt: Receipt, options: RenderOptions, only: Container[FrameName] | None = None
) -> list[str]:
    """List a sentence for each frame, or for those given, of which it is known what it serves."""
    eager = {detail.frame for detail in receipt.compile.frames_detail if detail.ran_eager}
    frames: dict[FrameName, list[str]] = {}
    for sizes in receipt.compile.accepted_sizes:
        if only is None or sizes.frame in only:
            sentence = _describe_sizes(sizes, options, eager=sizes.frame in eager)
            frames.setdefault(sizes.frame, []).append(sentence)
    return [
        f"{options.clean(frame.function, 60)} serves {'; '.join(dict.fromkeys(sentences))}"
        for frame, sentences in frames.items()
    ]


def _describe_sizes(sizes: AcceptedSizes, options: RenderOptions, *, eager: bool) -> str:
    """Describe the sizes that are served, and what happens to others: "x.shape[0] 2–15; 1 and 16 or
    more compile again"."""
    names = [options.clean(name, 60) for name in sizes.dimensions]
    named = _join(names[:MAX_NAMED]) + (
        f" (+{more})" if (more := len(names) - MAX_NAMED) > 0 else ""
    )
    verb = ("runs eager", "run eager") if eager else ("compiles again", "compile again")
    first, last = sizes.spans[0]
    if len(sizes.spans) > 1 or first == last:
        served = [_format_span(*span, sizes.largest) for span in sizes.spans[:MAX_NAMED]]
        served += [f"{more} more"] if (more := len(sizes.spans) - MAX_NAMED) > 0 else []
        return f"{named} {_join(served)}; any other up to {sizes.largest:,} {verb[0]}"
    refused = {2: ["1"]}.get(first, [f"less than {first:,}"] if first > 2 else [])
    refused += [f"{last + 1:,} or more"] if last < sizes.largest else []
    if not refused:
        return f"any {named}"
    why = _describe_reason(sizes, options)
    one = refused == ["1"]
    return (
        f"{named} {_format_span(first, last, sizes.largest)}; {_join(refused)} {verb[not one]}{why}"
    )


def _format_span(first: int, last: int, largest: int) -> str:
    if first == last:
        return f"{first:,}"
    return f"{first:,} or more" if last >= largest else f"{first:,}–{last:,}"


def _describe_reason(sizes: AcceptedSizes, options: RenderOptions) -> str:
    """Describe the condition that refuses the larger size, where there are two."""
    limit = max(sizes.refused, key=lambda refused: refused.size, default=None)
    if limit is None:
        return ""
    by = f"torch's {options.clean(limit.needed_by, 60)} needs" if limit.needed_by else "because of"
    at = f", {options.format_place(limit.place.file, limit.place.line)}" if limit.place else ""
    return f" ({by} {options.clean(limit.condition, 80)}{at})"


def _join(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    parts = [*parts[:MAX_NAMED], *([f"{more:,} more"] if more > 0 else [])]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def render_restart(event: CompileEvent, options: RenderOptions, indent: str) -> list[str]:
    """Render why a frame was traced more than once, and what that cost; [] where it was not."""
    if event.restart is None:
        return []
    reasons = "; ".join(options.clean(reason, 160) for reason in event.restart.reasons[:MAX_NAMED])
    named = ", ".join(options.clean(name, 80) for name in event.restart.variables[:MAX_NAMED])
    floats = f": torch took {named} for a symbolic float at first" if named else ""
    text = f"traced again, {format_seconds(event.restart.seconds)}: {reasons}{floats}"
    return options.wrap(text, indent, indent + "  ")
