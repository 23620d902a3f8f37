"""Outermost compiled calls of two executions, every one compared with its own by its digest."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from compilediag.certify.values import TOLERANCES, get_cap, is_rounding
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CALL_FORMAT, NOT_COMPARED, CallDigest, Location

ProcessKey = tuple[int, int]
"""Rank, 0 without a launcher, and which of its processes with torch."""


class RecordedCall(NamedTuple):
    """One outermost call of a compiled callable."""

    function: Location
    structure: str
    digest: CallDigest


@dataclass(frozen=True, slots=True)
class CallComparison:
    """The calls of one execution against those of another."""

    compared: int = 0
    mismatch: str | None = None  #: Why they do not correspond; None where they do.
    difference: str | None = None  #: The first one; None where all are equal.
    size: float = 0.0  #: Of that one, relative.
    at_start: bool = False  #: It is in the first call of a process.
    measured: bool = True  #: The eager execution tells how much rounding there is at it.
    rounded: int = 0  #: Calls that differ by more than the tolerance, and no more than eager does.
    exact: bool = True  #: All are equal bit for bit, as far as digests show.
    opaque: int = 0  #: Calls with values that were not compared.
    #: Callables of the second execution by those of the first, where the calls correspond.
    functions: Mapping[Location, Location] = field(default_factory=dict[Location, Location])

    @property
    def equal(self) -> bool:
        """True where all calls correspond and are equal."""
        return self.mismatch is None and self.difference is None


def key_processes(timeline: Timeline) -> dict[int, ProcessKey]:
    """Key the processes with torch by what they are in every execution."""
    keys: dict[int, ProcessKey] = {}
    for process in timeline.processes:
        if process.torch is not None:
            rank = process.rank or 0
            keys[process.index] = rank, sum(key[0] == rank for key in keys.values())
    return keys


def read_calls(timeline: Timeline) -> dict[ProcessKey, list[RecordedCall]]:
    """Read all recorded calls of each process that made some, in their order."""
    keys = key_processes(timeline)
    calls: dict[ProcessKey, list[RecordedCall]] = {}
    names: dict[ProcessKey, tuple[list[Location], list[str]]] = {}
    for record in timeline.recorded_calls:
        key = keys.get(record.process, (0, 0))
        functions, structures = names.setdefault(key, ([], []))
        functions += record.functions
        structures += record.structures
        calls.setdefault(key, []).extend(
            RecordedCall(functions[function], structures[structure], CallDigest(*digest))
            for function, structure, *digest in struct.iter_unpack(
                CALL_FORMAT, base64.b64decode(record.calls)
            )
        )
    return calls


def compare_calls(
    before: Timeline, after: Timeline, eager: Timeline | None = None
) -> CallComparison:
    """Compare the calls of two executions in their order, whatever the callables are called.
    `eager`: the first one without compiling; a difference is rounding if it is at most three times
    the largest that eager has shown until then, of the same callable."""
    old, new = read_calls(before), read_calls(after)
    reference = read_calls(eager) if eager is not None else {}
    functions: dict[Location, Location] = {}
    compared, rounded, opaque, exact = 0, 0, 0, True
    for key in sorted({*old, *new}):
        ours, theirs = old.get(key, []), new.get(key, [])
        mismatch = _find_mismatch(ours, theirs, functions)
        if mismatch is not None:
            return CallComparison(mismatch=mismatch, exact=False)
        yards = _Yardsticks()
        eager_calls = reference.get(key, [])
        if _find_mismatch(ours, eager_calls, {}) is not None:
            eager_calls = []
        for number, (call, other, measure) in enumerate(zip_longest(ours, theirs, eager_calls)):
            if call.structure.startswith(NOT_COMPARED):
                opaque += 1
                continue
            opaque += "opaque:" in call.structure
            compared += 1
            yards.add(call, measure)
            if call.digest == other.digest:
                continue
            exact = False
            size = measure_difference(call, other)
            if not size:
                continue
            if not yards.excuse(call, size):
                text = f"call {number} of {call.function.function} returned something else"
                if math.isfinite(size):
                    text = f"{text} (by {size:.1g} of its size)"
                known = bool(yards.largest.get(call.function))
                return CallComparison(
                    compared, None, text, size, number == 0, known, rounded, exact=False
                )
            rounded += 1
    return CallComparison(
        compared, rounded=rounded, exact=exact, opaque=opaque, functions=functions
    )


class _Yardsticks:
    """The largest difference between compiled and eager so far, by callable. Where eager is itself
    farther away than rounding can be, it measures nothing from then on: None."""

    def __init__(self) -> None:
        self.largest: dict[Location, float | None] = {}

    def add(self, call: RecordedCall, eager: RecordedCall | None) -> None:
        largest = self.largest.get(call.function, 0.0)
        if eager is None or largest is None:
            return
        size = measure_difference(call, eager)
        known = size <= read_structure(call.structure).cap
        self.largest[call.function] = max(largest, size) if known else None

    def excuse(self, call: RecordedCall, size: float) -> bool:
        largest = self.largest.get(call.function)
        return largest is not None and is_rounding(
            size, largest, read_structure(call.structure).cap
        )


def _find_mismatch(
    ours: Sequence[RecordedCall],
    theirs: Sequence[RecordedCall],
    functions: dict[Location, Location],
) -> str | None:
    """Find why calls do not correspond, and note which callable stands for which."""
    if len(ours) != len(theirs):
        return f"compiled calls {len(ours)} → {len(theirs)}"
    taken = {new: old for old, new in functions.items()}
    for number, (call, other) in enumerate(zip(ours, theirs, strict=True)):
        new = functions.setdefault(call.function, other.function)
        old = taken.setdefault(other.function, call.function)
        if (old, new) != (call.function, other.function):
            return f"call {number} is one of {other.function.function}, not of {new.function}"
        if not is_same_structure(call.structure, other.structure):
            name = call.function.function
            return f"call {number} of {name} returns {call.structure} → {other.structure}"
    return None


# --- structures and digests -----------------------------------------------------------------------

_LEAF = re.compile(r"\b(bfloat16|float\w*|complex\d+|u?int\d*|bool)\b(\[[\d,]*\])?")

_AS_NUMBERS = {"float32[]": "float", "int64[]": "int", "bool[]": "bool"}
"""Tensors of one element whose digest is that of Python's number."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What a call returns, without values."""

    text: str  #: With numbers in place of tensors of one element.
    leaves: tuple[str, ...]  #: Numbers and tensors, in their order.
    tolerance: float  #: Relative: that of the coarsest dtype.
    cap: float  #: Largest relative difference that can be rounding.


@lru_cache(maxsize=4096)
def read_structure(text: str) -> Structure:
    """Read the structure of a recorded call."""
    leaves = tuple(match[0] for match in _LEAF.finditer(text))
    dtypes = {leaf.partition("[")[0] for leaf in leaves}
    # Python's own number may stand for a tensor in the other state.
    known = [TOLERANCES["float32" if d == "float" else d][0] for d in dtypes if d in TOLERANCES]
    plain = _LEAF.sub(lambda match: _AS_NUMBERS.get(match[0], match[0]), text)
    return Structure(plain, leaves, max(known, default=0.0), get_cap(dtypes))


def is_same_structure(before: str, after: str) -> bool:
    """True where values of two structures can be compared by their digests."""
    return before == after or read_structure(before).text == read_structure(after).text


def find_other_dtype(before: Timeline, after: Timeline) -> str | None:
    """Find a call that returns a tensor of the same shape in another dtype: another precision."""
    old, new = read_calls(before), read_calls(after)
    for key in old.keys() & new.keys():
        for call, other in zip(old[key], new[key], strict=False):
            if call.structure == other.structure:
                continue
            leaves = read_structure(call.structure).leaves, read_structure(other.structure).leaves
            same_name = call.function.function == other.function.function
            if not same_name or len(leaves[0]) != len(leaves[1]):
                continue
            for ours, theirs in zip(*leaves, strict=True):
                (dtype, _, shape), (now, _, new_shape) = ours.partition("["), theirs.partition("[")
                if shape and shape == new_shape and dtype != now:
                    name = call.function.function
                    return f"{name} returns {ours} → {theirs}"
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
    return largest if largest > 4 * tolerance else 0.0
