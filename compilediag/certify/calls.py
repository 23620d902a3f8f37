"""Outermost compiled calls of two executions, every one compared with its own by its digest."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from compilediag.certify.values import TOLERANCES, get_cap, is_rounding
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CALL_FORMAT, NOT_COMPARED, CallDigest, Location

ProcessKey = tuple[int, int]
"""Rank, 0 without a launcher, and which of its processes with torch."""

CallableKey = tuple[str, str, int]
"""File, name, and which of those: a callable that several threads call is one in each."""

GROWTH = 4.0
"""Rounding grows from call to call by no more than so many times. What begins as small as that may
be rounding or not, where eager does not tell: on a backend that computes like eager it never does.
"""

_PRECISION, _OWN_PRECISION = "another precision: ", "as it was, "


class RecordedCall(NamedTuple):
    """One outermost call of a compiled callable."""

    function: Location
    structure: str
    digest: CallDigest
    is_eager: bool = False  #: No graph ran in it.


@dataclass(slots=True)
class CallComparison:
    """The calls of one execution against those of another, counted while they are compared."""

    mismatch: str | None = None  #: Why they do not correspond; None where they do.
    other_precision: bool = False  #: They differ in a dtype.
    compared: int = 0  #: Calls that returned something to compare.
    difference: str | None = None  #: The first one; None where all are equal.
    size: float = 0.0  #: Of that one, relative.
    may_round: bool = False  #: It is small enough to be rounding.
    at_start: bool = False  #: It is in the first call of a callable.
    measured: bool = True  #: The eager execution tells how much rounding there is at it.
    rounded: int = 0  #: Calls that differ by more than the tolerance, and no more than eager does.
    exact: bool = True  #: All are equal bit for bit, as far as digests show.
    opaque: int = 0  #: Calls with values that were not compared.
    unseen: int = 0  #: Of those, calls with nothing beside.
    largest: float = 0.0  #: Difference that is rounding, or begins as such.
    is_slow: bool = False  #: Calls differ by rounding first, and then by more without a jump.
    #: Callables of the second execution by those of the first, where the calls correspond.
    functions: Mapping[Location, Location] = field(default_factory=dict[Location, Location])

    @property
    def own_precision(self) -> bool:
        """True where they differ in a dtype as calls of the first do, compiled and eager."""
        return (self.mismatch or "").startswith(_OWN_PRECISION)

    @property
    def equal(self) -> bool:
        """True where all calls correspond and are equal."""
        return self.mismatch is None and self.difference is None


def identify_processes(timeline: Timeline) -> dict[int, ProcessKey]:
    """Key the processes with torch by what they are in every execution."""
    keys: dict[int, ProcessKey] = {}
    for process in timeline.processes:
        if process.torch is not None:
            rank = process.rank or 0
            keys[process.index] = rank, sum(key[0] == rank for key in keys.values())
    return keys


def read_calls(timeline: Timeline) -> dict[ProcessKey, dict[CallableKey, list[RecordedCall]]]:
    """Read all recorded calls of each process by callable, each in its order."""
    keys = identify_processes(timeline)
    calls: dict[ProcessKey, dict[CallableKey, list[RecordedCall]]] = {}
    names: dict[ProcessKey, tuple[list[Location], list[str], list[CallableKey]]] = {}
    for record in timeline.recorded_calls:
        process = keys.get(record.process, (0, 0))
        functions, structures, callables = names.setdefault(process, ([], [], []))
        for function in record.functions:
            name = function.file, function.function
            callables.append((*name, sum(key[:2] == name for key in callables)))
        functions += record.functions
        structures += record.structures
        made = calls.setdefault(process, {})
        rows, eager = base64.b64decode(record.calls), {*record.eager}
        for at, row in enumerate(struct.iter_unpack(CALL_FORMAT, rows)):
            number, structure, total, weighted, magnitude, exact = row
            digest = CallDigest(total, weighted, magnitude, exact)
            call = RecordedCall(functions[number], structures[structure], digest, at in eager)
            made.setdefault(callables[number], []).append(call)
    return calls


def compare_calls(
    before: Timeline, after: Timeline, eager: Timeline | None = None
) -> CallComparison:
    """Compare the calls of two executions, those of each callable in their order, whatever it is
    called in each. `eager`: the first one without compiling; a difference is rounding if it is at
    most three times the largest that eager has shown until then, of the same callable."""
    old, new = read_calls(before), read_calls(after)
    reference = read_calls(eager) if eager is not None else None
    pairs: list[tuple[ProcessKey, CallableKey, CallableKey]] = []
    for process in sorted({*old, *new}):
        ours, theirs = old.get(process, {}), new.get(process, {})
        paired = _pair_callables(ours, theirs)
        if isinstance(paired, str):
            return CallComparison(paired, paired.startswith(_PRECISION), exact=False)
        pairs += [(process, *pair) for pair in paired]
    tally = CallComparison(
        functions={old[at][a][0].function: new[at][b][0].function for at, a, b in pairs}
    )
    for process, one, other in pairs:
        ours, theirs = old[process][one], new[process][other]
        eager_calls = None if reference is None else reference.get(process, {}).get(one, [])
        if eager_calls and _find_mismatch(ours, eager_calls) is not None:
            eager_calls = []
        _compare_callable(ours, theirs, eager_calls, tally)
        if tally.difference is not None and not tally.is_slow:
            break
    return tally


def _pair_callables(
    ours: Mapping[CallableKey, Sequence[RecordedCall]],
    theirs: Mapping[CallableKey, Sequence[RecordedCall]],
) -> list[tuple[CallableKey, CallableKey]] | str:
    """Pair the callables of two executions: those of the same name, the others in the order in
    which they were first called; or say why their calls do not correspond."""
    rest = [key for key in ours if key not in theirs], [key for key in theirs if key not in ours]
    if len(rest[0]) != len(rest[1]):
        names = (", ".join(sorted(key[1] for key in keys)) or "none" for keys in rest)
        return f"compiled callables {' → '.join(names)}"
    pairs = [(key, key) for key in ours if key in theirs]
    pairs += zip(*rest, strict=True)
    problems = (_find_mismatch(ours[one], theirs[other]) for one, other in pairs)
    return next((problem for problem in problems if problem), pairs)


def _find_mismatch(ours: Sequence[RecordedCall], theirs: Sequence[RecordedCall]) -> str | None:
    name = ours[0].function.function
    if len(ours) != len(theirs):
        return f"calls of {name} {len(ours)} → {len(theirs)}"
    for number, (call, other) in enumerate(zip(ours, theirs, strict=True)):
        if not is_same_structure(call.structure, other.structure):
            dtypes = _find_other_dtype(call.structure, other.structure)
            if dtypes is not None:
                own = _explain_own_precision(ours, number, other)
                return own or f"{_PRECISION}call {number} of {name} returns {dtypes}"
            return f"call {number} of {name} returns {call.structure} → {other.structure}"
    return None


def _explain_own_precision(
    ours: Sequence[RecordedCall], number: int, other: RecordedCall
) -> str | None:
    """Explain that a call returns another dtype in the new state, but one that the old state's own
    calls do where they are eager and this one is not, or the reverse; None where they do not."""
    call, new = ours[number], read_structure(other.structure).dtypes
    how, there = ("eager", "compiled") if call.is_eager else ("compiled", "eager")
    old, _, now = (_find_other_dtype(call.structure, other.structure) or "").partition(" → ")
    for at, like in enumerate(ours):
        if like.is_eager != call.is_eager and read_structure(like.structure).dtypes == new:
            return (
                f"{_OWN_PRECISION}{call.function.function} returns {old} where {how} (call "
                f"{number}) and {now} where {there} (call {at}): an edit that compiles both can "
                f"equal one of them only; call {number} now returns {now}. Make the dtype the same "
                "first, by itself; then record that state and certify the rest against it"
            )
    return None


def _compare_callable(
    ours: Sequence[RecordedCall],
    theirs: Sequence[RecordedCall],
    eager: Sequence[RecordedCall] | None,
    tally: CallComparison,
) -> None:
    """Compare the calls of one callable, and add them to what was compared before. `eager`: its
    calls without compiling, empty where they do not correspond."""
    largest = 0.0
    # Where eager is itself farther away than rounding can be, it measures nothing from then on.
    yardstick: float | None = 0.0 if eager else None
    for number, (call, other) in enumerate(zip(ours, theirs, strict=True)):
        structure = read_structure(call.structure)
        tally.opaque += not structure.is_whole
        tally.unseen += not structure.is_whole and not structure.leaves
        tally.compared += bool(structure.leaves)
        if eager and yardstick is not None:
            yardstick = max(yardstick, measure_difference(call, eager[number]))
            yardstick = yardstick if yardstick <= structure.cap else None
        if call.digest == other.digest:
            continue
        tally.exact = False
        size = measure_difference(call, other)
        if not size:
            continue
        is_slow = size <= GROWTH * (largest + structure.tolerance)
        is_excused = yardstick is not None and is_rounding(size, yardstick, structure.cap)
        if is_slow or is_excused:
            largest = max(largest, size)
        if is_excused:
            tally.rounded += 1
        elif tally.difference is None or not is_slow:
            text = f"call {number} of {call.function.function} returned something else"
            by = f" (its digest by {size:.1g})" if math.isfinite(size) else ""
            tally.difference, tally.size, tally.is_slow = f"{text}{by}", size, is_slow
            tally.at_start, tally.may_round = number == 0, size <= structure.cap
            tally.measured = yardstick is not None or eager is None
            if not is_slow:
                break
    tally.largest = max(largest, tally.largest)


# --- structures and digests -----------------------------------------------------------------------

_OPAQUE = re.compile(r"opaque:\w+")
_ATTRIBUTES = re.compile(r"\w+\{[^{}]*\}")
_LEAF = re.compile(r"\b(bfloat16|float\w*|complex\d+|u?int\d*|bool)\b(\[[\d,]*\])?")

_AS_NUMBERS = {"float32[]": "float", "int64[]": "int", "bool[]": "bool"}
"""Tensors of one element whose digest is that of Python's number."""

_MOST_TOLERATED = TOLERANCES["bfloat16"][0]
"""Of a digest: with more, one wrong row of a hundred would not be seen."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Structure of what a call returns, without values."""

    text: str  #: With numbers in place of tensors of one element.
    leaves: tuple[str, ...]  #: Numbers and tensors, in their order.
    dtypes: tuple[str, ...]  #: Of these.
    tolerance: float  #: Of its digest, relative: by the coarsest dtype.
    cap: float  #: Largest relative difference that can be rounding.
    is_whole: bool  #: All of it is compared.


@lru_cache(maxsize=4096)
def read_structure(text: str) -> Structure:
    """Read the structure of a recorded call."""
    leaves = tuple(match[0] for match in _LEAF.finditer(text))
    dtypes = tuple(leaf.partition("[")[0] for leaf in leaves)
    # Python's own number may stand for a tensor in the other state.
    known = [TOLERANCES["float32" if d == "float" else d][0] for d in dtypes if d in TOLERANCES]
    plain = _LEAF.sub(lambda match: _AS_NUMBERS.get(match[0], match[0]), text)
    plain = _OPAQUE.sub("opaque", plain)  # not compared, whatever its type
    is_whole = "opaque:" not in text and not text.startswith(NOT_COMPARED)
    tolerance = min(4 * max(known, default=0.0), _MOST_TOLERATED)
    return Structure(plain, leaves, dtypes, tolerance, get_cap(dtypes), is_whole)


def is_same_structure(before: str, after: str) -> bool:
    """True where values of two structures can be compared by their digests."""
    return before == after or read_structure(before).text == read_structure(after).text


def is_same_beside_objects(before: str, after: str) -> bool:
    """True where structures differ in attributes of objects alone, of which an edit may keep
    others: what else they hold is not compared then."""
    return _drop_attributes(before) == _drop_attributes(after)


def _drop_attributes(structure: str) -> str:
    text, count = read_structure(structure).text, 1
    while count:
        text, count = _ATTRIBUTES.subn("opaque", text)
    return text


def _find_other_dtype(before: str, after: str) -> str | None:
    """Find a tensor that has the same shape in another structure, and another dtype."""
    leaves = read_structure(before).leaves, read_structure(after).leaves
    if len(leaves[0]) != len(leaves[1]):
        return None
    for old, new in zip(*leaves, strict=True):
        (dtype, _, shape), (now, _, other) = old.partition("["), new.partition("[")
        if shape and shape == other and dtype != now:
            return f"{old} → {new}"
    return None


def measure_difference(call: RecordedCall, other: RecordedCall) -> float:
    """Measure how far two digests are apart, relative to their size: 0 within tolerance, infinite
    where they differ in what must be equal."""
    if call.digest.exact != other.digest.exact:
        return math.inf
    tolerance = max(read_structure(one.structure).tolerance for one in (call, other))
    largest = 0.0
    for name in ("total", "weighted", "magnitude"):
        old, new = getattr(call.digest, name), getattr(other.digest, name)
        if old == new or (math.isnan(old) and math.isnan(new)):
            continue
        size = abs(new - old) / (1 + abs(old))
        largest = max(largest, size) if math.isfinite(size) else math.inf
    return largest if largest > tolerance else 0.0
