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

from compilediag.certify.values import find_difference
from compilediag.receipt.schema.comparisons import NumberDifference, NumbersSection
from compilediag.receipt.schema.record import make_record
from compilediag.rules.make_finding import format_count
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CallShadowed, ComparedValue, Location, SampledValue

MAX_CALLABLES = 20


class Difference(NamedTuple):
    """A difference as the receipt has it, and what the next runs need of it."""

    record: NumberDifference
    function: Location
    process: int
    shape: tuple[int, ...]
    before: int | None  #: The last sampled call before it, if any: none between was looked at.


class NumbersComparison(NamedTuple):
    """The result of the comparison."""

    section: NumbersSection
    differences: tuple[Difference, ...] = ()  #: Those of the section, in their order.

    @property
    def same(self) -> bool | None:
        """True where nothing differs; None where that is not known."""
        return self.section.same


def format_difference(difference: NumberDifference) -> str:
    """Format a difference: "loss_of first differs at call 3 (step 3): 0.25 → 0.5 (float32)"."""
    what = f" {difference.path.lstrip('.')}" if difference.path else ""
    return (
        f"{difference.function.function} first differs at call {difference.call} "
        f"(step {difference.step}){what and ','}{what}: {difference.text} ({difference.dtype})"
    )


def make_not_compared(problem: str) -> NumbersComparison:
    """Make the result of a comparison in which nothing was compared."""
    return NumbersComparison(NumbersSection(same=None, problem=problem))


def judge_calls(timeline: Timeline) -> NumbersComparison:
    """Judge the calls of a run that were made eager beside.

    Returns:
        At most `MAX_CALLABLES` differences, one a callable; `same` is None where no call was
            compared.
    """
    made = [call for call in timeline.shadowed_calls if call.problem is None]
    problems = Counter(call.problem for call in timeline.shadowed_calls if call.problem is not None)
    if problems and not made:
        why, count = problems.most_common(1)[0]
        calls = format_count(count, "call")
        return make_not_compared(f"no compiled call could be made eager beside it: {why} ({calls})")
    if not made:
        note = "what compiled calls return could not be read"
        return make_not_compared(note if timeline.sampled_outputs else "no compiled call returned")
    kinds, reasons = Counter[str](), Counter[str]()
    first: dict[tuple[int, Location], Difference] = {}
    often, last = Counter[tuple[int, Location]](), dict[tuple[int, Location], int]()
    for call in made:
        key = call.process, call.function
        results = [
            (value, judge_value(value, floating=call.floating, drew_otherwise=call.drew_otherwise))
            for value in call.differing
        ]
        kinds.update(result.kind for _, result in results)
        reasons.update(result.text for _, result in results if result.kind == "undetermined")
        differing = next((pair for pair in results if pair[1].kind == "differs"), None)
        if differing is not None:
            first.setdefault(key, _make_difference(call, *differing, last.get(key)))
            often[key] += 1
        last[key] = call.call
    differences = [
        difference._replace(record=replace(difference.record, calls=often[key]))
        for key, difference in first.items()
    ]
    section = NumbersSection(
        same=not differences,
        calls=len(made),
        values=sum(call.compared for call in made),
        unstable=kinds["unstable"],
        undetermined=kinds["undetermined"],
        notes=tuple(
            _format_notes(problems, kinds, reasons, sum(not call.complete for call in made))
        ),
    )
    return _replace_diffs(section, differences[:MAX_CALLABLES])


def _make_difference(
    call: CallShadowed, value: ComparedValue, result: JudgedValue, before: int | None
) -> Difference:
    output = (*value.eager, *value.compiled)[0]
    # Invariant: `text`, `largest` and both errors have the same names in both records.
    record = make_record(
        NumberDifference,
        result,
        function=call.function,
        call=call.call,
        step=call.step,
        path=value.path,
        dtype=output.dtype,
        calls=1,
    )
    return Difference(record, call.function, call.process, output.shape, before)


def _format_notes(
    problems: Counter[str], kinds: Counter[str], reasons: Counter[str], cut: int
) -> Iterator[str]:
    if problems:
        count = format_count(problems.total(), "sampled call")
        why = problems.most_common(1)[0][0]
        yield f"{count} could not be made eager beside it: {why}"
    if kinds["unstable"]:
        count = format_count(kinds["unstable"], "value")
        yield f"{count} left out: two eager calls on the same input differ"
    if reasons:
        count = format_count(kinds["undetermined"], "difference")
        yield f"{count} not judged: {reasons.most_common(1)[0][0]}"
    if cut:
        yield f"{format_count(cut, 'call')} with more values than are compared"


def _replace_diffs(section: NumbersSection, differences: Sequence[Difference]) -> NumbersComparison:
    records = tuple(diff.record for diff in differences)
    return NumbersComparison(replace(section, differences=records), tuple(differences))


def confirm_differences(
    numbers: NumbersComparison, shadowed: Timeline, plain: Timeline
) -> NumbersComparison:
    """Confirm the differences that `shadowed` shows: those whose calls return the same in a `plain`
    run, in which no eager call was made beside them."""
    ours, theirs = _collect_outputs(shadowed), _collect_outputs(plain)

    def is_confirmed(diff: Difference) -> bool:
        key = diff.process, diff.function, diff.record.call
        before, after = ours.get(key), theirs.get(key)
        if before is None or after is None or len(before) != len(after):
            return False
        return all(find_difference(x, y)[0] is None for x, y in zip(before, after, strict=True))

    stable = tuple(diff for diff in numbers.differences if is_confirmed(diff))
    if stable == numbers.differences:
        return numbers
    dropped = (diff.function.function for diff in numbers.differences if diff not in stable)
    left = ", ".join(dict.fromkeys(dropped))
    note = f"left out: {left}, which gave different results in a second run of the same program"
    if stable:
        section = replace(numbers.section, notes=(*numbers.section.notes, note))
        return _replace_diffs(section, stable)
    problem = f"the results of {left} differ between two unchanged runs: seed its random numbers"
    return _replace_diffs(replace(numbers.section, same=None, problem=problem), ())


def _collect_outputs(timeline: Timeline) -> dict[tuple[int, Location, int], Sequence[SampledValue]]:
    return {
        (record.process, record.function, record.call): record.answers
        for record in timeline.sampled_outputs
    }


def is_still_different(difference: Difference, timeline: Timeline) -> bool | None:
    """True where the callable differs in another run too; None where none was compared there."""
    calls = [call for call in timeline.shadowed_calls if call.function == difference.function]
    if not any(call.problem is None for call in calls):
        return None
    return any(other.function == difference.function for other in judge_calls(timeline).differences)


Kind = Literal["same", "differs", "unstable", "undetermined"]
"""`unstable`: two eager calls on the same input differ."""

_ADDED = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
"""What torch's rule adds to eager's error (`tol / 10`, and about one unit in the last place of half
types), here of numbers of size one and of larger ones in proportion."""

_MULTIPLIERS = ((10, 10.0), (500, 8.0), (1000, 3.0))
"""Most elements, and how often eager's error: torch's own, for noise of small tensors."""
_OF_HALF, _OF_FLOAT = 3.0, 2.0

_FEW, _FEW_TIMES = 10, 10.0
"""Of a few numbers eager's error may be small by chance: more is added."""

_FLOAT64_SHARE = 1e-6
"""Of float64 there is nothing more exact to compare with: so much of their size is no rounding."""

_MIN_CHANGED, _MIN_CHANGED_SHARE = 3, 0.1
"""Of the sampled whole numbers of a call that rounds: fewer may be ties and thresholds."""

_NEAR_OVERFLOW = {"float16": 3e4}  #: Numbers so large may be infinite by rounding.


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """The judgement of one value."""

    kind: Kind
    text: str = ""  #: The difference, or why it is undetermined.
    largest: float | None = None  #: Greatest difference between two numbers that are written.
    eager_error: float | None = None  #: Root mean square of eager against float64, of the written.
    compiled_error: float | None = None


def judge_value(
    value: ComparedValue, *, floating: bool, drew_otherwise: bool = False
) -> JudgedValue:
    """Judge a value of a call. `floating`: floating tensors went into the call; `drew_otherwise`:
    it drew other random numbers compiled than eager."""
    if not value.compiled or not value.eager:
        where = "compiled" if value.compiled else "eager"
        return JudgedValue("undetermined" if value.path else "differs", f"only {where} has it")
    compiled, eager = value.compiled[0], value.eager[0]
    if not value.stable:
        return JudgedValue("unstable", "two eager calls on the same input differ")
    if eager.kind == "other" and not (eager.digest and compiled.digest):
        same = (eager.kind, eager.dtype) == (compiled.kind, compiled.dtype)
        return JudgedValue(
            "undetermined" if same else "differs", f"a {eager.dtype} is not compared"
        )
    text, _ = find_difference(eager, compiled)
    if text is None:
        return JudgedValue("same")
    if drew_otherwise:
        return JudgedValue("undetermined", "it draws different random numbers compiled")
    exact = value.exact[0] if value.exact else None
    if (eager.kind, eager.dtype) != (compiled.kind, compiled.dtype):
        return JudgedValue("differs", text)
    if eager.shape != compiled.shape:
        sure = not floating or (exact is not None and exact.shape == eager.shape)
        return JudgedValue("differs" if sure else "undetermined", text)
    if eager.dtype.startswith(("float", "bfloat", "complex")):
        return _judge_float(
            _convert_to_tensor(compiled),
            _convert_to_tensor(eager),
            exact and _convert_to_tensor(exact),
            text,
        )
    return (
        _judge_integers(compiled, eager, exact, text) if floating else JudgedValue("differs", text)
    )


def _convert_to_tensor(output: SampledValue) -> SampledValue:
    """Convert a number to a tensor: one that came out of a tensor is as exact as that was."""
    if output.kind != "number":
        return output
    return dataclasses.replace(output, kind="tensor", dtype="float32", digest="")


def _judge_float(
    compiled: SampledValue, eager: SampledValue, exact: SampledValue | None, text: str
) -> JudgedValue:
    if exact is None:
        return JudgedValue("undetermined", "the call could not be made in float64")
    count = max(math.prod(eager.shape), 1)
    if eager.dtype == "float64":
        size = (eager.norm or 0.0) / math.sqrt(count)
        largest = _find_largest(compiled, eager)
        if not _has_same_finite(compiled, eager):
            return JudgedValue("differs", text)
        if largest > _FLOAT64_SHARE * max(1.0, size):
            return JudgedValue("differs", text, largest, 0.0, largest)
        return JudgedValue("same", text, largest)
    added = _ADDED.get(eager.dtype)
    if added is None or exact.shape != eager.shape:
        return JudgedValue("undetermined", f"{eager.dtype} has nothing more exact to compare with")
    if exact.dtype == "float32" and not exact.shape:
        exact = dataclasses.replace(exact, dtype="float64")
    if not _has_same_finite(compiled, eager):
        # It differs where eager is as finite as float64, and the numbers are far from overflow.
        near = _NEAR_OVERFLOW.get(eager.dtype, math.inf)
        if not _has_same_finite(eager, exact) or (exact.largest or 0.0) > near:
            return JudgedValue("undetermined", "eager overflows where float64 does not")
        return JudgedValue("differs", text)
    compiled, eager, exact = (
        dataclasses.replace(output, not_finite=0) for output in (compiled, eager, exact)
    )
    eager_error, error = compute_rms_error(eager, exact), compute_rms_error(compiled, exact)
    if eager_error is None or error is None or not is_trusted(exact, eager.dtype, eager_error):
        return JudgedValue("undetermined", "eager itself is far from float64")
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
    largest = _find_largest(compiled, eager)
    return JudgedValue("differs" if apart else "same", text, largest, eager_error, error)


def _has_same_finite(compiled: SampledValue, eager: SampledValue) -> bool:
    """True where the same of those that are written are finite, and as many of all."""
    if compiled.not_finite != eager.not_finite:
        return False
    pairs = zip(compiled.values, eager.values, strict=False)
    return all((x is None) == (y is None) for x, y in pairs)


def _judge_integers(
    compiled: SampledValue, eager: SampledValue, exact: SampledValue | None, text: str
) -> JudgedValue:
    """Judge whole numbers and flags of a call that rounds."""
    if exact is None or exact.digest != eager.digest:
        return JudgedValue(
            "undetermined", "rounding may decide it: float64 gives another one, or none"
        )
    pairs = list(zip(compiled.values, eager.values, strict=False))
    changed = sum(x != y for x, y in pairs)
    if changed >= _MIN_CHANGED and changed >= _MIN_CHANGED_SHARE * len(pairs):
        return JudgedValue("differs", text, _find_largest(compiled, eager))
    return JudgedValue("undetermined", "rounding may decide it: few values differ")


def _find_largest(compiled: SampledValue, eager: SampledValue) -> float:
    pairs = zip(compiled.values, eager.values, strict=False)
    return max((abs(x - y) for x, y in pairs if x is not None and y is not None), default=0.0)


# --- against float64 ----------------------------------------------------------------------------

_TRUSTED = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3}
"""Largest error of eager, of the size of the numbers: above it nothing can be told."""


def is_trusted(exact: SampledValue, dtype: str, error: float) -> bool:
    """True where eager is near enough to float64 for its error to be a measure."""
    if exact.dtype != "float64" or exact.norm is None:
        return False
    return error <= _TRUSTED[dtype] * exact.norm / math.sqrt(math.prod(exact.shape) or 1)


def compute_rms_error(value: SampledValue, exact: SampledValue) -> float | None:
    """Compute the root-mean-square error of a sample; None where it is not all finite floats."""
    floating = value.kind == "tensor" and value.dtype in _TRUSTED
    if not floating or value.not_finite or exact.not_finite or value.shape != exact.shape:
        return None
    pairs = zip(value.values, exact.values, strict=True)
    squares = [(x - y) ** 2 for x, y in pairs if x is not None and y is not None]
    return math.sqrt(sum(squares) / len(squares)) if squares else None
