"""A gate on a terminal: the verdict first, then every failure, what is known, what is better."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Item, Judgement
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
from compilediag.views.text import columns, flow, hang
from compilediag.views.words import count, seconds

MOST_IN_FULL = 5
"""Failures of a lane told with everything that is known; the others get a line each."""
MOST_LINES = 50
"""Of failures told in one line; the other formats have them all."""
MOST_IMPROVEMENTS = 5
MOST_NOTICES = 10
MOST_LANES = 20
INDENT = "     "
_STYLE = {"good": "green", "bad": "red", "blind": "yellow"}


def render(judgements: Sequence[Judgement], look: RenderOptions) -> str:
    """Every lane, those that did not pass first; the first line is the verdict."""
    ordered = sorted(judgements, key=lambda item: ("blind", "bad", "good").index(outcome(item)))
    lines = _overall(ordered, look)
    for judgement in ordered[:MOST_LANES]:
        lines += [*([""] if lines else []), *_lane(judgement, look)]
    if len(ordered) > MOST_LANES:
        lines += ["", f"+{len(ordered) - MOST_LANES} more lanes: --format json"]
    return "\n".join(inert(line.rstrip()) for line in lines) + "\n"


def _overall(judgements: Sequence[Judgement], look: RenderOptions) -> list[str]:
    """A line on all lanes where there is not exactly one."""
    if len(judgements) == 1:
        return []
    if not judgements:
        return [look.styled(f"{look.sign('blind')} nothing was judged, which is no pass", "yellow")]
    kinds = [outcome(item) for item in judgements]
    bad = len(kinds) - kinds.count("good")
    told = "passed" if not bad else f"failed for {bad} of them"
    worst = "bad" if "bad" in kinds else kinds[0]
    line = f"{look.sign(worst)} gate of {count(len(kinds), 'lane')}: {told}"
    return [look.styled(line, _STYLE[worst])]


def _lane(judgement: Judgement, look: RenderOptions) -> list[str]:
    lines = _head(judgement, look)
    lines += _failures(judgement.failures, look)
    lines += _known(judgement.known, look)
    lines += _improvements(judgement, look)
    for notice in judgement.notices[:MOST_NOTICES]:
        lines += hang(look.text(notice), look.width, f"  {look.sign('warn')} ", "    ")
    if len(judgement.notices) > MOST_NOTICES:
        lines.append(f"    +{len(judgement.notices) - MOST_NOTICES} more notices: --format json")
    return lines


def _head(judgement: Judgement, look: RenderOptions) -> list[str]:
    kind = outcome(judgement)
    sign = look.sign(kind) + " "
    told = hang(_plain(headline(judgement), look), look.width, sign, " " * len(sign))
    whom = f"lane {look.text(judgement.lane, 120)}"
    standard = against(judgement)
    if standard:
        whom += f" against {look.text(standard, 300)}"
    lines = [look.styled(line, _STYLE[kind]) for line in told]
    if len(told) == 1 and columns(told[0]) + 3 + columns(whom) <= look.width:
        lines = [f"{lines[0]}   {look.styled(whom, 'dim')}"]
    else:
        lines += [look.styled(line, "dim") for line in hang(whom, look.width, "  ", "    ")]
    changed = [_plain(item, look) for item in changed_counts(judgement, look.arrow)]
    below = flow(changed, look.dot, look.width, "  ", "  ") if changed else []
    return [*lines, *(look.styled(line, "dim") for line in below)]


def _failures(failures: Sequence[Item], look: RenderOptions) -> list[str]:
    lines: list[str] = []
    for number, item in enumerate(failures[:MOST_IN_FULL], 1):
        lines += ["", *_in_full(number, item, look)]
    rest = failures[MOST_IN_FULL:]
    lines += [""] if rest else []
    for number, item in enumerate(rest[:MOST_LINES], MOST_IN_FULL + 1):
        where = place(item, look, 40)
        told = f"{number:>3}  {look.text(title(item), 200)}"
        told += f"{look.dot}{where}" if where else f"{look.dot}{look.text(item.message, 200)}"
        lines.append(look.fit(told, look.width))
    if len(rest) > MOST_LINES:
        lines.append(f"     +{len(rest) - MOST_LINES:,} more: compilediag gate --format json")
    return lines


def _in_full(number: int, item: Item, look: RenderOptions) -> list[str]:
    """What failed; what is so; where, how often and its seconds; the guard; what to change."""
    head = look.fit(f"{number:>3}  {look.text(title(item), 200)}", look.width)
    lines = [look.styled(head, "bold")]
    lines += hang(look.text(item.message), look.width, INDENT, INDENT)
    facts = [place(item, look, 60), often(item, look.arrow)]
    facts.append(f"cost {seconds(item.cost_s)}" if item.cost_s is not None else "")
    facts.append(explain(item))
    told = [_plain(fact, look) for fact in facts if fact]
    lines += flow(told, look.dot, look.width, INDENT, INDENT) if told else []
    if item.guard and item.guard not in item.message:
        lines += hang(look.text(item.guard), look.width, f"{INDENT}guard: ", f"{INDENT}       ")
    if item.fix:
        fix = hang(look.text(item.fix), look.width, f"{INDENT}fix: ", f"{INDENT}     ")
        lines += [look.styled(line, "cyan") for line in fix]
    return lines


def _known(known: Sequence[Item], look: RenderOptions) -> list[str]:
    """All that the baseline allows, in one line."""
    if not known:
        return []
    told = ", ".join(look.text(short(item), 60) for item in known[:20])
    line = f"  {len(known):,} known and allowed: {told}"
    return ["", look.styled(look.fit(line, look.width), "dim")]


def _improvements(judgement: Judgement, look: RenderOptions) -> list[str]:
    better = judgement.improvements
    if not better:
        return []
    title_line = f"  better than the baseline ({len(better):,}):"
    lines = ["", look.styled(title_line, "green")]
    for item in better[:MOST_IMPROVEMENTS]:
        told = look.text(item.message, 300)
        lines += hang(told, look.width, "    ", "      ")
    if len(better) > MOST_IMPROVEMENTS:
        lines.append(f"    +{len(better) - MOST_IMPROVEMENTS:,} more")
    hint = f"keep it: {UPDATE}"
    if judgement.strict:
        hint = f"a strict gate fails until the baseline holds it: {UPDATE}"
    return [*lines, *hang(hint, look.width, "    ", "      ")]


def _plain(text: str, look: RenderOptions) -> str:
    """Our own signs in ASCII where the terminal needs that; target text is cleaned as well."""
    return look.text(text, 400)
