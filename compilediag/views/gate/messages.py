"""What every format says of a judgement and its items: the outcome, titles, how often, where.

The texts hold names of the target as they are: each format escapes what it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from compilediag.compare.gate.judgement import Item, Judgement, Kind
from compilediag.views.format import count
from compilediag.views.style import RenderOptions

_NEW: dict[Kind, tuple[str, str]] = {
    "limit": ("limit exceeded", "limits exceeded"),
    "count": ("count over the baseline", "counts over the baseline"),
    "cause": ("new cause", "new causes"),
    "break": ("new graph break", "new graph breaks"),
    "fallback": ("new eager fallback", "new eager fallbacks"),
    "frame": ("new frame", "new frames"),
    "recording": ("new CUDA-graph recording", "new CUDA-graph recordings"),
    "not_judged": ("reason why nothing can be said", "reasons why nothing can be said"),
}

_MORE: dict[Kind, tuple[str, str]] = {
    "cause": ("cause met more often", "causes met more often"),
    "break": ("graph break at more sites", "graph breaks at more sites"),
    "fallback": ("more eager fallbacks", "frames with more eager fallbacks"),
    "frame": ("frame compiled more often", "frames compiled more often"),
    "recording": ("CUDA graph recorded more often", "CUDA graphs recorded more often"),
}
"""For what the baseline knows, and fewer of it."""

_THERE: dict[Kind, tuple[str, str]] = {
    "cause": ("cause", "causes"),
    "break": ("graph break", "graph breaks"),
    "fallback": ("eager fallback", "eager fallbacks"),
    "frame": ("frame", "frames"),
    "recording": ("CUDA-graph recording", "CUDA-graph recordings"),
    "count": ("count", "counts"),
}
"""For what is compared with nothing, known or better."""

UPDATE = "compilediag gate --update"
"""The command that writes what is there now into the baseline."""

Outcome = Literal["good", "bad", "blind"]


def outcome(judgement: Judgement) -> Outcome:
    """Passed, failed, or nothing can be said; the signs of `Look.sign`."""
    if not judgement.judged:
        return "blind"
    return "good" if judgement.passed else "bad"


def headline(judgement: Judgement) -> str:
    """The outcome in one sentence of our own words, without the lane."""
    kind = outcome(judgement)
    if kind == "blind":
        return "gate could not judge this run, which is no pass"
    if judgement.failures:
        return f"gate failed: {summary(judgement.failures)}"
    better = count(len(judgement.improvements), "improvement")
    if kind == "bad":
        return f"gate failed: {better} the baseline does not hold yet"
    parts = [better] if judgement.improvements else ["nothing new"]
    if judgement.known:
        parts.append(f"{len(judgement.known):,} known")
    return f"gate passed: {', '.join(parts)}"


def summary(items: Iterable[Item]) -> str:
    """Items counted by what they are, in their order: "2 new causes, 1 new graph break"."""
    counted = Counter(_nouns(item) for item in items)
    return ", ".join(
        f"{number:,} {one if number == 1 else many}" for (one, many), number in counted.items()
    )


def _nouns(item: Item) -> tuple[str, str]:
    table = _THERE if item.before is None else _MORE if item.before else _NEW
    return table.get(item.kind, _NEW[item.kind])


def kind_of(item: Item) -> str:
    """What a failure is, in words of our own: "new cause"."""
    return "not judged" if item.kind == "not_judged" else _nouns(item)[0]


def against(judgement: Judgement) -> str:
    """What it was judged against: the baseline, the limits, or both."""
    asked = [judgement.baseline] if judgement.baseline else []
    asked += [", ".join(judgement.limits)] if judgement.limits else []
    return " and ".join(asked)


def title(item: Item) -> str:
    """What a failure is, in a few words: "CD103 new cause: pos.pe"."""
    subject = item.variable or item.function
    return f"{_ruled(item, kind_of(item))}{f': {subject}' if subject else ''}"


def short(item: Item) -> str:
    """What an item is about, whether bad or not: "CD103 cause: pos.pe"."""
    subject = item.variable or item.function
    noun = _THERE.get(item.kind, _NEW[item.kind])[0]
    return f"{_ruled(item, noun)}{f': {subject}' if subject else ''}"


def _ruled(item: Item, noun: str) -> str:
    """The noun behind its code, or behind the name of the count that it is about."""
    named = _is_code(item.rule) or item.kind in ("count", "limit")
    return f"{item.rule.replace('_', ' ')} {noun}" if named and item.rule else noun


def _is_code(rule: str) -> bool:
    """Whether it has the form of a code; the register is not read, to start quickly."""
    return len(rule) == 5 and rule.startswith("CD") and rule[2:].isdecimal()


def often(item: Item, arrow: str = "→") -> str:
    """How often before and after; nothing where there is nothing to compare."""
    if item.before is None or item.after is None:
        return ""
    if item.kind == "limit":
        return f"{item.after:,}, limit {item.before:,}"
    return f"{item.before:,} {arrow} {item.after:,}"


def changed_counts(judgement: Judgement, arrow: str) -> list[str]:
    """The counts that differ from the baseline: "recompiles 0 → 2"."""
    return [
        f"{item.name.replace('_', ' ')} {item.before:,} {arrow} {item.after:,}"
        for item in judgement.counts
        if item.change
    ]


def explain(item: Item) -> str:
    """The command that tells more of an item's finding; nothing where there is none."""
    number = (item.finding or "").removeprefix("F")
    return f"compilediag explain {number}" if number.isdecimal() and number.isascii() else ""


def detail(item: Item, options: RenderOptions, limit: int = 600) -> list[str]:
    """Everything else that is known of a failure, cleaned, a line each."""
    parts = [options.text(item.message, limit)]
    where = place(item, options)
    if where:
        parts.append(f"where: {where}")
    if often(item):
        parts.append(f"how often: {often(item, options.arrow)}")
    if item.guard:
        parts.append(f"guard: {options.text(item.guard, limit)}")
    if item.fix:
        parts.append(f"fix: {options.text(item.fix, limit)}")
    if explain(item):
        parts.append(f"more: {explain(item)}")
    return parts


def inert(line: str) -> str:
    """The line, as wide as it was, where GitHub's runner would read a command in a job's log."""
    text = line.lstrip()
    if text.startswith("::"):
        line = f"{line[: len(line) - len(text)]}: {text[2:]}"
    return line.replace("##[", "# [")


def place(item: Item, options: RenderOptions, limit: int = 200) -> str:
    """`model.py:7 in forward`, cleaned; nothing where no line is to blame."""
    if not item.file:
        return ""
    line = f":{item.line}" if item.line else ""
    function = f" in {options.text(item.function, 80)}" if item.function else ""
    return f"{options.path(item.file, limit)}{line}{function}"


def in_turn(judgements: Sequence[Judgement]) -> list[tuple[Judgement, Item]]:
    """The failures of all lanes, the first of each lane before the second of any."""
    longest = max((len(item.failures) for item in judgements), default=0)
    return [
        (judgement, judgement.failures[place])
        for place in range(longest)
        for judgement in judgements
        if place < len(judgement.failures)
    ]
