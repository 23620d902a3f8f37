"""The view of the slowest compiles: the ten that took longest, whatever frame they are of."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import Block, Paragraph, Table
from compilediag.views.format import NOT_MEASURED, format_percent, format_seconds, pluralize
from compilediag.views.style import RenderOptions

MAX_ROWS = 10
HEAD = ("compile", "seconds", "share", "step", "operations", "frame")


def show_slowest(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the table of the compiles that took longest, with their share of all compile seconds.

    Returns:
        A sentence instead where no compile was seen, or none was timed.
    """
    section = receipt.compile
    timed = [(event.seconds, event) for event in section.events if event.seconds is not None]
    if not timed:
        nothing = "no compile was timed" if section.events else "no compile was seen"
        return [Paragraph(nothing)]
    slowest = sorted(timed, key=lambda pair: -pair[0])[:MAX_ROWS]
    rows: list[tuple[str, ...]] = []
    for seconds, event in slowest:
        place = options.format_place(event.frame.file, event.frame.line)
        share = format_percent(seconds, section.time_s.total) if section.time_s.total else None
        rows.append(
            (
                options.clean(event.compile_id, 40),
                format_seconds(seconds),
                share or "",
                NOT_MEASURED if event.step is None else str(event.step),
                NOT_MEASURED if event.graph_ops is None else str(event.graph_ops),
                f"{options.clean(event.frame.function, 60)}  {place}",
            )
        )
    count = pluralize(len(timed), "compile")
    what = (
        f"the {MAX_ROWS} slowest of {count}" if len(timed) > MAX_ROWS else f"{count}, slowest first"
    )
    return [
        Paragraph(what),
        Table(HEAD, rows, right=HEAD[1:5], shrink="frame"),
    ]
