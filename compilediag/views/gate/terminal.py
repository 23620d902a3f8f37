"""A gate on a terminal: the verdict first, then every failure, what is known, what is better."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.views.format import count, seconds
from compilediag.views.gate.messages import (
    UPDATE,
    against,
    changed_counts,
    explain,
    headline,
    inert,
    often,
    outcome,
    place,
    short,
    title,
)
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width

MOST_IN_FULL = 5
"""Failures of a lane that are shown with every detail; the others get a line each."""
MOST_LINES = 50
"""Of failures shown in one line; the other formats list them all."""
MOST_IMPROVEMENTS = 5
MOST_NOTICES = 10
MOST_LANES = 20
INDENT = "     "
_STYLE = {"good": "green", "bad": "red", "blind": "yellow"}


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every lane, those that did not pass first; the first line is the verdict."""
    ordered = sorted(judgements, key=lambda item: ("blind", "bad", "good").index(outcome(item)))
    lines = _overall(ordered, options)
    for judgement in ordered[:MOST_LANES]:
        lines += [*([""] if lines else []), *_lane(judgement, options)]
    if len(ordered) > MOST_LANES:
        lines += ["", f"+{len(ordered) - MOST_LANES} more lanes: --format json"]
    return "\n".join(inert(line.rstrip()) for line in lines) + "\n"


def _overall(judgements: Sequence[Judgement], options: RenderOptions) -> list[str]:
    """A line on all lanes where there is not exactly one."""
    if len(judgements) == 1:
        return []
    if not judgements:
        return [
            options.styled(
                f"{options.sign('blind')} nothing was judged, which is no pass", "yellow"
            )
        ]
    kinds = [outcome(item) for item in judgements]
    bad = len(kinds) - kinds.count("good")
    sentence = "passed" if not bad else f"failed for {bad} of them"
    worst = "bad" if "bad" in kinds else kinds[0]
    line = f"{options.sign(worst)} gate of {count(len(kinds), 'lane')}: {sentence}"
    return [options.styled(line, _STYLE[worst])]


def _lane(judgement: Judgement, options: RenderOptions) -> list[str]:
    lines = _head(judgement, options)
    lines += _failures(judgement.failures, options)
    lines += _known(judgement.known, options)
    lines += _improvements(judgement, options)
    for notice in judgement.notices[:MOST_NOTICES]:
        lines += options.wrap(options.text(notice), f"  {options.sign('warn')} ", "    ")
    if len(judgement.notices) > MOST_NOTICES:
        lines.append(f"    +{len(judgement.notices) - MOST_NOTICES} more notices: --format json")
    return lines


def _head(judgement: Judgement, options: RenderOptions) -> list[str]:
    kind = outcome(judgement)
    sign = options.sign(kind) + " "
    parts = options.wrap(_plain(headline(judgement), options), sign)
    whom = f"lane {options.text(judgement.lane, 120)}"
    standard = against(judgement)
    if standard:
        whom += f" against {options.text(standard, 300)}"
    lines = [options.styled(line, _STYLE[kind]) for line in parts]
    if len(parts) == 1 and display_width(parts[0]) + 3 + display_width(whom) <= options.width:
        lines = [f"{lines[0]}   {options.styled(whom, 'dim')}"]
    else:
        lines += options.wrap(whom, "  ", "    ", style="dim")
    changed = [_plain(item, options) for item in changed_counts(judgement, options.arrow)]
    below = options.wrap_items(changed, "  ") if changed else []
    return [*lines, *(options.styled(line, "dim") for line in below)]


def _failures(failures: Sequence[Item], options: RenderOptions) -> list[str]:
    lines: list[str] = []
    for number, item in enumerate(failures[:MOST_IN_FULL], 1):
        lines += ["", *_in_full(number, item, options)]
    rest = failures[MOST_IN_FULL:]
    lines += [""] if rest else []
    for number, item in enumerate(rest[:MOST_LINES], MOST_IN_FULL + 1):
        where = place(item, options, 40)
        sentence = f"{number:>3}  {options.text(title(item), 200)}"
        sentence += (
            f"{options.dot}{where}" if where else f"{options.dot}{options.text(item.message, 200)}"
        )
        lines.append(options.truncate(sentence, options.width))
    if len(rest) > MOST_LINES:
        lines.append(f"     +{len(rest) - MOST_LINES:,} more: compilediag gate --format json")
    return lines


def _in_full(number: int, item: Item, options: RenderOptions) -> list[str]:
    """What failed; what is so; where, how often and its seconds; the guard; what to change."""
    head = options.truncate(f"{number:>3}  {options.text(title(item), 200)}", options.width)
    lines = [options.styled(head, "bold")]
    lines += options.wrap(options.text(item.message), INDENT)
    facts = [place(item, options, 60), often(item, options.arrow)]
    facts.append(f"cost {seconds(item.cost_s)}" if item.cost_s is not None else "")
    facts.append(explain(item))
    parts = [_plain(fact, options) for fact in facts if fact]
    lines += options.wrap_items(parts, INDENT) if parts else []
    if item.guard and item.guard not in item.message:
        lines += options.wrap(options.text(item.guard), f"{INDENT}guard: ")
    if item.fix:
        fix = options.wrap(options.text(item.fix), f"{INDENT}fix: ")
        lines += [options.styled(line, "cyan") for line in fix]
    return lines


def _known(known: Sequence[Item], options: RenderOptions) -> list[str]:
    """All that the baseline allows, in one line."""
    if not known:
        return []
    sentence = ", ".join(options.text(short(item), 60) for item in known[:20])
    line = f"  {len(known):,} known and allowed: {sentence}"
    return ["", options.styled(options.truncate(line, options.width), "dim")]


def _improvements(judgement: Judgement, options: RenderOptions) -> list[str]:
    better = judgement.improvements
    if not better:
        return []
    title_line = f"  better than the baseline ({len(better):,}):"
    lines = ["", options.styled(title_line, "green")]
    for item in better[:MOST_IMPROVEMENTS]:
        sentence = options.text(item.message, 300)
        lines += options.wrap(sentence, "    ", "      ")
    if len(better) > MOST_IMPROVEMENTS:
        lines.append(f"    +{len(better) - MOST_IMPROVEMENTS:,} more")
    hint = f"keep it: {UPDATE}"
    if judgement.strict:
        hint = f"a strict gate fails until the baseline holds it: {UPDATE}"
    return [*lines, *options.wrap(hint, "    ", "      ")]


def _plain(text: str, options: RenderOptions) -> str:
    """Our own signs in ASCII where the terminal needs that; target text is cleaned as well."""
    return options.text(text, 400)
