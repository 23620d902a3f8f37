"""A finding as one sentence in the program's own names: which values, and what became of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from compilediag.diagnosis.codes import REGISTER, TEMPORARY
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.schema.compiles import FindingRecord, mask_indices
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName, make_record
from compilediag.views import lookups
from compilediag.views.format import join_words
from compilediag.views.style import RenderOptions

SENTENCE_CHARS = 240
_OWNERS = ("closure", "global", "object", "optimizer")
_PLAIN = ("container", "scalar", "tensor", "value")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FLOAT = re.compile(r"-?\d+[.e][-+.\de]+")
MAX_NAMES = 4
MAX_HISTORY = 5
"""Values of one variable on a screen."""


def get_title(finding: FindingRecord) -> str:
    """Get what was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def describe_finding(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """Describe what happened in one sentence, with the program's own names: "`self.logged` grows".
    What needs more words, such as a dtype or a graph break, keeps the title of its rule."""
    title, register = get_title(finding), REGISTER.get(finding.rule)
    if finding.rule == "CD152" and (used := _describe_used_graphs(finding, receipt)):
        return options.clean(used, SENTENCE_CHARS)
    names = _name_values(finding)
    if not names or register is None or register.owner == "process":
        return options.clean(title, SENTENCE_CHARS)
    history = lookups.list_history(finding, receipt)
    # Two numbers are no trend; of what holds others each call adds to it.
    trend = len(history) > 2 or register.changed in ("container", "tensor")
    word = "rise" if all(map(_NUMBER.fullmatch, history)) else "grow"
    grows = word if trend and _is_growing(history) else ""
    # A position is no name, and a mark no size.
    if names.startswith("`argument ") or GuardEvidence.parse(finding.evidence).kind == "marking":
        return options.clean(f"{title}: {names}", SENTENCE_CHARS)
    if register.changed == "size":
        constant = "size 0 or 1" in title  # others of the same tensor are another finding
        # Calls between them may have smaller sizes that an earlier graph serves.
        said = "take size 0 or 1 in some calls" if constant else "come in several sizes"
    elif register.owner in _OWNERS and register.changed in _PLAIN:
        said = grows or "change"
    elif register.owner == "instance":
        said = "differ between instances that share the code"
    elif register.changed in _PLAIN and register.changed != "tensor":
        said = "change from call to call"
    else:
        return options.clean(f"{title}: {names}", SENTENCE_CHARS)
    if "` and" not in names and "`, `" not in names:
        verb, _, rest = said.partition(" ")
        said = f"{verb}s {rest}".strip()
    return options.clean(f"{names} {said}", SENTENCE_CHARS)


def _describe_used_graphs(finding: FindingRecord, receipt: Receipt) -> str:
    """Describe whose recompiles hit the limit; empty where no finding is known."""
    place, limit = finding.location, GuardEvidence.parse(finding.evidence).limit
    if place is None or limit is None:
        return ""
    frame = make_record(FrameName, place)
    events = (e for e in lookups.list_compiles(finding, receipt) if e.frame == frame)
    ids = {cause.finding for event in events for cause in event.causes if cause.finding}
    numbers = [str(number) for number in sorted(int(name.removeprefix("F")) for name in ids)]
    if not numbers:
        return ""
    named = f"finding{'s' if len(numbers) > 1 else ''} {join_words(numbers)}"
    return f"{named} used up the {limit} graphs of {normalize_function(place.function)}"


def _name_values(finding: FindingRecord) -> str:
    """Name the values of a finding; empty where it is about none."""
    evidence = GuardEvidence.parse(finding.evidence)
    parts = (part.variable for part in finding.parts)
    names = [name for name in dict.fromkeys((finding.variable, *evidence.together, *parts)) if name]
    names = [name for name in names if not name.startswith(TEMPORARY)] or names
    if len(names) < 2:
        return f"`{names[0]}`" if names else ""
    masked = Counter(map(mask_indices, names))
    return name_values([*masked], masked[mask_indices(names[0])], mark="`")


def name_values(names: Sequence[str], alike: int, mark: str = "") -> str:
    """Name several values, what they have in common once, and how many differ by an index alone:
    "layers[*].rotary.cos, sin, cached (2 of each)"."""
    holder = names[0].rpartition(".")[0]
    short = [*names[:1], *(name.removeprefix(f"{holder}.") for name in names[1:MAX_NAMES])]
    text = ", ".join(f"{mark}{name}{mark}" for name in short)
    text += f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    several = "of each" if names[1:] else "values"
    return text + (f" ({alike} {several})" if alike > 1 else "")


def _is_growing(values: Sequence[str]) -> bool:
    """True if the numbers in the values only become larger; a float counts nothing."""
    if any(map(_FLOAT.fullmatch, values)):
        return False
    numbers = [[float(number) for number in _NUMBER.findall(value)] for value in values]
    same = len({len(row) for row in numbers}) == 1
    return same and all(
        one < other and all(a <= b for a, b in zip(one, other, strict=True))
        for one, other in pairwise(numbers)
    )


def format_history(values: Sequence[str], options: RenderOptions) -> str:
    """Format what a variable was in one graph after another: "0 items → 1 item → 2 items …"."""
    shown = f" {options.arrow} ".join(options.clean(value, 40) for value in values[:MAX_HISTORY])
    return shown + (f" {options.arrow} {options.ellipsis}" if len(values) > MAX_HISTORY else "")
