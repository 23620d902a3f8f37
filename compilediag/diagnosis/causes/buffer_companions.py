"""Ints and flags that go with a lazily grown buffer, as opposed to attributes that changed too.

A module that grows a buffer often remembers its length: `self.seq_len` beside `self.table`. Both
guards fail, sometimes the int alone, once the buffer's size is dynamic; the cause is one. An
unrelated attribute of the same object stays a cause of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from compilediag.diagnosis.causes.conditions import Condition
from compilediag.diagnosis.guards.source import Path, paths_in

_NUMBER = re.compile(r"\d+")
_VALUES = ("value", "none", "identity", "attribute")


def with_companions(
    own: Sequence[Condition], everywhere: Iterable[Condition]
) -> tuple[Condition, ...]:
    """`own`, with each companion merged into its buffer. `everywhere` holds the conditions of all
    entries: a farther one may be the only witness that the buffer grew."""
    growing = [c for c in everywhere if c.decision.code == "CD103" and c.decision.kind == "shape"]
    growing += [c for c in own if c.decision.code == "CD103" and c not in growing]
    kept: list[Condition] = []
    for condition in own:
        partner = next((buffer for buffer in growing if _belongs_to(condition, buffer)), None)
        if partner is None:
            kept.append(condition)
        elif partner.subject not in [other.subject for other in own]:
            decision = replace(condition.decision, code="CD103", kind="companion")
            kept.append(replace(condition, decision=decision, variable=partner.variable))
    return tuple(kept)


def _belongs_to(condition: Condition, buffer: Condition) -> bool:
    """`condition` is a value on the object that holds `buffer`, and goes with it."""
    mine, its = condition.subject, buffer.subject
    if condition.guard.check == "shape" and its is not None:
        # `x.size()[0] > self.seq_len`: the int has become a symbol.
        named = paths_in(condition.false.text)
        return any(path.hops and path != its and path.holder == its.holder for path in named)
    if condition is buffer or mine is None or its is None or mine == its:
        return False
    if condition.guard.check not in _VALUES or condition.decision.code not in ("CD103", "CD104"):
        return False
    if condition.decision.kind in ("shape", "created") or mine.holder != its.holder:
        return False
    return _shares_name(mine, its) or _counts(condition, buffer) or _flags(condition, buffer)


def _shares_name(mine: Path, its: Path) -> bool:
    """`cached_freqs_seq_len` and `cached_freqs`."""
    one, other = (mine.member or "").strip("_"), (its.member or "").strip("_")
    short, long = sorted((one, other), key=len)
    return bool(short) and f"_{short}_" in f"_{long}_"


def _counts(condition: Condition, buffer: Condition) -> bool:
    """The int became a size the buffer has now."""
    actual = (condition.actual or "").strip()
    return actual.isdigit() and actual in _NUMBER.findall(buffer.actual or "")


def _flags(condition: Condition, buffer: Condition) -> bool:
    """A bool or None that turned, read in the function that reads the buffer."""
    values = {condition.expected, condition.actual}
    if not values & {"True", "False", "None"} or condition.place is None or buffer.place is None:
        return False
    return (condition.place.file, condition.place.function) == (
        buffer.place.file,
        buffer.place.function,
    )
