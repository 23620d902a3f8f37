"""The verdict screen: what happened, its cost, its cause, what to change; one screen at most.

Pure: reads a receipt, returns text, computes nothing but the form of numbers. All text that comes
from the target is escaped and bounded.
"""

from __future__ import annotations

from msgspec.structs import replace

from compilediag.diagnosis.codes import BLIND, WRITTEN
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import is_foreign_record
from compilediag.views import lookups
from compilediag.views.findings import card_of, joined_exports, title_of
from compilediag.views.format import count
from compilediag.views.headline import (
    ending,
    headline,
    is_training_alone,
    reasons,
    several_ranks,
    trainer_figures,
    trainer_notes,
    was_seen,
)
from compilediag.views.lookups import main_findings, notes, numbered
from compilediag.views.measured import measured_lines
from compilediag.views.place import first_line
from compilediag.views.style import PLAIN, RenderOptions
from compilediag.views.terminal import card_lines
from compilediag.views.text import display_width

MAX_NAMES = 3
SCREEN_LINES = 24
MIN_FINDINGS = 3
"""Shown even where a narrow terminal makes them longer than a screen."""
MIN_WIDTH = 40
MAX_REASONS = 4
MAX_NOTES = 3
TAIL_LINES = 15
"""Of the log of a run that did not end well, shown with `complete`."""

_STYLE = {"bad": "red", "good": "green", "blind": "yellow", "warn": "yellow"}


def render(
    receipt: Receipt,
    options: RenderOptions = PLAIN,
    *,
    complete: bool = False,
    suffix: str = "",
) -> str:
    """Render the verdict screen with a newline at its end; at least `MIN_WIDTH` columns are used.

    With `complete` every finding, however many lines that takes (`show --all`). `suffix` is what
    the next commands need to find this receipt again, such as its path.
    """
    options = replace(options, width=max(options.width, MIN_WIDTH))
    head = _head(receipt, options)
    tail = outlook(receipt, options)
    tail += measured_lines(receipt, options, suffix, complete=complete)
    # What replaces the settings of single findings that need the same variable.
    exports = joined_exports(item for _, item in main_findings(receipt))
    tail += ["  all of them without an edit:"] if exports else []
    tail += [options.styled(f"     {options.text(line, 4096)}", "cyan") for line in exports]
    informed = notes(receipt)
    if informed and not complete:
        codes = ", ".join(dict.fromkeys(options.text(item.rule, 8) for _, item in informed))
        sentence = f"{count(len(informed), 'note')} ({codes}): compilediag show --all{suffix}"
        tail += options.wrap(sentence, "  also: ")
    tail += _next(receipt, options, suffix)
    # The findings, as many as fit; then how to see the others. With `complete` all of them, and the
    # last lines that a failed program printed.
    room = SCREEN_LINES - len(head) - len(tail) - 2
    chosen = main_findings(receipt) + (informed if complete else [])
    body: list[str] = []
    for shown, (number, item) in enumerate(chosen):
        block = card_lines(card_of(number, item, receipt, options), options)
        last = shown == len(chosen) - 1
        over = not complete and len(body) + len(block) + (0 if last else 1) > room
        if over and shown >= MIN_FINDINGS:
            more = f"+{len(chosen) - shown} more: compilediag show --all{suffix}"
            body.append(options.styled(f"  {more}", "bold"))
            break
        body += block
    printed = receipt.failure.log_tail if receipt.failure is not None else None
    if complete and printed:
        body += ["", "  the last lines of the program:"]
        for line in printed.splitlines()[-TAIL_LINES:]:
            body.append(f"     {options.truncate(options.text(line), options.width - 5)}")
    lines = [*head, "", *body, "", *tail] if body else [*head, *tail]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Render the verdict with its counts; how the program ended, where it did not end well: the
    counts then cover only a part; a trainer's figures; reasons for blindness with remedies."""
    head, ended = headline(receipt), ending(receipt)
    sign = options.sign(head.kind) + " "
    sentence = options.text(head.sentence)
    lines = options.wrap(sentence, sign, style=_STYLE[head.kind])
    counts = options.dot.join(head.counts)
    room = options.width - display_width(sign + sentence) - display_width(counts)
    if len(lines) == 1 and room >= 4:
        lines = [lines[0] + " " * room + options.styled(counts, "dim")]
    else:
        lines += options.wrap_items(head.counts, "  ", style="dim")
    lines += [] if ended is None else options.warning(options.text(ended))
    figures, alone = trainer_figures(receipt), is_training_alone(receipt)
    lines += options.wrap_items([options.text(figure, 80) for figure in figures], "  ", "    ")
    for note in trainer_notes(receipt)[:MAX_NOTES] if figures or alone else ():
        lines += options.wrap(options.text(note), "    note: ", style="dim")
    if receipt.verdict != "blind":
        return lines
    for reason, remedy in reasons(receipt)[:MAX_REASONS]:
        lines += options.wrap(options.text(reason), "  why: ")
        lines += options.wrap(options.text(remedy), "       fix: ", style="cyan") if remedy else []
    if not alone and not was_seen(receipt):
        meaning = 'A count of 0 here means "not seen"; it does not mean "did not happen".'
        lines += options.wrap(meaning, "  ")
    return lines


def _next(receipt: Receipt, options: RenderOptions, suffix: str) -> list[str]:
    """Render the commands that lead on from here."""
    blind = [item.rule for _, item in numbered(receipt) if item.rule in BLIND]
    chosen = main_findings(receipt)
    commands = ["show --frames" + suffix]
    if receipt.verdict == "blind":
        commands = [f"explain {blind[0]}", "doctor"] if blind else ["doctor"]
        if trainer_figures(receipt) or is_training_alone(receipt):
            commands.append(f"show --steps{suffix}")
    if chosen:
        commands.insert(0, f"explain {chosen[0][0]}{suffix}")
    if receipt.compile.recompiles:
        commands[-1] = "show --timeline" + suffix
    if receipt.ranks is not None and several_ranks(receipt):
        commands.append("show --ranks" + suffix)
    # For a value in a library that no known line of the program's own changed; only of the latest
    # run, which is the one that is repeated.
    if not suffix and receipt.witness is None:
        out_of_sight = (
            item.rule in WRITTEN
            and is_foreign_record(item)
            and item.act is None
            and not lookups.writers(item, receipt)
            for _, item in chosen
        )
        commands += ["run --witness"] if any(out_of_sight) else []
    return options.next_commands(commands)


def outlook(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Render the lines "armed" (what will recompile at the next call, by name and place) and
    "forecast"; none where there is nothing to report."""
    lines: list[str] = []
    names = [
        options.text(item.variable or title_of(item), 60)
        + (f" ({first_line(item, options)})" if item.location is not None else "")
        for item in receipt.findings
        if item.rule == "CD150"
    ]
    if names:
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        changed = "has changed" if len(names) == 1 else "have changed"
        sentence = f"{', '.join(names[:MAX_NAMES])}{more} {changed} since it was compiled"
        lines += options.warning(f"{sentence}: the next call recompiles", "armed: ")
    forecasts = [pair for pair in numbered(receipt) if pair[1].rule == "CD151"]
    if forecasts:
        number, item = forecasts[0]
        others = f"; +{len(forecasts) - 1} more" if len(forecasts) > 1 else ""
        sentence = f"{options.text(title_of(item))} (explain {number}){others}"
        return lines + options.warning(sentence, "forecast: ")
    # The compiled frame nearest its recompile limit, if it has used at least half of it.
    known = [
        (item.headroom.variants / item.headroom.limit, item)
        for item in receipt.compile.frames_detail
        if item.headroom.limit and not item.ran_eager
    ]
    used, frame = max(known, key=lambda pair: pair[0], default=(0.0, None))
    if frame is None or used < 0.5:
        return lines
    where = options.place(frame.frame.file, frame.frame.line)
    variants = f"{frame.headroom.variants} of {frame.headroom.limit} variants used"
    fullgraph = receipt.header.lane.numerics_flags.fullgraph
    over = "torch raises (fullgraph=True)" if fullgraph else "it runs eager"
    name = options.text(frame.frame.function, 60)
    return lines + options.warning(f"{name} ({where}): {variants}; over that {over}", "forecast: ")
