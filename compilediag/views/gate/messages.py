"""Texts of a judgement that all formats share: its outcome; titles, counts and places of failures.

The texts hold names of the target as they are: each format escapes what it writes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from compilediag.compare.gate.judgement import Item, Judgement, Kind
from compilediag.views.format import count
from compilediag.views.style import RenderOptions
from compilediag.views.text import clean

LOCK = "compilediag.lock.json"
"""The place of what has none of its own, unless the gate has another baseline."""
MAX_PATH_CHARS = 1000


class RepositoryLine(NamedTuple):
    """A file below the repository's root, and a line of it that starts at 1."""

    path: str
    line: int


_Noun = tuple[str, str]
"""Singular and plural."""

_NOUNS: dict[Kind, str] = {
    "cause": "cause",
    "break": "graph break",
    "fallback": "eager fallback",
    "frame": "frame",
    "recording": "CUDA-graph recording",
    "count": "count",
}
"""For what is compared with nothing, known or better; with "new" for what the baseline lacks."""

_FAILED: dict[Kind, _Noun] = {
    "limit": ("limit exceeded", "limits exceeded"),
    "count": ("count over the baseline", "counts over the baseline"),
    "unproved": ("finding without a proved change", "findings without a proved change"),
    "not_judged": ("reason why it could not be judged", "reasons why it could not be judged"),
}

_KINDS: dict[Kind, str] = {"not_judged": "not judged", "unproved": "no proved change"}
"""For single failures that a noun would make too long."""

_MORE: dict[Kind, _Noun] = {
    "cause": ("cause met more often", "causes met more often"),
    "break": ("graph break at more sites", "graph breaks at more sites"),
    "fallback": ("more eager fallbacks", "frames with more eager fallbacks"),
    "frame": ("frame compiled more often", "frames compiled more often"),
    "recording": ("CUDA graph recorded more often", "CUDA graphs recorded more often"),
}
"""For what the baseline knows, and fewer of it."""

LINE_CHARS = 1000
"""Longest line to be copied, which is of no use when it is cut."""

UPDATE = "compilediag gate --update"
"""The command that writes what is there now into the baseline."""

Outcome = Literal["good", "bad", "blind"]


def outcome(judgement: Judgement) -> Outcome:
    """Get the outcome (passed, failed, or could not be judged) as the name of a sign."""
    if not judgement.judged:
        return "blind"
    return "good" if judgement.passed else "bad"


def headline(judgement: Judgement) -> str:
    """Describe the outcome in one sentence of our own words, without the configuration."""
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
    """Count issues by what they are, in order: "2 new causes, 1 new graph break"."""
    counted = Counter(map(_noun, items))
    return ", ".join(f"{total:,} {noun[total != 1]}" for noun, total in counted.items())


def _noun(item: Item) -> _Noun:
    if item.before and item.kind in _MORE:
        return _MORE[item.kind]
    known = _NOUNS.get(item.kind)
    if known is None or (item.before is not None and item.kind in _FAILED):
        return _FAILED[item.kind]
    noun = known if item.before is None else f"new {known}"
    return noun, f"{noun}s"


def kind_of(item: Item) -> str:
    """Format the kind of a failure in words of our own: "new cause"."""
    return _KINDS.get(item.kind) or _noun(item)[0]


def against(judgement: Judgement) -> str:
    """Describe what it was judged against: baseline, limits, proved changes, or several of them."""
    proofs = "proved changes" if judgement.require_proved_fix else ""
    return " and ".join(filter(None, (judgement.baseline, ", ".join(judgement.limits), proofs)))


def title(item: Item) -> str:
    """Format a failure in a few words: "CD103 new cause: pos.pe"."""
    return _title(item, kind_of(item))


def short(item: Item) -> str:
    """Format what an issue is about, whether bad or not: "CD103 cause: pos.pe"."""
    return _title(item, _NOUNS.get(item.kind) or _FAILED[item.kind][0])


def _title(item: Item, noun: str) -> str:
    """Join the code, or the name of the count ("graph breaks", "compile seconds"), the noun, and
    the variable or function."""
    subject = item.variable or item.function
    named = re.fullmatch(r"CD\d{3}", item.rule) or (item.rule and item.kind in ("count", "limit"))
    rule = re.sub(r" s$", " seconds", item.rule.replace("_", " ")) + " " if named else ""
    return f"{rule}{noun}{f': {subject}' if subject else ''}"


def often(item: Item, arrow: str = "→") -> str:
    """Format how often before and after; "" where there is nothing to compare."""
    if item.before is None or item.after is None:
        return ""
    if item.kind == "limit":
        return f"{item.after:,}, limit {item.before:,}"
    return f"{item.before:,} {arrow} {item.after:,}"


def explain(item: Item) -> str:
    """Format the command that explains an issue's finding; "" where there is none."""
    number = (item.finding or "").removeprefix("F")
    return f"compilediag explain {number}" if number.isdecimal() and number.isascii() else ""


def detail(item: Item, options: RenderOptions, limit: int = 600) -> list[str]:
    """List everything else that is known of a failure, cleaned, a line each."""
    facts = (
        ("where", place(item, options)),
        ("how often", often(item, options.arrow)),
        ("guard", options.text(item.guard or "", limit)),
        ("fix", options.text(item.fix or "", limit)),
        ("proved", options.text(item.proved or "", limit)),
        ("more", explain(item)),
    )
    message = options.text(item.message, limit)
    return [message, *(f"{label}: {value}" for label, value in facts if value)]


def inert(line: str) -> str:
    """Escape a line, as wide as it was, in which GitHub's runner would read a command."""
    text = line.lstrip()
    if text.startswith("::"):
        line = f"{line[: len(line) - len(text)]}: {text[2:]}"
    return line.replace("##[", "# [")


def place(item: Item, options: RenderOptions, limit: int = 200) -> str:
    """Format `model.py:7 in forward`, cleaned, behind the call of the program's own that led there
    where that is another file: `train.py:36: model(x), at …`; "" where no line is to blame."""
    if not item.file:
        return ""
    function = f" in {options.text(item.function, 80)}" if item.function else ""
    here = options.place(item.file, item.line, limit) + function
    if item.call is None:
        return here
    text = f": {options.text(item.call.text, 120)}" if item.call.text else ""
    return f"{options.place(item.call.file, item.call.line, limit)}{text}, at {here}"


def worst_first(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Sort judgements: could not be judged, failed, passed."""
    return sorted(judgements, key=lambda item: ("blind", "bad", "good").index(outcome(item)))


def in_turn(judgements: Sequence[Judgement]) -> list[tuple[Judgement, Item]]:
    """Merge the failures of all configurations: the first of each before the second of any."""
    turns = zip_longest(*(judgement.failures for judgement in judgements))
    return [
        (judgement, item)
        for turn in turns
        for judgement, item in zip(judgements, turn, strict=True)
        if item is not None
    ]


def location(item: Item, options: RenderOptions) -> RepositoryLine | None:
    """Find the line to blame: for what is in a library the call of the program's own that led
    there. None where no file below the root of the repository is to blame."""
    for at in (item.call, item):
        if at is not None and (path := _below(at.file, options)):
            return RepositoryLine(path, max(at.line or 1, 1))
    return None


def home(judgement: Judgement, options: RenderOptions) -> RepositoryLine:
    """Locate the baseline's file: for formats in which everything must have a place."""
    return RepositoryLine(_below(judgement.baseline, options) or LOCK, 1)


def _below(file: str | None, options: RenderOptions) -> str | None:
    """Find the path relative to the root, normalized; None for anything that lies elsewhere."""
    if not file:
        return None
    root = options.root.rstrip("/") + "/"
    path = file[len(root) :] if options.root and file.startswith(root) else file
    if path is file and options.folder and not path.startswith(("/", "<")):
        path = f"{options.folder}/{path}"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    # "<string>" and the like: code that was never in a file.
    strange = path.startswith(("/", "<")) or ".." in parts or "\\" in path or not parts
    if strange or len(path) > MAX_PATH_CHARS or clean(path, limit=MAX_PATH_CHARS) != path:
        return None
    return "/".join(parts)


def fingerprinted(
    failures: Iterable[tuple[Judgement, Item]],
) -> Iterator[tuple[Judgement, Item, str]]:
    """Add a fingerprint of its own to each failure: configuration, cause and number of twins."""
    seen: Counter[tuple[str, str]] = Counter()
    for judgement, item in failures:
        twin = seen[judgement.lane, item.fingerprint]
        seen[judgement.lane, item.fingerprint] += 1
        parts = (judgement.lane, item.fingerprint, *([str(twin)] if twin else []))
        digest = hashlib.sha256("\x00".join(parts).encode("utf-8", "replace"))
        yield judgement, item, digest.hexdigest()[:32]
