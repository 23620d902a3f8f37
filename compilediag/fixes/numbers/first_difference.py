"""The result of a run whose sampled compiled calls were made eager beside them: each value judged,
and the first call of each callable that gives other numbers, in the order in which they were made.

A value is the same, beyond what eager's own rounding explains, or not to be told. A float counts as
different where its error against float64 is larger than eager's by the rule of torch's own accuracy
checks (`same` in torch/_dynamo/utils.py). Without float64 nothing is concluded of a number that may
have been rounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from compilediag.fixes.answers import difference_of, is_trusted, root_mean_square
from compilediag.receipt.schema.comparisons import NumberDifference, NumbersSection
from compilediag.receipt.schema.record import record_from
from compilediag.rules.make_finding import plural
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Answer, CallShadowed, ComparedValue, Location

MAX_CALLABLES = 20


class Difference(NamedTuple):
    """A difference as the receipt has it, and what the next runs need of it."""

    record: NumberDifference
    function: Location
    process: int
    shape: tuple[int, ...]
    before: int | None  #: The last sampled call before it, if any: none between was looked at.


class Numbers(NamedTuple):
    """The result of the comparison."""

    section: NumbersSection
    differences: tuple[Difference, ...] = ()  #: Those of the section, in their order.

    @property
    def same(self) -> bool | None:
        """True where nothing differs; None where that is not known."""
        return self.section.same

    @property
    def sentence(self) -> str:
        """What was compared, and the first difference, in words."""
        found = self.section
        compared = f"{plural(found.values, 'value')} of {plural(found.calls, 'compiled call')}"
        if found.same is None:
            return f"not compared: {found.problem}"
        if found.same:
            return f"{compared} are those of eager, within rounding"
        return difference_sentence(found.differences[0])


def difference_sentence(found: NumberDifference) -> str:
    """Format where a callable differs, and by how much: "loss_of first differs at call 3 (step 3):
    0.25 → 0.5 (float32)"."""
    what = f" {found.path.lstrip('.')}" if found.path else ""
    return (
        f"{found.function.function} first differs at call {found.call} "
        f"(step {found.step}){what and ','}{what}: {found.text} ({found.dtype})"
    )


def not_compared(problem: str) -> Numbers:
    """Make the result of a comparison in which nothing was compared."""
    return Numbers(NumbersSection(same=None, problem=problem))


def numbers_of(timeline: Timeline) -> Numbers:
    """Judge the calls of a run that were made eager beside.

    Returns:
        At most `MAX_CALLABLES` differences, one a callable; `same` is None where no call was
            compared.
    """
    made = [call for call in timeline.shadowed_calls if call.problem is None]
    problems = Counter(call.problem for call in timeline.shadowed_calls if call.problem is not None)
    if problems and not made:
        why, count = problems.most_common(1)[0]
        calls = plural(count, "call")
        return not_compared(f"no compiled call could be made eager beside it: {why} ({calls})")
    if not made:
        unread = "what compiled calls return could not be read"
        return not_compared(unread if timeline.answers else "no compiled call returned")
    kinds, reasons = Counter[str](), Counter[str]()
    first: dict[tuple[int, Location], Difference] = {}
    often, last = Counter[tuple[int, Location]](), dict[tuple[int, Location], int]()
    for call in made:
        key = call.process, call.function
        results = [
            (value, judged(value, floating=call.floating, drew_otherwise=call.drew_otherwise))
            for value in call.differing
        ]
        kinds.update(result.kind for _, result in results)
        reasons.update(result.text for _, result in results if result.kind == "undetermined")
        differing = next((each for each in results if each[1].kind == "differs"), None)
        if differing is not None:
            first.setdefault(key, _difference(call, *differing, last.get(key)))
            often[key] += 1
        last[key] = call.call
    differences = [
        each._replace(record=replace(each.record, calls=often[key])) for key, each in first.items()
    ]
    section = NumbersSection(
        same=not differences,
        calls=len(made),
        values=sum(call.compared for call in made),
        unstable=kinds["unstable"],
        undetermined=kinds["undetermined"],
        notes=tuple(_notes(problems, kinds, reasons, sum(not call.complete for call in made))),
    )
    return _with(section, differences[:MAX_CALLABLES])


def _difference(
    call: CallShadowed, value: ComparedValue, result: Judged, before: int | None
) -> Difference:
    answer = (*value.eager, *value.compiled)[0]
    # Invariant: `text`, `largest` and both errors have the same names in both records.
    record = record_from(
        NumberDifference,
        result,
        function=call.function,
        call=call.call,
        step=call.step,
        path=value.path,
        dtype=answer.dtype,
        calls=1,
    )
    return Difference(record, call.function, call.process, answer.shape, before)


def _notes(
    problems: Counter[str], kinds: Counter[str], reasons: Counter[str], cut: int
) -> Iterator[str]:
    if problems:
        count = plural(problems.total(), "sampled call")
        why = problems.most_common(1)[0][0]
        yield f"{count} could not be made eager beside it: {why}"
    if kinds["unstable"]:
        count = plural(kinds["unstable"], "value")
        yield f"{count} left out: two eager calls on the same input differ"
    if reasons:
        count = plural(kinds["undetermined"], "difference")
        yield f"{count} not judged: {reasons.most_common(1)[0][0]}"
    if cut:
        yield f"{plural(cut, 'call')} with more values than are compared"


def _with(section: NumbersSection, differences: Sequence[Difference]) -> Numbers:
    records = tuple(each.record for each in differences)
    return Numbers(replace(section, differences=records), tuple(differences))


def confirmed(numbers: Numbers, shadowed: Timeline, plain: Timeline) -> Numbers:
    """Confirm the differences that `shadowed` shows: those whose calls return the same in a `plain`
    run, in which no eager call was made beside them."""
    ours, theirs = _outputs(shadowed), _outputs(plain)

    def holds(found: Difference) -> bool:
        key = found.process, found.function, found.record.call
        before, after = ours.get(key), theirs.get(key)
        if before is None or after is None or len(before) != len(after):
            return False
        return all(difference_of(x, y)[0] is None for x, y in zip(before, after, strict=True))

    kept = tuple(each for each in numbers.differences if holds(each))
    if kept == numbers.differences:
        return numbers
    dropped = (each.function.function for each in numbers.differences if each not in kept)
    left = ", ".join(dict.fromkeys(dropped))
    note = f"left out: {left}, which gave different results in a second run of the same program"
    if kept:
        section = replace(numbers.section, notes=(*numbers.section.notes, note))
        return _with(section, kept)
    problem = f"the results of {left} differ between two unchanged runs: seed its random numbers"
    return _with(replace(numbers.section, same=None, problem=problem), ())


def _outputs(timeline: Timeline) -> dict[tuple[int, Location, int], Sequence[Answer]]:
    return {(each.process, each.function, each.call): each.answers for each in timeline.answers}


def still_differs(found: Difference, timeline: Timeline) -> bool | None:
    """True where the callable still gives other numbers in another run; None where none of its
    calls was compared there."""
    calls = [each for each in timeline.shadowed_calls if each.function == found.function]
    if not any(each.problem is None for each in calls):
        return None
    return any(each.function == found.function for each in numbers_of(timeline).differences)


Kind = Literal["same", "differs", "unstable", "undetermined"]
"""`unstable`: two eager calls on the same input differ."""

_ADDED = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
"""What torch's rule adds to eager's error (`tol / 10`, and about one unit in the last place of half
types), here of numbers of size one and of larger ones in proportion."""

_MULTIPLIERS = ((10, 10.0), (500, 8.0), (1000, 3.0))
"""Most elements, and how many times eager's error is allowed: torch's own for small tensors, where
noise outweighs the error."""
_OF_HALF, _OF_FLOAT = 3.0, 2.0

_FEW, _FEW_TIMES = 10, 10.0
"""Of a few numbers eager's error may be small by chance: more is added."""

_FLOAT64_SHARE = 1e-6
"""Of float64 there is nothing more exact to compare with: so much of their size is no rounding."""

_MIN_CHANGED, _MIN_CHANGED_SHARE = 3, 0.1
"""Of the sampled whole numbers and flags of a call that rounds: fewer may be ties and thresholds
that rounding decides."""

_NEAR_OVERFLOW = {"float16": 3e4}  #: Numbers so large may be infinite by rounding.


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of one value."""

    kind: Kind
    text: str = ""  #: The difference, or why it is undetermined.
    largest: float | None = None  #: Greatest difference between two numbers that are written.
    eager_error: float | None = None  #: Root mean square of eager against float64, of the written.
    compiled_error: float | None = None


def judged(value: ComparedValue, *, floating: bool, drew_otherwise: bool = False) -> Judged:
    """Judge a value of a call. `floating`: floating tensors went into the call; `drew_otherwise`:
    it drew other random numbers compiled than eager."""
    if not value.compiled or not value.eager:
        where = "compiled" if value.compiled else "eager"
        return Judged("undetermined" if value.path else "differs", f"only {where} has it")
    compiled, eager = value.compiled[0], value.eager[0]
    if not value.stable:
        return Judged("unstable", "two eager calls on the same input differ")
    if eager.kind == "other" and not (eager.digest and compiled.digest):
        same = (eager.kind, eager.dtype) == (compiled.kind, compiled.dtype)
        return Judged("undetermined" if same else "differs", f"a {eager.dtype} is not compared")
    text, _ = difference_of(eager, compiled)
    if text is None:
        return Judged("same")
    if drew_otherwise:
        return Judged("undetermined", "it draws different random numbers compiled")
    exact = value.exact[0] if value.exact else None
    if (eager.kind, eager.dtype) != (compiled.kind, compiled.dtype):
        return Judged("differs", text)
    if eager.shape != compiled.shape:
        sure = not floating or (exact is not None and exact.shape == eager.shape)
        return Judged("differs" if sure else "undetermined", text)
    if eager.dtype.startswith(("float", "bfloat", "complex")):
        return _float(_as_tensor(compiled), _as_tensor(eager), exact and _as_tensor(exact), text)
    return _whole(compiled, eager, exact, text) if floating else Judged("differs", text)


def _as_tensor(answer: Answer) -> Answer:
    """Convert a number to a tensor: one that came out of a tensor is as exact as that was."""
    if answer.kind != "number":
        return answer
    return dataclasses.replace(answer, kind="tensor", dtype="float32", digest="")


def _float(compiled: Answer, eager: Answer, exact: Answer | None, text: str) -> Judged:
    if exact is None:
        return Judged("undetermined", "the call could not be made in float64")
    count = max(math.prod(eager.shape), 1)
    if eager.dtype == "float64":
        size = (eager.norm or 0.0) / math.sqrt(count)
        largest = _largest(compiled, eager)
        if not _same_finite(compiled, eager):
            return Judged("differs", text)
        if largest > _FLOAT64_SHARE * max(1.0, size):
            return Judged("differs", text, largest, 0.0, largest)
        return Judged("same", text, largest)
    added = _ADDED.get(eager.dtype)
    if added is None or exact.shape != eager.shape:
        return Judged("undetermined", f"{eager.dtype} has nothing more exact to compare with")
    if exact.dtype == "float32" and not exact.shape:
        exact = dataclasses.replace(exact, dtype="float64")
    if not _same_finite(compiled, eager):
        # It differs where eager is as finite as float64, and the numbers are far from overflow.
        near = _NEAR_OVERFLOW.get(eager.dtype, math.inf)
        if not _same_finite(eager, exact) or (exact.largest or 0.0) > near:
            return Judged("undetermined", "eager overflows where float64 does not")
        return Judged("differs", text)
    compiled, eager, exact = (
        dataclasses.replace(each, not_finite=0) for each in (compiled, eager, exact)
    )
    eager_error, error = root_mean_square(eager, exact), root_mean_square(compiled, exact)
    if eager_error is None or error is None or not is_trusted(exact, eager.dtype, eager_error):
        return Judged("undetermined", "eager itself is far from float64")
    times = next((times for most, times in _MULTIPLIERS if count <= most), None)
    times = times or (_OF_FLOAT if eager.dtype == "float32" else _OF_HALF)
    size = (exact.norm or 0.0) / math.sqrt(count)
    added *= max(1.0, size) * (_FEW_TIMES if count <= _FEW else 1.0)
    allowed = times * eager_error + added
    apart = error > allowed
    if compiled.norm is not None and eager.norm is not None and exact.norm is not None:
        # All elements are judged by the norm, beside those that are written.
        limit = max(allowed * math.sqrt(count), times * abs(eager.norm - exact.norm))
        apart |= abs(compiled.norm - exact.norm) > limit
    if apart:
        return Judged("differs", text, _largest(compiled, eager), eager_error, error)
    return Judged("same", text, _largest(compiled, eager), eager_error, error)


def _same_finite(compiled: Answer, eager: Answer) -> bool:
    """True where the same of those that are written are finite, and as many of all."""
    if compiled.not_finite != eager.not_finite:
        return False
    pairs = zip(compiled.values, eager.values, strict=False)
    return all((x is None) == (y is None) for x, y in pairs)


def _whole(compiled: Answer, eager: Answer, exact: Answer | None, text: str) -> Judged:
    """Judge whole numbers and flags of a call that rounds."""
    if exact is None or exact.digest != eager.digest:
        return Judged("undetermined", "rounding may decide it: float64 gives another one, or none")
    pairs = list(zip(compiled.values, eager.values, strict=False))
    changed = sum(x != y for x, y in pairs)
    if changed >= _MIN_CHANGED and changed >= _MIN_CHANGED_SHARE * len(pairs):
        return Judged("differs", text, _largest(compiled, eager))
    return Judged("undetermined", "rounding may decide it: few values differ")


def _largest(compiled: Answer, eager: Answer) -> float:
    pairs = zip(compiled.values, eager.values, strict=False)
    return max((abs(x - y) for x, y in pairs if x is not None and y is not None), default=0.0)
