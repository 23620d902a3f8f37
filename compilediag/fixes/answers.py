"""The outputs of two runs compared: what compiled calls return, what modules hold, randomness.

Numbers of the same kind may differ by rounding, as `torch.testing.assert_close` allows for their
dtype; anything else must be equal. Tensors are compared by a sample, their norm and their digest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compilediag.rules.changes import NOTHING_DECLARED, Declared, NumberAsTensor
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

# Invariant: no line is part of a key: an edit of the file moves the functions in it.
Key = tuple[object, ...]  #: Process, function, output or state, which of them, and the path within.


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One run against another."""

    compared: int  #: Values that both have.
    difference: str | None  #: The first one; None where all are the same.
    largest: float  #: The greatest difference between two numbers, of those that are the same.
    not_compared: int = 0  #: Values without recorded content, outputs with too many values.
    #: Computed numbers were compared: outputs, or what modules hold where none are returned.
    conclusive: bool = False
    #: Something differs, and all that does are floating tensors that compiled calls returned.
    by_rounding: bool = False
    excused: int = 0  #: Of these, those that are as near to the call in float64 as eager is.


@dataclass(frozen=True, slots=True)
class Exact:
    """A returned tensor in float64, and how far eager is from it."""

    answer: Answer
    eager_error: float  #: Root mean square, of the sampled elements.


def exact_answers(eager: Timeline, precise: Timeline) -> Mapping[Key, Exact]:
    """Collect the values in float64 of an eager run that made some. One counts only where the call
    itself returned what it does in the eager run without them."""
    ours, own = _answers(eager), _answers(precise)
    places = functions_by_order(call.function for call in precise.answers)
    found: dict[Key, Exact] = {}
    for call in precise.answers:
        key = (call.process, places[call.function], _OUTPUT, call.call)
        paths = [(*key, answer.path) for answer in call.answers]
        if any(path not in ours or difference_of(ours[path][1], own[path][1])[0] for path in paths):
            continue
        for answer in call.reference:
            path = (*key, answer.path)
            error = root_mean_square(ours[path][1], answer) if path in ours else None
            if error is not None and is_trusted(answer, ours[path][1].dtype, error):
                found[path] = Exact(answer, error)
    return found


UNSTABLE_SHARE = 0.25
"""Where more tensors differ between two unchanged runs, nothing is concluded from the rest."""


def unstable(before: Timeline, again: Timeline) -> frozenset[Key] | None:
    """Find values of modules that differ between two unchanged runs: parameters whose gradient is
    zero, which Adam moves by its rounding, where sums are added in another order each time; and
    seconds, dates, identifiers. None where anything else differs, an output first of all, or too
    much."""
    ours, theirs = _answers(before), _answers(again)
    tensors, others = set[Key](), set[Key]()
    for key, (_, answer) in ours.items():
        other = theirs.get(key)
        if other is not None and difference_of(answer, other[1])[0] is None:
            continue
        if other is None or key[2] != _STATE:
            return None
        same_kind = (answer.kind, answer.dtype) == (other[1].kind, other[1].dtype)
        if _may_round(answer, other[1]):
            tensors.add(_at_any_call(key))
        elif same_kind and answer.kind != "tensor":
            others.add(_at_any_call(key))
        else:
            return None
    every = {_at_any_call(key) for key, (_, answer) in ours.items() if answer.kind == "tensor"}
    return frozenset(tensors | others) if len(tensors) <= UNSTABLE_SHARE * len(every) else None


def _at_any_call(key: Key) -> Key:
    """Remove the call after which a value of a module was read from its key."""
    *state, _, path = key
    return (*state, path)


def compare(
    before: Timeline,
    after: Timeline,
    declared: Declared = NOTHING_DECLARED,
    exact: Mapping[Key, Exact] | None = None,
    ignored: frozenset[Key] = frozenset(),
) -> OutputComparison:
    """Compare the outputs of `after`, a run with a change, with those of `before`. What it alone
    has makes no difference, nor what the change declares, nor what is `ignored` (see
    `find_unstable_state`); `exact` excuses those between floating tensors that calls returned."""
    ours, theirs = _answers(before), _answers(after)
    largest, compared, first = 0.0, 0, None
    excused, by_rounding = 0, True
    skipped = sum(not call.complete for call in before.answers)
    seen, unseen = set[str](), set[str]()
    for key, (name, answer) in ours.items():
        other = theirs.get(key)
        if other is None and _is_gone(key, theirs):
            continue
        if other is None:
            first, by_rounding = first or f"{name} is missing", False
            continue
        origin = str(key[2])
        if origin == _STATE and _at_any_call(key) in ignored:
            continue
        now = _as_before(answer, other[1], declared.numbers) if origin == _STATE else other[1]
        difference, error = difference_of(answer, now)
        rounds = difference is not None and origin == _OUTPUT and _may_round(answer, other[1])
        if rounds and exact and key in exact and _is_as_near(other[1], exact[key]):
            difference, error, excused = None, 0.0, excused + 1
        if difference is None and answer.kind == "other" and not answer.digest:
            skipped += 1
            unseen.add(origin)
            continue
        compared += 1
        if answer.kind == "tensor" or (answer.kind == "number" and origin == _OUTPUT):
            seen.add(origin)
        if difference is not None:
            first = first or f"{name}: {difference}"
            by_rounding &= rounds
        else:
            largest = max(largest, error)
    conclusive = _OUTPUT in seen or (_STATE in seen and _OUTPUT not in unseen)
    by_rounding &= first is not None
    return OutputComparison(compared, first, largest, skipped, conclusive, by_rounding, excused)


def randomness(timeline: Timeline) -> frozenset[tuple[int, str, str]]:
    """Collect the states of all generators: how far each has come."""
    return frozenset(
        (each.process, *digest) for each in timeline.random_states for digest in each.digests
    )


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
    """Order functions by file, name, and place among those of the same name: lines are others where
    a file was edited."""
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
        within = f"{name}{answer.path and ', '}{answer.path.lstrip('.')}"
        yield (*key, answer.path), (within, answer)


def _is_gone(key: Key, theirs: Mapping[Key, object]) -> bool:
    """True for a value of an object that the program had dropped before it ended, and that was read
    after calls: torch keeps a module that was compiled, and eager code does not."""
    if key[2] != _STATE:
        return False
    *held, call, _ = key
    ends = [each[-2] for each in theirs if list(each[:-2]) == held]
    return call is None and bool(ends) and None not in ends


def _as_before(before: Answer, after: Answer, numbers: frozenset[NumberAsTensor]) -> Answer:
    """Convert a 0-dim tensor to the number that it was before, where the change says so."""
    if before.kind != "number" or (after.kind, after.shape) != ("tensor", ()):
        return after
    item = NumberAsTensor(before.path.rpartition(".")[2], after.dtype)
    if item not in numbers or not after.values:
        return after
    # Without a digest the value decides: that of the number is made of its text.
    return replace(after, kind="number", dtype=before.dtype, digest="")


def difference_of(before: Answer, after: Answer) -> tuple[str | None, float]:
    """Find the first difference between two values.

    Returns:
        The difference in words, None where they are the same within tolerance; and the greatest
        absolute difference of their numbers, infinity where they cannot be subtracted.
    """
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
    """Compare numbers. The absolute tolerance grows with the largest number: sums of large numbers
    round like them."""
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


_MULTIPLIERS = {"float16": 3.0, "bfloat16": 3.0, "float32": 2.0}
_SMALL, _SMALL_MULTIPLIER = 1000, 3.0
"""How much larger than that of eager the error against float64 may be: the rule by which torch
judges its own backends, `same` in torch/_dynamo/utils.py (`get_multiplier`), without the tolerance
that it adds. In small tensors noise outweighs the error."""

_TRUSTED = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3}
"""Largest error of eager, of the size of the numbers: where it is larger nothing can be told from
it, and nothing is excused."""


def is_trusted(exact: Answer, dtype: str, error: float) -> bool:
    """True where eager is near enough to float64 for its error to be a measure."""
    if exact.dtype != "float64" or exact.norm is None:
        return False
    return error <= _TRUSTED[dtype] * exact.norm / math.sqrt(math.prod(exact.shape) or 1)


def _is_as_near(after: Answer, exact: Exact) -> bool:
    """True where a value is hardly farther from float64 than that of eager. Beside the sampled
    elements all are judged, by the norm: it differs by no more than the error of the whole."""
    error = root_mean_square(after, exact.answer)
    if error is None or after.norm is None or exact.answer.norm is None:
        return False
    count = math.prod(after.shape)
    multiplier = _SMALL_MULTIPLIER if count < _SMALL else _MULTIPLIERS[after.dtype]
    allowed = multiplier * exact.eager_error
    apart = abs(after.norm - exact.answer.norm)
    return error <= allowed and apart <= allowed * math.sqrt(count)


def root_mean_square(answer: Answer, exact: Answer) -> float | None:
    """Compute the root-mean-square error of a floating tensor's sample; None where it is none, or
    not all is finite."""
    if not _may_round(answer, answer) or answer.shape != exact.shape or exact.not_finite:
        return None
    pairs = zip(answer.values, exact.values, strict=True)
    squares = [(x - y) ** 2 for x, y in pairs if x is not None and y is not None]
    return math.sqrt(sum(squares) / len(squares)) if squares else None


def _may_round(before: Answer, after: Answer) -> bool:
    """True where both are finite floating tensors of one kind."""
    kinds = {(item.kind, item.dtype, item.shape) for item in (before, after)}
    finite = not before.not_finite and not after.not_finite
    return len(kinds) == 1 and before.kind == "tensor" and before.dtype in _MULTIPLIERS and finite


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
