"""Sentences on compiled graphs: what a limit hid, why a frame was traced again."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.format import format_seconds, join_words
from compilediag.views.lookups import format_target
from compilediag.views.style import RenderOptions

MAX_NAMED = 3
"""Reasons in one sentence."""


def render_limit(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Render what the recompile limit hid, or what showed since it was lifted."""
    lines = list[str]()
    if receipt.compile.recompile_limit_hits:
        target = options.clean(format_target(receipt), 200)
        unseen = f"what changes once the limit is hit: compilediag run --past-limit {target}"
        lines += options.wrap_warning(unseen, "not seen: ")
    if receipt.header.configuration.past_limit:
        lifted = "for this run alone; by itself torch runs a frame over the limit eager"
        lines += options.wrap_warning(lifted, "recompile limit lifted: ")
    return lines


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


def _join(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    parts = [*parts[:MAX_NAMED], *([f"{more:,} more"] if more > 0 else [])]
    return join_words(parts)
