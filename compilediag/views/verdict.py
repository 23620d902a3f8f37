"""The verdict screen: what happened, its cost, its cause, what to change; at most one screen.

Pure: reads a receipt, returns text, computes nothing but the form of numbers. All text that comes
from the target is escaped and bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.diagnosis.codes import BLIND, WRITTEN
from compilediag.receipt.user_line import is_foreign_record
from compilediag.views import lookups
from compilediag.views.finding_rows import finding_rows, title_of
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
from compilediag.views.settings import joined_exports
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord, FrameDetail
    from compilediag.receipt.schema.receipt import Receipt

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
    *,
    width: int,
    color: bool,
    ascii: bool = False,  # noqa: A002 - the word a user of the function expects
    root: str = "",
    complete: bool = False,
    suffix: str = "",
) -> str:
    """The verdict screen as text with a newline at its end.

    Args:
        receipt: what to show.
        width: columns of the terminal; at least 40 are used.
        color: whether ANSI colours may be used (the caller honours NO_COLOR).
        ascii: only ASCII characters, for terminals that cannot show others.
        root: files below this folder are shown relative to it.
        complete: every finding, however many lines that takes (`show --all`).
        suffix: what the next commands need to find this receipt again, such as its path.
    """
    options = RenderOptions(max(width, MIN_WIDTH), color, ascii, root)
    head = [*_head(receipt, options), *_ending(receipt, options)]
    head += [*_trainer(receipt, options), *_why_blind(receipt, options)]
    tail = outlook(receipt, options)
    tail += measured_lines(receipt, options, suffix, complete=complete)
    tail += _settings(receipt, options)
    tail += [] if complete else _notes(receipt, options, suffix)
    tail += _next(receipt, options, suffix)
    room = SCREEN_LINES - len(head) - len(tail) - 2
    body = _body(receipt, options, None if complete else room, suffix)
    if complete:
        body += _log_tail(receipt, options)
    lines = [*head, "", *body, "", *tail] if body else [*head, *tail]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(receipt: Receipt, options: RenderOptions) -> list[str]:
    head = headline(receipt)
    sign = options.sign(head.kind) + " "
    sentence = options.text(head.sentence)
    lines = options.wrap(sentence, sign, style=_STYLE[head.kind])
    counts = options.dot.join(head.counts)
    room = options.width - display_width(sign + sentence) - display_width(counts)
    if len(lines) == 1 and room >= 4:
        return [lines[0] + " " * room + options.styled(counts, "dim")]
    return lines + options.wrap_items(head.counts, "  ", style="dim")


def _ending(receipt: Receipt, options: RenderOptions) -> list[str]:
    """How the program ended, where it did not end well: the counts then cover only a part."""
    sentence = ending(receipt)
    return [] if sentence is None else options.warning(options.text(sentence))


def _trainer(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The figures of a trainer's output with the notes on them."""
    figures = trainer_figures(receipt)
    if not figures and not is_training_alone(receipt):
        return []
    lines = options.wrap_items([options.text(figure, 80) for figure in figures], "  ", "    ")
    for note in trainer_notes(receipt)[:MAX_NOTES]:
        lines += options.wrap(options.text(note), "    note: ", style="dim")
    return lines


def _why_blind(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Every reason with its remedy; nothing unless the verdict is blind."""
    if receipt.verdict != "blind":
        return []
    lines: list[str] = []
    for reason, remedy in reasons(receipt)[:MAX_REASONS]:
        lines += options.wrap(options.text(reason), "  why: ")
        if remedy:
            lines += options.wrap(options.text(remedy), "       fix: ", style="cyan")
    if was_seen(receipt) or is_training_alone(receipt):
        return lines
    meaning = 'A count of 0 here means "not seen"; it does not mean "did not happen".'
    return lines + options.wrap(meaning, "  ")


def _log_tail(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The last lines a failed program printed."""
    tail = receipt.failure.log_tail if receipt.failure is not None else None
    if not tail:
        return []
    lines = [
        options.truncate(options.text(line), options.width - 5)
        for line in tail.splitlines()[-TAIL_LINES:]
    ]
    return ["", "  the last lines of the program:", *(f"     {line}" for line in lines)]


def _body(receipt: Receipt, options: RenderOptions, room: int | None, suffix: str) -> list[str]:
    """The findings, as many as fit into `room` lines; then how to see the others."""
    chosen = main_findings(receipt) + ([] if room is not None else notes(receipt))
    lines: list[str] = []
    for shown, (number, item) in enumerate(chosen):
        block = finding_rows(number, item, receipt, options)
        last = shown == len(chosen) - 1
        over = room is not None and len(lines) + len(block) + (0 if last else 1) > room
        if over and shown >= MIN_FINDINGS:
            more = f"+{len(chosen) - shown} more: compilediag show --all{suffix}"
            return [*lines, options.styled(f"  {more}", "bold")]
        lines += block
    return lines


def _settings(receipt: Receipt, options: RenderOptions) -> list[str]:
    """What replaces the settings of single findings that need the same variable."""
    lines = joined_exports(item for _, item in main_findings(receipt))
    shown = [options.styled(f"     {options.text(line, 4096)}", "cyan") for line in lines]
    return ["  all of them without an edit:", *shown] if shown else []


def _notes(receipt: Receipt, options: RenderOptions, suffix: str) -> list[str]:
    """The findings that are for information only, collapsed into one line."""
    codes = dict.fromkeys(options.text(item.rule, 8) for _, item in notes(receipt))
    if not codes:
        return []
    sentence = f"{count(len(notes(receipt)), 'note')} ({', '.join(codes)}): compilediag show --all"
    return options.wrap(f"{sentence}{suffix}", "  also: ")


def _next(receipt: Receipt, options: RenderOptions, suffix: str) -> list[str]:
    """The commands that lead on from here."""
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
    # Only of the latest run, which is the one that is repeated.
    if not suffix and any(_is_changed_out_of_sight(item, receipt) for _, item in chosen):
        commands.append("run --witness")
    return options.next_commands(commands)


def _is_changed_out_of_sight(finding: FindingRecord, receipt: Receipt) -> bool:
    """A value in a library of which no line of the program's own is known that changed it."""
    known = finding.act is not None or lookups.writers(finding, receipt)
    in_library = is_foreign_record(finding)
    return receipt.witness is None and finding.rule in WRITTEN and in_library and not known


def outlook(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The lines "armed" and "forecast"; none where there is nothing to report."""
    armed = [item for item in receipt.findings if item.rule == "CD150"]
    forecasts = [pair for pair in numbered(receipt) if pair[1].rule == "CD151"]
    lines = options.warning(_armed(armed, options), "armed: ") if armed else []
    if forecasts:
        number, item = forecasts[0]
        sentence = f"{options.text(title_of(item))} (explain {number})"
        others = f"; +{len(forecasts) - 1} more" if len(forecasts) > 1 else ""
        return lines + options.warning(sentence + others, "forecast: ")
    fullest = fullest_frame(receipt)
    if fullest is not None:
        lines += options.warning(_headroom(fullest, receipt, options), "forecast: ")
    return lines


def _armed(armed: list[FindingRecord], options: RenderOptions) -> str:
    """What will recompile at the next call, by name and place."""
    names = [
        options.text(item.variable or title_of(item), 60)
        + (f" ({first_line(item, options)})" if item.location is not None else "")
        for item in armed
    ]
    sentence = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        sentence += f" and {len(names) - MAX_NAMES} more"
    changed = "has changed" if len(names) == 1 else "have changed"
    return f"{sentence} {changed} since it was compiled: the next call recompiles"


def fullest_frame(receipt: Receipt) -> FrameDetail | None:
    """The compiled frame nearest its recompile limit, if it has used at least half of it."""
    known = [
        item for item in receipt.compile.frames_detail if item.headroom.limit and not item.ran_eager
    ]
    if not known:
        return None
    fullest = max(known, key=lambda item: item.headroom.variants / (item.headroom.limit or 1))
    half = 2 * fullest.headroom.variants >= (fullest.headroom.limit or 0)
    return fullest if half else None


def _headroom(item: FrameDetail, receipt: Receipt, options: RenderOptions) -> str:
    where = options.place(item.frame.file, item.frame.line)
    used = f"{item.headroom.variants} of {item.headroom.limit} variants used"
    fullgraph = receipt.header.lane.numerics_flags.fullgraph
    over = "torch raises (fullgraph=True)" if fullgraph else "it runs eager"
    return f"{options.text(item.frame.function, 60)} ({where}): {used}; over that {over}"
