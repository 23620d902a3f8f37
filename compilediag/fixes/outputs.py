"""The outputs of two runs compared: what compiled calls return, what modules hold, randomness.

Numbers of the same kind may differ by rounding, as `torch.testing.assert_close` allows for their
dtype; anything else must be equal. Tensors are compared by a sample, their norm and their digest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compilediag.certify.values import find_difference, order_functions
from compilediag.rules.changes import NOTHING_DECLARED, DeclaredEffects, NumberAsTensor
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import SampledValue

_OUTPUT, _STATE = "output", "state"

# Invariant: no line is part of a key: an edit of the file moves the functions in it.
ValueKey = tuple[
    object, ...
]  #: Process, function, output or state, which of them, and the path within.


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
class ExactValue:
    """A returned tensor in float64, and how far eager is from it."""

    value: SampledValue
    eager_error: float  #: Root mean square, of the sampled elements.


def collect_exact_values(eager: Timeline, precise: Timeline) -> Mapping[ValueKey, ExactValue]:
    """Collect the values in float64 of an eager run that made some. One counts only where the call
    itself returned what it does in the eager run without them."""
    ours, own = _collect_values(eager), _collect_values(precise)
    places = order_functions(call.function for call in precise.sampled_outputs)
    exact_values: dict[ValueKey, ExactValue] = {}
    for call in precise.sampled_outputs:
        key = (call.process, places[call.function], _OUTPUT, call.call)
        paths = [(*key, value.path) for value in call.answers]
        if any(
            path not in ours or find_difference(ours[path][1], own[path][1])[0] for path in paths
        ):
            continue
        for value in call.reference:
            path = (*key, value.path)
            error = compute_rms_error(ours[path][1], value) if path in ours else None
            if error is not None and is_trusted(value, ours[path][1].dtype, error):
                exact_values[path] = ExactValue(value, error)
    return exact_values


UNSTABLE_SHARE = 0.25
"""Where more tensors differ between two unchanged runs, nothing is concluded from the rest."""


def find_unstable_state(before: Timeline, again: Timeline) -> frozenset[ValueKey] | None:
    """Find values of modules that differ between two unchanged runs: parameters whose gradient is
    zero, which Adam moves by its rounding, where sums are added in another order each time; and
    seconds, dates, identifiers. None where anything else differs, an output first of all, or too
    much."""
    ours, theirs = _collect_values(before), _collect_values(again)
    tensors, others = set[ValueKey](), set[ValueKey]()
    for key, (_, value) in ours.items():
        other = theirs.get(key)
        if other is not None and find_difference(value, other[1])[0] is None:
            continue
        if other is None or key[2] != _STATE:
            return None
        same_kind = (value.kind, value.dtype) == (other[1].kind, other[1].dtype)
        if _may_round(value, other[1]):
            tensors.add(_remove_call(key))
        elif same_kind and value.kind != "tensor":
            others.add(_remove_call(key))
        else:
            return None
    every = {_remove_call(key) for key, (_, value) in ours.items() if value.kind == "tensor"}
    return frozenset(tensors | others) if len(tensors) <= UNSTABLE_SHARE * len(every) else None


def _remove_call(key: ValueKey) -> ValueKey:
    """Remove the call after which a value of a module was read from its key."""
    *state, _, path = key
    return (*state, path)


def compare_outputs(
    before: Timeline,
    after: Timeline,
    declared: DeclaredEffects = NOTHING_DECLARED,
    exact: Mapping[ValueKey, ExactValue] | None = None,
    ignored: frozenset[ValueKey] = frozenset(),
) -> OutputComparison:
    """Compare the outputs of `after`, a run with a change, with those of `before`. What it alone
    has makes no difference, nor what the change declares, nor what is `ignored` (see
    `find_unstable_state`); `exact` excuses those between floating tensors that calls returned."""
    ours, theirs = _collect_values(before), _collect_values(after)
    largest, compared, first = 0.0, 0, None
    excused, by_rounding = 0, True
    skipped = sum(not call.complete for call in before.sampled_outputs)
    seen, unseen = set[str](), set[str]()
    for key, (name, value) in ours.items():
        new = theirs.get(key)
        if new is None and _is_gone(key, theirs):
            continue
        if new is None:
            first, by_rounding = first or f"{name} is missing", False
            continue
        origin = str(key[2])
        if origin == _STATE and _remove_call(key) in ignored:
            continue
        now = _convert_to_number(value, new[1], declared.numbers) if origin == _STATE else new[1]
        difference, error = find_difference(value, now)
        rounds = difference is not None and origin == _OUTPUT and _may_round(value, new[1])
        if rounds and exact and key in exact and _is_as_near(new[1], exact[key]):
            difference, error, excused = None, 0.0, excused + 1
        if difference is None and value.kind == "other" and not value.digest:
            skipped += 1
            unseen.add(origin)
            continue
        compared += 1
        if value.kind == "tensor" or (value.kind == "number" and origin == _OUTPUT):
            seen.add(origin)
        if difference is not None:
            first = first or f"{name}: {difference}"
            by_rounding &= rounds
        else:
            largest = max(largest, error)
    conclusive = _OUTPUT in seen or (_STATE in seen and _OUTPUT not in unseen)
    by_rounding &= first is not None
    return OutputComparison(compared, first, largest, skipped, conclusive, by_rounding, excused)


def collect_random_states(timeline: Timeline) -> frozenset[tuple[int, str, str]]:
    """Collect the states of all generators: how far each has come."""
    return frozenset(
        (state.process, *digest) for state in timeline.random_states for digest in state.digests
    )


def _collect_values(timeline: Timeline) -> Mapping[ValueKey, tuple[str, SampledValue]]:
    values: dict[ValueKey, tuple[str, SampledValue]] = {}
    functions = (record.function for record in (*timeline.sampled_outputs, *timeline.held_states))
    places = order_functions(functions)
    for call in timeline.sampled_outputs:
        place = places[call.function]
        name = f"call {call.call} of {call.function.function} returned"
        values.update(_name_values((call.process, place, _OUTPUT, call.call), name, call.answers))
    for held in timeline.held_states:
        place = places[held.function]
        key = (held.process, place, _STATE, held.instance, held.module, held.call)
        when = "at the end" if held.call is None else f"after call {held.call}"
        values.update(_name_values(key, f"{held.module} {when}", held.answers))
    return values


def _name_values(
    key: ValueKey, name: str, values: Iterable[SampledValue]
) -> Iterator[tuple[ValueKey, tuple[str, SampledValue]]]:
    for value in values:
        within = f"{name}{value.path and ', '}{value.path.lstrip('.')}"
        yield (*key, value.path), (within, value)


def _is_gone(key: ValueKey, theirs: Mapping[ValueKey, object]) -> bool:
    """True for a value of an object that the program had dropped before it ended, and that was read
    after calls: torch keeps a module that was compiled, and eager code does not."""
    if key[2] != _STATE:
        return False
    *held, call, _ = key
    ends = [other[-2] for other in theirs if list(other[:-2]) == held]
    return call is None and bool(ends) and None not in ends


def _convert_to_number(
    before: SampledValue, after: SampledValue, numbers: frozenset[NumberAsTensor]
) -> SampledValue:
    """Convert a 0-dim tensor to the number that it was before, where the change says so."""
    if before.kind != "number" or (after.kind, after.shape) != ("tensor", ()):
        return after
    number = NumberAsTensor(before.path.rpartition(".")[2], after.dtype)
    if number not in numbers or not after.values:
        return after
    # Without a digest the value decides: that of the number is made of its text.
    return replace(after, kind="number", dtype=before.dtype, digest="")


_MULTIPLIERS = {"float16": 3.0, "bfloat16": 3.0, "float32": 2.0}
_SMALL, _SMALL_MULTIPLIER = 1000, 3.0
"""How much larger than that of eager the error against float64 may be: the rule by which torch
judges its own backends, `same` in torch/_dynamo/utils.py (`get_multiplier`), without the tolerance
that it adds. In small tensors noise outweighs the error."""

_TRUSTED = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3}
"""Largest error of eager, of the size of the numbers: where it is larger nothing can be told from
it, and nothing is excused."""


def is_trusted(exact: SampledValue, dtype: str, error: float) -> bool:
    """True where eager is near enough to float64 for its error to be a measure."""
    if exact.dtype != "float64" or exact.norm is None:
        return False
    return error <= _TRUSTED[dtype] * exact.norm / math.sqrt(math.prod(exact.shape) or 1)


def _is_as_near(after: SampledValue, exact: ExactValue) -> bool:
    """True where a value is hardly farther from float64 than that of eager. Beside the sampled
    elements all are judged, by the norm: it differs by no more than the error of the whole."""
    error = compute_rms_error(after, exact.value)
    if error is None or after.norm is None or exact.value.norm is None:
        return False
    count = math.prod(after.shape)
    multiplier = _SMALL_MULTIPLIER if count < _SMALL else _MULTIPLIERS[after.dtype]
    allowed = multiplier * exact.eager_error
    apart = abs(after.norm - exact.value.norm)
    return error <= allowed and apart <= allowed * math.sqrt(count)


def compute_rms_error(value: SampledValue, exact: SampledValue) -> float | None:
    """Compute the root-mean-square error of a floating tensor's sample; None where it is none, or
    not all is finite."""
    if not _may_round(value, value) or value.shape != exact.shape or exact.not_finite:
        return None
    pairs = zip(value.values, exact.values, strict=True)
    squares = [(x - y) ** 2 for x, y in pairs if x is not None and y is not None]
    return math.sqrt(sum(squares) / len(squares)) if squares else None


def _may_round(before: SampledValue, after: SampledValue) -> bool:
    """True where both are finite floating tensors of one kind."""
    kinds = {(value.kind, value.dtype, value.shape) for value in (before, after)}
    finite = not before.not_finite and not after.not_finite
    return len(kinds) == 1 and before.kind == "tensor" and before.dtype in _MULTIPLIERS and finite
