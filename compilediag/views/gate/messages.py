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

from compilediag.compare.gate.judgement import Issue, Judgement, Kind
from compilediag.views.format import pluralize
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


def get_outcome(judgement: Judgement) -> Outcome:
    """Get the outcome (passed, failed, or could not be judged) as the name of a sign."""
    if not judgement.judged:
        return "blind"
    return "good" if judgement.passed else "bad"


def describe_outcome(judgement: Judgement) -> str:
    """Describe the outcome in one sentence of our own words, without the configuration."""
    kind = get_outcome(judgement)
    if kind == "blind":
        return "gate could not judge this run, which is no pass"
    if judgement.failures:
        return f"gate failed: {summarize(judgement.failures)}"
    better = pluralize(len(judgement.improvements), "improvement")
    if kind == "bad":
        return f"gate failed: {better} the baseline does not hold yet"
    parts = [better] if judgement.improvements else ["nothing new"]
    if judgement.known:
        parts.append(f"{len(judgement.known):,} known")
    return f"gate passed: {', '.join(parts)}"


def summarize(issues: Iterable[Issue]) -> str:
    """Count issues by what they are, in order: "2 new causes, 1 new graph break"."""
    counted = Counter(map(_choose_noun, issues))
    return ", ".join(f"{total:,} {noun[total != 1]}" for noun, total in counted.items())


def _choose_noun(issue: Issue) -> _Noun:
    if issue.before and issue.kind in _MORE:
        return _MORE[issue.kind]
    known = _NOUNS.get(issue.kind)
    if known is None or (issue.before is not None and issue.kind in _FAILED):
        return _FAILED[issue.kind]
    noun = known if issue.before is None else f"new {known}"
    return noun, f"{noun}s"


def format_kind(issue: Issue) -> str:
    """Format the kind of a failure in words of our own: "new cause"."""
    return _KINDS.get(issue.kind) or _choose_noun(issue)[0]


def describe_standard(judgement: Judgement) -> str:
    """Describe what it was judged against: baseline, limits, proved changes, or several of them."""
    proofs = "proved changes" if judgement.require_proved_fix else ""
    return " and ".join(filter(None, (judgement.baseline, ", ".join(judgement.limits), proofs)))


def format_title(issue: Issue) -> str:
    """Format a failure in a few words: "CD103 new cause: pos.pe"."""
    return _join_title(issue, format_kind(issue))


def format_short(issue: Issue) -> str:
    """Format what an issue is about, whether bad or not: "CD103 cause: pos.pe"."""
    return _join_title(issue, _NOUNS.get(issue.kind) or _FAILED[issue.kind][0])


def _join_title(issue: Issue, noun: str) -> str:
    """Join the code, or the name of the count, the noun, and the variable or function."""
    name = issue.variable or issue.function
    named = re.fullmatch(r"CD\d{3}", issue.rule) or (
        issue.rule and issue.kind in ("count", "limit")
    )
    rule = re.sub(r" s$", " seconds", issue.rule.replace("_", " ")) + " " if named else ""
    return f"{rule}{noun}{f': {name}' if name else ''}"


def format_change(issue: Issue, arrow: str = "→") -> str:
    """Format how often before and after; "" where there is nothing to compare."""
    if issue.before is None or issue.after is None:
        return ""
    if issue.kind == "limit":
        return f"{issue.after:,}, limit {issue.before:,}"
    return f"{issue.before:,} {arrow} {issue.after:,}"


def format_explain(issue: Issue) -> str:
    """Format the command that explains an issue's finding; "" where there is none."""
    number = (issue.finding or "").removeprefix("F")
    return f"compilediag explain {number}" if number.isdecimal() and number.isascii() else ""


def list_details(issue: Issue, options: RenderOptions, limit: int = 600) -> list[str]:
    """List everything else that is known of a failure, cleaned, a line each."""
    facts = (
        ("where", format_place(issue, options)),
        ("how often", format_change(issue, options.arrow)),
        ("guard", options.clean(issue.guard or "", limit)),
        ("fix", options.clean(issue.fix or "", limit)),
        ("proved", options.clean(issue.proved or "", limit)),
        ("more", format_explain(issue)),
    )
    message = options.clean(issue.message, limit)
    return [message, *(f"{label}: {value}" for label, value in facts if value)]


def escape_commands(line: str) -> str:
    """Escape a line, as wide as it was, in which GitHub's runner would read a command."""
    text = line.lstrip()
    if text.startswith("::"):
        line = f"{line[: len(line) - len(text)]}: {text[2:]}"
    return line.replace("##[", "# [")


def format_place(issue: Issue, options: RenderOptions, limit: int = 200) -> str:
    """Format `model.py:7 in forward`, cleaned, behind the call of the program's own that led there
    where that is another file: `train.py:36: model(x), at …`; "" where no line is to blame."""
    if not issue.file:
        return ""
    function = f" in {options.clean(issue.function, 80)}" if issue.function else ""
    here = options.format_place(issue.file, issue.line, limit) + function
    if issue.call is None:
        return here
    text = f": {options.clean(issue.call.text, 120)}" if issue.call.text else ""
    return f"{options.format_place(issue.call.file, issue.call.line, limit)}{text}, at {here}"


def sort_worst_first(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Sort judgements: could not be judged, failed, passed."""
    order = ("blind", "bad", "good")
    return sorted(judgements, key=lambda judgement: order.index(get_outcome(judgement)))


def merge_in_turn(judgements: Sequence[Judgement]) -> list[tuple[Judgement, Issue]]:
    """Merge the failures of all configurations: the first of each before the second of any."""
    turns = zip_longest(*(judgement.failures for judgement in judgements))
    return [
        (judgement, issue)
        for turn in turns
        for judgement, issue in zip(judgements, turn, strict=True)
        if issue is not None
    ]


def find_location(issue: Issue, options: RenderOptions) -> RepositoryLine | None:
    """Find the line to blame: for what is in a library the call of the program's own that led
    there. None where no file below the root of the repository is to blame."""
    for at in (issue.call, issue):
        if at is not None and (path := _find_relative_path(at.file, options)):
            return RepositoryLine(path, max(at.line or 1, 1))
    return None


def get_baseline_line(judgement: Judgement, options: RenderOptions) -> RepositoryLine:
    """Locate the baseline's file: for formats in which everything must have a place."""
    return RepositoryLine(_find_relative_path(judgement.baseline, options) or LOCK, 1)


def _find_relative_path(file: str | None, options: RenderOptions) -> str | None:
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


def add_fingerprints(
    failures: Iterable[tuple[Judgement, Issue]],
) -> Iterator[tuple[Judgement, Issue, str]]:
    """Add a fingerprint of its own to each failure: configuration, cause and number of twins."""
    seen: Counter[tuple[str, str]] = Counter()
    for judgement, issue in failures:
        twin = seen[judgement.configuration, issue.fingerprint]
        seen[judgement.configuration, issue.fingerprint] += 1
        parts = (judgement.configuration, issue.fingerprint, *([str(twin)] if twin else []))
        digest = hashlib.sha256("\x00".join(parts).encode("utf-8", "replace"))
        yield judgement, issue, digest.hexdigest()[:32]
