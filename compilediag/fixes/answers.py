"""Whether two runs computed the same: outputs of compiled calls, what modules hold, randomness.

Numbers of the same kind may differ by rounding, as `torch.testing.assert_close` allows for their
dtype; anything else must be equal. Tensors are compared by a sample, their norm and their digest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compilediag.fixes.changes import Declared, NumberAsTensor
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Answer, Location

_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    "float": (1e-7, 1e-7),
}
"""Relative and absolute, of `torch.testing.assert_close`; "float" is Python's. Any other dtype must
be equal bit for bit."""

_OUTPUT, _STATE = "output", "state"

NOTHING_DECLARED = Declared()

Key = tuple[object, ...]
"""Process, function, output or state, which of them, and the path within."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run against another."""

    compared: int
    """Values that both have."""
    difference: str | None
    """The first one; None where all are the same."""
    largest: float
    """The greatest difference between two numbers, of those that are the same."""
    not_compared: int = 0
    """Values of kinds of which no content is recorded, and outputs with too many values."""
    conclusive: bool = False
    """Numbers were compared that the program computed: of outputs, or of what modules hold where
    its functions return none."""


def compare(before: Timeline, after: Timeline, declared: Declared = NOTHING_DECLARED) -> Comparison:
    """The answers of `after` against those of `before`. What `after` alone has makes no
    difference, nor what the change between them declares."""
    ours, theirs = _answers(before), _answers(after)
    largest, compared, first = 0.0, 0, None
    skipped = sum(not call.complete for call in before.answers)
    seen, unseen = set[str](), set[str]()
    for key, (name, answer) in ours.items():
        other = theirs.get(key)
        if other is None:
            first = first or f"{name} is missing"
            continue
        origin = str(key[2])
        if origin == _STATE and _is_later(key, declared, ours, theirs):
            continue
        now = _as_before(answer, other[1], declared.numbers) if origin == _STATE else other[1]
        difference, error = _difference(answer, now)
        if difference is None and _is_open(answer):
            skipped += 1
            unseen.add(origin)
            continue
        compared += 1
        if answer.kind == "tensor" or (answer.kind == "number" and origin == _OUTPUT):
            seen.add(origin)
        if difference is not None:
            first = first or f"{name}: {difference}"
        else:
            largest = max(largest, error)
    conclusive = _OUTPUT in seen or (_STATE in seen and _OUTPUT not in unseen)
    return Comparison(compared, first, largest, skipped, conclusive)


def randomness(timeline: Timeline) -> frozenset[tuple[int, str, str]]:
    """How far each generator has come."""
    return frozenset((each.process, each.generator, each.digest) for each in timeline.random_states)


def _answers(timeline: Timeline) -> Mapping[Key, tuple[str, Answer]]:
    found: dict[Key, tuple[str, Answer]] = {}
    functions = (each.function for each in (*timeline.answers, *timeline.held_states))
    places = functions_by_order(functions)
    for call in timeline.answers:
        place = places[call.function]
        name = f"call {call.call} of {call.function.function} returned"
        found.update(_named((call.process, place, _OUTPUT, call.call), name, call.answers))
    for held in timeline.held_states:
        place = places[held.function]
        key = (held.process, place, _STATE, held.instance, held.module, held.call)
        when = "at the end" if held.call is None else f"after call {held.call}"
        found.update(_named(key, f"{held.module} {when}", held.answers))
    return found


def functions_by_order(functions: Iterable[Location]) -> dict[Location, tuple[str, str, int]]:
    """Each function by file, name, and its place among those of the same name: lines are others
    where a file was edited."""
    found: dict[Location, tuple[str, str, int]] = {}
    often: Counter[tuple[str, str]] = Counter()
    for each in sorted(set(functions), key=lambda place: (place.file, place.line, place.function)):
        name = each.file, each.function
        found[each] = *name, often[name]
        often[name] += 1
    return found


def _named(
    key: Key, name: str, answers: Iterable[Answer]
) -> Iterator[tuple[Key, tuple[str, Answer]]]:
    for answer in answers:
        yield (
            (*key, answer.path),
            (f"{name}{answer.path and ', '}{answer.path.lstrip('.')}", answer),
        )


def _is_later(
    key: Key, declared: Declared, ours: Mapping[Key, object], theirs: Mapping[Key, object]
) -> bool:
    """Whether it may differ until the end, where it is compared."""
    *state, call, path = key
    at_end = (*state, None, path)
    named = str(path).rpartition(".")[2] in declared.grown
    return named and call is not None and at_end in ours and at_end in theirs


def _as_before(before: Answer, after: Answer, numbers: frozenset[NumberAsTensor]) -> Answer:
    """A 0-dim tensor as the number that it was before, where the change says that it is one."""
    if before.kind != "number" or (after.kind, after.shape) != ("tensor", ()):
        return after
    item = NumberAsTensor(before.path.rpartition(".")[2], after.dtype)
    if item not in numbers or not after.values:
        return after
    # Without a digest the value decides: that of the number is made of its text.
    return replace(after, kind="number", dtype=before.dtype, digest="")


def _is_open(answer: Answer) -> bool:
    """Nothing of its content is recorded."""
    return answer.kind == "other" and not answer.digest


def _difference(before: Answer, after: Answer) -> tuple[str | None, float]:
    """What differs, if anything does, and by how much the numbers do."""
    kinds = [(item.kind, item.dtype, item.shape) for item in (before, after)]
    if kinds[0] != kinds[1]:
        return f"{_kind(before)} → {_kind(after)}", math.inf
    if before.digest and before.digest == after.digest:
        return None, 0.0
    tolerance = _TOLERANCES.get(before.dtype)
    if tolerance is None:
        if before.digest and after.digest:
            return _shown(before, after), math.inf
        same = before.values == after.values
        return (None, 0.0) if same else (_shown(before, after), math.inf)
    if before.not_finite != after.not_finite:
        return f"{before.not_finite} → {after.not_finite} values that are not finite", math.inf
    return _numbers(before, after, *tolerance)


def _numbers(
    before: Answer, after: Answer, relative: float, absolute: float
) -> tuple[str | None, float]:
    """Absolute tolerance grows with the largest number: sums of large numbers round like them."""
    absolute *= max(1.0, before.largest or 0.0)
    error = 0.0
    for old, new in zip(before.values, after.values, strict=True):
        if old is None or new is None:
            if old is not new:
                return f"{_number(old)} → {_number(new)}", math.inf
            continue
        error = max(error, abs(new - old))
        if abs(new - old) > absolute + relative * abs(old):
            return f"{_number(old)} → {_number(new)}", abs(new - old)
    if before.norm is not None and after.norm is not None:
        count = math.prod(before.shape) if before.shape else 1
        if abs(after.norm - before.norm) > absolute * math.sqrt(count) + relative * before.norm:
            text = f"norm {_number(before.norm)} → {_number(after.norm)}"
            return text, abs(after.norm - before.norm)
    return None, error


def _kind(answer: Answer) -> str:
    shape = str(list(answer.shape)) if answer.kind == "tensor" else ""
    return f"{answer.dtype or answer.kind}{shape}"


def _shown(before: Answer, after: Answer) -> str:
    if before.values and after.values and before.values != after.values:
        pairs = zip(before.values, after.values, strict=False)
        old, new = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{_number(old)} → {_number(new)}"
    return f"another {before.dtype}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"
