"""One cause with its recompiles, and what has a common cause with it; dimensions that changed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.findings import Cause, CauseId, CommonCause, Evidence, select_writers
from compilediag.timeline.compiles import FrameId, Recompile
from compilediag_harness.wire import Location

APART = ("condition", "metadata", "mode", "size")
"""Parts of a tensor, or of no variable, that change by themselves."""
_MAX_NAMED = 4
"""Variables named in a sentence."""
_MAX_VALUES = 8
"""Distinct changes stored in the evidence."""
_SIZES = re.compile(r"\[([\d*, ]+)\]")
ALWAYS_CONSTANT = frozenset(("0", "1"))
"""Sizes of which torch makes graphs of their own."""
PARAMETER = "._parameters["
"""In the source of what another instance has of another size: its entries are not this one's."""


class DimensionChange(NamedTuple):
    """One dimension that has another size."""

    dimension: int
    before: str
    after: str


def find_changed_dims(expected: str | None, actual: str | None) -> tuple[DimensionChange, ...]:
    """Find the dimensions that differ between two printed sizes, in order; empty where the texts
    are none. Of `[4, *]` and `[6, 3]` the first: a dynamic dimension ("*") fits every size."""
    before, after = (_SIZES.fullmatch(text or "") for text in (expected, actual))
    if before is None or after is None:
        return ()
    sizes = zip(before[1].split(", "), after[1].split(", "), strict=False)
    return tuple(
        DimensionChange(index, old, new)
        for index, (old, new) in enumerate(sizes)
        if old not in ("*", new)
    )


def find_changed_sizes(pairs: Iterable[tuple[str | None, str | None]]) -> tuple[list[int], bool]:
    """Find the dimensions that changed between sizes before and after, ascending, and whether 0 or
    1 is among their sizes, which torch takes for constants."""
    changed = [change for pair in pairs for change in find_changed_dims(*pair)]
    small = any({change.before, change.after} & ALWAYS_CONSTANT for change in changed)
    return sorted({change.dimension for change in changed}), small


def add_values(values: dict[str, str], pairs: Iterable[tuple[str, str | None]]) -> None:
    """Add what a variable was in some graphs; a size says more than the type, which an entry of
    None is compared by."""
    for graph, value in pairs:
        known = values.get(graph)
        if value is not None and (known is None or known[0] != "[" == value[0]):
            values[graph] = value


@dataclass(frozen=True, slots=True)
class Group:
    """The same cause in one or many recompiles; `causes` and `recompiles` are parallel."""

    id: CauseId
    causes: tuple[Cause, ...]
    recompiles: tuple[Recompile, ...]
    location: Location
    together: tuple[Group, ...] = ()
    """Others of the same code that changed in the same recompiles and alike: a common cause."""
    follows: tuple[Group, ...] = ()
    """What the common cause changed elsewhere or otherwise: in frames that are called from there,
    in another guard of the same value, in other values."""
    common_cause: CommonCause | None = None
    """The line that changed several values, where it is known."""

    def add_follower(self, other: Group) -> Group:
        """Add another group, and what follows from that, as what the common cause changed too."""
        return replace(self, follows=(*self.follows, *other.parts))

    @property
    def parts(self) -> tuple[Group, ...]:
        """Itself and all others of the common cause."""
        return (self, *self.together, *self.follows)

    @property
    def members(self) -> list[tuple[Cause, Recompile]]:
        """The causes of all parts, each with its recompile."""
        return [
            pair for part in self.parts for pair in zip(part.causes, part.recompiles, strict=True)
        ]

    @property
    def all_recompiles(self) -> tuple[Recompile, ...]:
        """Those of all parts, each once, in time order."""
        events = {event.id: event for _, event in self.members}
        if len(self.parts) == 1:
            return tuple(events.values())
        return tuple(sorted(events.values(), key=lambda event: (event.process, event.t)))

    @property
    def code(self) -> str:
        return self.id.rule

    @property
    def owner(self) -> str:
        """The owner of the value that changed, by the register."""
        return REGISTER[self.code].owner

    @property
    def changed(self) -> str:
        """The part of it that changed, by the register."""
        return REGISTER[self.code].changed

    @property
    def planned(self) -> bool:
        """Sizes that a warm-up compiled for: intended, and no fault."""
        return self.id.planned

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def variable(self) -> str:
        return self.first.variable

    @property
    def variables(self) -> tuple[str, ...]:
        """Its variable, and those that changed with it."""
        return tuple(dict.fromkeys(part.variable for part in (self, *self.together)))

    @property
    def name(self) -> str:
        """The variable for use in a sentence, with those that changed with it."""
        names = [f"`{variable}`" for variable in self.variables if variable]
        if len(names) > _MAX_NAMED:
            return f"{', '.join(names[:_MAX_NAMED])} and {len(names) - _MAX_NAMED} more"
        return (
            " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "the value"
        )

    @property
    def kind(self) -> str | None:
        return self.first.kind

    @property
    def cost_s(self) -> float | None:
        """Seconds of the recompiles this cause was primary for; None when it never was."""
        seconds = [recompile.seconds for cause, recompile in self.members if cause.primary]
        return sum(seconds) if any(seconds) else None

    @property
    def writers(self) -> list[tuple[Location, Evidence]]:
        """Lines that write the variable, each once: those that were seen to; of recompiles whose
        change was not seen, those that could by their source."""
        seen = dict.fromkeys(
            w for cause in self.causes if cause.write_traced for w in cause.writers
        )
        guesses = (cause.writers for cause in self.causes if not cause.write_traced)
        others = [w for candidates in guesses for w in select_writers(candidates, traced=False)]
        guessed = [writer for writer in dict.fromkeys(others) if writer not in seen]
        return [*((writer, "witnessed") for writer in seen), *((w, "source") for w in guessed)]

    @property
    def values(self) -> list[list[str | None]]:
        """Distinct [expected, actual] pairs, in order of appearance."""
        same = [part for part in self.follows if part.variable == self.variable]
        causes = [cause for part in (self, *same) for cause in part.causes]
        pairs = dict.fromkeys((cause.expected, cause.actual) for cause in causes)
        return [list(pair) for pair in pairs][:_MAX_VALUES]

    @property
    def sizes_changed(self) -> tuple[list[int], bool]:
        """The dimensions that changed, and whether 0 or 1 is among their sizes; not where another
        graph was made for a size that is no constant."""
        changed, small = find_changed_sizes((c.expected, c.actual) for c in self.causes)
        return changed, small and self.id.kind != "size"

    @property
    def constant_dimensions(self) -> list[int]:
        """The dimensions that torch made a constant again at their second size, though it takes
        them for dynamic from then on: a cache entry of an earlier of these recompiles demands its
        size. 0 and 1 are always constants; another module instance has entries of its own."""
        constants: set[int] = set()
        sizes: dict[FrameId, set[tuple[int, str]]] = {}
        for cause, event in zip(self.causes, self.recompiles, strict=True):
            compiled = sizes.setdefault(event.id.frame, set())
            changed = find_changed_dims(cause.expected, cause.actual)
            # The sizes of the tensor that alone prevent some cache entry from being used again.
            demanded = set[tuple[int, str]]()
            for entry in event.entries:
                of_guards = [(g, find_changed_dims(g.expected, g.actual)) for g in entry.guards]
                if all(diffs and PARAMETER not in guard.source for guard, diffs in of_guards):
                    own = [diffs for guard, diffs in of_guards if guard.source == cause.source]
                    demanded |= {(diff.dimension, diff.before) for diffs in own for diff in diffs}
            if not event.entries:
                demanded = {(diff.dimension, diff.before) for diff in changed}
            constants |= {dimension for dimension, _ in compiled & demanded}
            compiled |= {
                (diff.dimension, diff.after)
                for diff in changed
                if diff.after not in ALWAYS_CONSTANT
            }
        return sorted(constants)
