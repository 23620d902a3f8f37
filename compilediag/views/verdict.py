"""The verdict screen: what happened, its cost, its cause, what to change; one screen at most. Pure:
it computes nothing but the form of numbers. Text that comes from the target is escaped and
bounded."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.findings import build_card, join_exports
from compilediag.views.format import format_seconds, join_words, pluralize
from compilediag.views.graphs import render_graphs
from compilediag.views.headline import (
    build_headline,
    describe_ending,
    has_several_ranks,
    is_training_alone,
    list_blind_reasons,
    list_trainer_figures,
    list_trainer_notes,
    was_seen,
)
from compilediag.views.lookups import list_followers, list_main_findings, list_notes, list_roots
from compilediag.views.measured import render_measured
from compilediag.views.next_command import choose_command
from compilediag.views.place import format_first_line
from compilediag.views.sentence import get_title
from compilediag.views.style import COLORS, PLAIN, RenderOptions
from compilediag.views.terminal import render_card, render_lines
from compilediag.views.text import measure_width
from compilediag.views.varied import build_varied

MAX_NAMES = 3
SCREEN_LINES = 40
MIN_FINDINGS = 2
"""Shown even where a narrow terminal makes them longer than a screen."""
MIN_WIDTH = 40
MAX_REASONS = 4
MAX_NOTES = 3
TAIL_LINES = 15
"""Of the log of a run that did not end well, shown with `complete`."""


def render(
    receipt: Receipt,
    options: RenderOptions = PLAIN,
    *,
    complete: bool = False,
    suffix: str = "",
    changed: bool = False,
) -> str:
    """Render the verdict screen with a newline at its end; at least `MIN_WIDTH` columns are used.

    With `complete` every finding, however many lines that takes (`show --all`). `suffix` is what
    the next commands need to find this receipt again, such as its path; `changed` is that of
    `choose_command`.
    """
    options = replace(options, width=max(options.width, MIN_WIDTH))
    head = _render_head(receipt, options)
    tail = render_outlook(receipt, options)
    tail += render_measured(receipt, options, suffix, complete=complete)
    main = list_main_findings(receipt)
    # What replaces the settings of single findings that need the same variable.
    cured = {n: found for n, found in main if found.fix.recipe and found.fix.candidates}
    exports = join_exports([*cured.values()])
    which = f"{'finding' if len(cured) == 1 else 'findings'} {join_words([*map(str, cured)])}"
    tail += options.wrap(f"{which} without an edit:", "  ") if exports else []
    tail += [options.paint(f"     {options.clean(line, 4096)}", "cyan") for line in exports]
    informed, followers = list_notes(receipt), list_followers(receipt)
    if informed and not complete:
        slugs = dict.fromkeys(finding.slug.replace("-", " ") for _, finding in informed)
        about = options.clean(", ".join(slugs), 100)
        counted = pluralize(len(informed), "note") + _format_noted_cost(receipt, informed)
        tail += options.wrap(f"{counted} ({about}): compilediag show --all{suffix}", "  also: ")
    if receipt.ranks is not None and has_several_ranks(receipt):
        tail += options.wrap(f"each rank: compilediag show --ranks{suffix}", "  also: ")
    following = choose_command(receipt, suffix, changed=changed)
    tail += options.wrap_commands([options.clean(following, 400)])
    table = render_lines(build_varied(receipt, options, suffix, complete=complete), options)
    graphs = render_graphs(receipt, options, suffix, complete=complete)
    head += ["", *table] if table else []
    head += ["", *graphs] if graphs else []
    room = SCREEN_LINES - len(head) - len(tail) - 2
    chosen = main + (followers + informed if complete else [])
    body: list[str] = []
    for shown, (number, finding) in enumerate(chosen):
        card = build_card(number, finding, receipt, options)
        block = render_card(card, options, whole=complete)
        last = shown == len(chosen) - 1
        over = not complete and len(body) + len(block) + (0 if last else 1) > room
        if over and shown >= MIN_FINDINGS:
            more = f"+{len(chosen) - shown} more: compilediag show --all{suffix}"
            body.append(options.paint(f"  {more}", "bold"))
            break
        body += block
    printed = receipt.failure.log_tail if receipt.failure is not None else None
    if complete and printed:
        body += ["", "  the last lines of the program:"]
        for line in printed.splitlines()[-TAIL_LINES:]:
            body.append(f"     {options.truncate(options.clean(line), options.width - 5)}")
    lines = [*head, "", *body, "", *tail] if body else [*head, *tail]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _format_noted_cost(receipt: Receipt, notes: Sequence[tuple[int, FindingRecord]]) -> str:
    """Format the seconds of the recompiles that have no cause but notes, behind a comma; empty
    where there is none."""
    noted = {finding.id for _, finding in notes}
    known = (its for its in receipt.compile.events if its.kind == "recompile" and its.causes)
    own = (its for its in known if noted.issuperset(cause.finding for cause in its.causes))
    seconds = sum(its.seconds or 0.0 for its in own)
    return f", {format_seconds(seconds)} of recompiles" if seconds else ""


def _render_head(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Render the verdict with its counts; how the program ended, where it did not end well: the
    counts then cover only a part; a trainer's figures; reasons for blindness with remedies."""
    head, ended = build_headline(receipt), describe_ending(receipt)
    sign = options.get_sign(head.kind) + " "
    sentence = options.clean(head.sentence)
    lines = options.wrap(sentence, sign, style=COLORS[head.kind])
    counts = options.dot.join(head.counts)
    room = options.width - measure_width(sign + sentence) - measure_width(counts)
    lines += [
        line for text in head.more for line in options.wrap(options.clean(text), "  ", "    ")
    ]
    if len(lines) == 1 and room >= 4:
        lines = [lines[0] + " " * room + options.paint(counts, "dim")]
    else:
        lines += options.wrap_parts(head.counts, "  ", style="dim")
    lines += [] if ended is None else options.wrap_warning(options.clean(ended))
    figures, alone = list_trainer_figures(receipt), is_training_alone(receipt)
    lines += options.wrap_parts([options.clean(figure, 80) for figure in figures], "  ", "    ")
    for note in list_trainer_notes(receipt)[:MAX_NOTES] if figures or alone else ():
        lines += options.wrap(options.clean(note), "    note: ", style="dim")
    if receipt.verdict != "blind":
        return lines
    for reason, remedy in list_blind_reasons(receipt)[:MAX_REASONS]:
        known = reason.rpartition(" (")[0] in head.sentence
        lines += [] if known else options.wrap(options.clean(reason), "  why: ")
        label = "  fix: " if known else "       fix: "
        lines += options.wrap(options.clean(remedy), label, style="cyan") if remedy else []
    if not alone and not was_seen(receipt):
        meaning = 'A count of 0 here means "not seen"; it does not mean "did not happen".'
        lines += options.wrap(meaning, "  ")
    return lines


def _name_armed(finding: FindingRecord, options: RenderOptions) -> str:
    name = options.clean(finding.variable or get_title(finding), 60)
    if alike := GuardEvidence.parse(finding.evidence).together:
        name += f" and {len(alike)} like it"
    place = finding.location is not None and format_first_line(finding, options)
    return f"{name} ({place})" if place else name


def render_outlook(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Render the lines "armed" (what will recompile at the next call, by name and place) and
    "forecast"; none where there is nothing to report."""
    lines: list[str] = []
    armed = [finding for finding in receipt.findings if finding.rule == "CD150"]
    if armed:
        names = [_name_armed(finding, options) for finding in armed]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        changed = "has changed" if len(names) == 1 else "have changed"
        sentence = f"{', '.join(names[:MAX_NAMES])}{more} {changed} since it was compiled"
        lines += options.wrap_warning(f"{sentence}: the next call recompiles", "armed: ")
    forecasts = [pair for pair in list_roots(receipt) if pair[1].rule == "CD151"]
    if forecasts:
        number, finding = forecasts[0]
        others = f"; +{len(forecasts) - 1} more" if len(forecasts) > 1 else ""
        sentence = f"{options.clean(get_title(finding))} (explain {number}){others}"
        return lines + options.wrap_warning(sentence, "forecast: ")
    return lines
