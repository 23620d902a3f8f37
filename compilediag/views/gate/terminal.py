"""A gate on a terminal: the verdict first, then every failure, what is known, what is better."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.views.format import count, more, seconds
from compilediag.views.gate.messages import (
    LINE_CHARS,
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
    worst_first,
)
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width

MAX_IN_FULL = 5
"""Failures of a lane that are shown with every detail; the others get a line each."""
MAX_LINES = 50
"""Of failures shown in one line; the other formats list them all."""
MAX_IMPROVEMENTS = 5
MAX_NOTICES = 10
MAX_LANES = 20
INDENT = "     "
_STYLE = {"good": "green", "bad": "red", "blind": "yellow"}


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every lane, those that did not pass first; the first line is the verdict."""
    ordered = worst_first(judgements)
    lines = _overall(ordered, options)
    for judgement in ordered[:MAX_LANES]:
        lines += [*([""] if lines else []), *_lane(judgement, options)]
    hidden = more(len(ordered) - MAX_LANES, " lanes: --format json", "")
    lines += ["", *hidden] if hidden else []
    return "\n".join(inert(line.rstrip()) for line in lines) + "\n"


def _overall(judgements: Sequence[Judgement], options: RenderOptions) -> list[str]:
    """A line on all lanes where there is not exactly one."""
    if len(judgements) == 1:
        return []
    if not judgements:
        sentence = f"{options.sign('blind')} nothing was judged, which is no pass"
        return [options.styled(sentence, "yellow")]
    kinds = [outcome(item) for item in judgements]
    bad = len(kinds) - kinds.count("good")
    sentence = "passed" if not bad else f"failed for {bad} of them"
    worst = "bad" if "bad" in kinds else kinds[0]
    line = f"{options.sign(worst)} gate of {count(len(kinds), 'lane')}: {sentence}"
    return [options.styled(line, _STYLE[worst])]


def _lane(judgement: Judgement, options: RenderOptions) -> list[str]:
    lines = [
        *_head(judgement, options),
        *_failures(judgement.failures, options),
        *_known(judgement.known, options),
        *_improvements(judgement, options),
    ]
    for notice in judgement.notices[:MAX_NOTICES]:
        lines += options.wrap(options.text(notice), f"  {options.sign('warn')} ", "    ")
    hidden = len(judgement.notices) - MAX_NOTICES
    return lines + more(hidden, " notices: --format json", "    ")


def _head(judgement: Judgement, options: RenderOptions) -> list[str]:
    kind = outcome(judgement)
    sentence = f"{options.sign(kind)} {options.text(headline(judgement))}"
    lane = f"lane {options.text(judgement.lane, 120)}"
    standard = against(judgement)
    if standard:
        lane += f" against {options.text(standard, 300)}"
    if display_width(sentence) + 3 + display_width(lane) <= options.width:
        lines = [f"{options.styled(sentence, _STYLE[kind])}   {options.styled(lane, 'dim')}"]
    else:
        first, rest = sentence.partition(" ")[::2]
        lines = options.wrap(rest, f"{first} ", style=_STYLE[kind])
        lines += options.wrap(lane, "  ", "    ", style="dim")
    changed = [options.text(item) for item in changed_counts(judgement, options.arrow)]
    return lines + options.wrap_items(changed, "  ", style="dim")


def _failures(failures: Sequence[Item], options: RenderOptions) -> list[str]:
    lines: list[str] = []
    for number, item in enumerate(failures[:MAX_IN_FULL], 1):
        lines += ["", *_in_full(number, item, options)]
    rest = failures[MAX_IN_FULL:]
    lines += [""] if rest else []
    for number, item in enumerate(rest[:MAX_LINES], MAX_IN_FULL + 1):
        where = place(item, options, 40) or options.text(item.message, 200)
        sentence = f"{number:>3}  {options.text(title(item), 200)}{options.dot}{where}"
        lines.append(options.truncate(sentence, options.width))
    return lines + more(len(rest) - MAX_LINES, ": compilediag gate --format json", INDENT)


def _in_full(number: int, item: Item, options: RenderOptions) -> list[str]:
    """What failed; what is so; where, how often and its seconds; the guard; what to change."""
    head = options.truncate(f"{number:>3}  {options.text(title(item), 200)}", options.width)
    cost = f"cost {seconds(item.cost_s)}" if item.cost_s is not None else ""
    facts = (place(item, options, 60), often(item, options.arrow), cost, explain(item))
    lines = [
        options.styled(head, "bold"),
        *options.wrap(options.text(item.message), INDENT),
        *options.wrap_items([options.text(fact) for fact in facts if fact], INDENT),
    ]
    if item.guard and item.guard not in item.message:
        lines += options.wrap(options.text(item.guard), f"{INDENT}guard: ")
    if item.fix:
        lines += options.wrap(options.text(item.fix), f"{INDENT}fix: ", style="cyan")
    if item.proved:
        proved = options.text(item.proved, LINE_CHARS)
        lines += options.wrap(proved, f"{INDENT}proved: ", style="green")
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
    lines = ["", options.styled(f"  better than the baseline ({len(better):,}):", "green")]
    for item in better[:MAX_IMPROVEMENTS]:
        lines += options.wrap(options.text(item.message, 300), "    ", "      ")
    lines += more(len(better) - MAX_IMPROVEMENTS, indent="    ")
    hint = "a strict gate fails until the baseline holds it" if judgement.strict else "keep it"
    return lines + options.wrap(f"{hint}: {UPDATE}", "    ", "      ")
