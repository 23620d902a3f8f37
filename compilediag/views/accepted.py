"""Sentences on the inputs that compiled frames accept: one of each frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.receipt.schema.compiles import AcceptedInputs, RefusedSize, SizesAsked
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.style import RenderOptions

MAX_FRAMES, MAX_GROUPS, MAX_SPANS = 3, 2, 3
"""Frames on a screen, dimensions of one frame, and spans of sizes, that are named."""


def list_accepted(receipt: Receipt, options: RenderOptions) -> list[str]:
    """List a sentence for each frame that was asked."""
    asked = (its for its in receipt.compile.accepted_inputs if its.not_asked is None)
    return [describe(frame, options) for frame in asked]


def render_accepted(receipt: Receipt, options: RenderOptions, *, complete: bool) -> list[str]:
    """Render a line for each frame that was asked; on a screen for the first ones."""
    sentences = list_accepted(receipt, options)
    shown = sentences if complete else sentences[:MAX_FRAMES]
    more = len(sentences) - len(shown)
    shown += [f"+{more} more: compilediag show --all"] if more else []
    return [line for text in shown for line in options.wrap(text, "  serves: ")]


def describe(frame: AcceptedInputs, options: RenderOptions) -> str:
    """Describe what a frame accepts and what makes it compile again."""
    where = options.format_place(frame.frame.file, frame.frame.line)
    name = f"{options.clean(frame.frame.function, 60)} ({where})"
    if frame.not_asked is not None:
        return f"{name}: not asked: {options.clean(frame.not_asked, 200)}"
    # A size that nothing depends on is not worth a word, nor one that never was another one beside
    # those that were.
    read = [its for its in frame.sizes if its.spans != ((0, its.asked_to),)]
    chosen = [its for its in read if its.varied] or read[:1]
    nothing = "any size" if frame.sizes else "no size was asked for"
    parts = [_describe_sizes(sizes, options) for sizes in chosen[:MAX_GROUPS]] or [nothing]
    parts += [f"gradients {'on' if on else 'off'} only" for on in frame.gradients[:1]][
        len(frame.gradients) > 1 :
    ]
    return f"{name}: {'; '.join(parts)}"


def _describe_sizes(sizes: SizesAsked, options: RenderOptions) -> str:
    """Describe the sizes that are accepted and what is not: "2–15; 0, 1 and 16 or more compile
    again"."""
    named = options.clean(" and ".join(sizes.dimensions[:MAX_SPANS]), 120)
    served = [_format_span(*span, sizes.asked_to) for span in sizes.spans[:MAX_SPANS]]
    served += [f"{more} more"] if (more := len(sizes.spans) - MAX_SPANS) > 0 else []
    up_to = f" up to {sizes.asked_to:,}" if len(sizes.spans) > 1 else ""
    refused, (first, last) = f"any other{up_to} compiles again", (*sizes.spans, (0, 0))[0]
    if len(sizes.spans) == 1 and first < last:
        below = ["0", "1"][:first] if first <= 2 else [f"less than {first:,}"]
        above = [] if last >= sizes.asked_to else [f"{last + 1:,} or more"]
        refused = f"{_join([*below, *above])} compile again"
    why = _describe_reason(sizes.refused, options)
    return f"{named} {_join(served)}, {sizes.dtype}; {refused}{why}"


def _format_span(first: int, last: int, asked_to: int) -> str:
    if first == last:
        return f"{first:,}"
    return f"{first:,} or more" if last >= asked_to else f"{first:,}–{last:,}"


def _describe_reason(refused: Iterable[RefusedSize], options: RenderOptions) -> str:
    """Describe by which condition: of the larger size, where there are two."""
    last = max(refused, key=lambda size: size.size, default=None)
    if last is None:
        return ""
    by = f"needed by torch's {options.clean(last.needed_by, 60)}" if last.needed_by else ""
    by = by or options.clean(last.text, 80) or "needed by torch after tracing"
    where = f", {options.format_place(last.place.file, last.place.line)}" if last.place else ""
    return f" ({options.clean(last.condition, 80)}: {by}{where})"


def _join(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
