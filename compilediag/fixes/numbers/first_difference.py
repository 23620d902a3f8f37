"""The result of a run whose sampled compiled calls were made eager beside them: the first call of
each callable that gives other numbers, in the order in which they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.fixes.answers import difference_of
from compilediag.fixes.numbers.rounding import Judged, judged
from compilediag.receipt.schema.comparisons import NumberDifference, NumbersSection
from compilediag.receipt.schema.record import record_from
from compilediag.rules.make_finding import plural
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Answer, CallShadowed, Location

MAX_CALLABLES = 20


class Difference(NamedTuple):
    """What the receipt has of a difference, and what the next runs need."""

    record: NumberDifference
    function: Location
    process: int
    shape: tuple[int, ...]
    before: int | None
    """The last sampled call before it: what lies between was not looked at; None: there is none."""


class Numbers(NamedTuple):
    """What the comparison found."""

    section: NumbersSection
    differences: tuple[Difference, ...] = ()
    """Those of the section, in the order in which they came."""

    @property
    def same(self) -> bool | None:
        """None: that is not known."""
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
    """Where and by how much: "loss_of first differs at call 3 (step 3): 0.25 → 0.5 (float32)"."""
    what = f" {found.path.lstrip('.')}" if found.path else ""
    return (
        f"{found.function.function} first differs at call {found.call} "
        f"(step {found.step}){what and ','}{what}: {found.text} ({found.dtype})"
    )


def not_compared(problem: str) -> Numbers:
    """Nothing was compared."""
    return Numbers(NumbersSection(same=None, problem=problem))


@dataclass(slots=True)
class _Tally:
    """What one callable of one process shows so far."""

    first: Difference | None = None
    differing: int = 0
    last_call: int | None = None


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    values: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    problems: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    cut: int = 0


def numbers_of(timeline: Timeline) -> Numbers:
    """What the calls of a run show."""
    sums, by_callable = _Sums(), dict[tuple[int, Location], _Tally]()
    for call in timeline.shadowed_calls:
        key = call.process, call.function
        _add(sums, by_callable.setdefault(key, _Tally()), call)
    if not sums.calls:
        return not_compared(_why_none(timeline, sums))
    places = {
        (call.process, call.function, call.call): place
        for place, call in enumerate(timeline.shadowed_calls)
    }
    differences = [
        tally.first._replace(record=replace(tally.first.record, calls=tally.differing))
        for tally in by_callable.values()
        if tally.first is not None
    ]
    differences.sort(key=lambda each: places[each.process, each.function, each.record.call])
    section = NumbersSection(
        same=not differences,
        calls=sums.calls,
        values=sums.values,
        unstable=sums.kinds["unstable"],
        undetermined=sums.kinds["undetermined"],
        notes=tuple(_notes(sums)),
    )
    return _with(section, differences[:MAX_CALLABLES])


def _with(section: NumbersSection, differences: Sequence[Difference]) -> Numbers:
    records = tuple(each.record for each in differences)
    return Numbers(replace(section, differences=records), tuple(differences))


def _add(sums: _Sums, tally: _Tally, call: CallShadowed) -> None:
    if call.problem is not None:
        sums.problems[call.problem] += 1
        return
    sums.calls += 1
    sums.values += call.compared
    sums.cut += not call.complete
    first: Difference | None = None
    for value in call.differing:
        result = judged(value, floating=call.floating, drew_otherwise=call.drew_otherwise)
        sums.kinds[result.kind] += 1
        if result.kind == "undetermined":
            sums.reasons[result.text] += 1
        if result.kind == "differs" and first is None:
            answer = (*value.eager, *value.compiled)[0]
            first = _difference(call, value.path, answer, result, tally.last_call)
    tally.last_call = call.call
    if first is not None:
        tally.first = tally.first or first
        tally.differing += 1


def _difference(
    call: CallShadowed, path: str, answer: Answer, result: Judged, before: int | None
) -> Difference:
    record = record_from(
        NumberDifference,
        result,
        function=call.function,
        call=call.call,
        step=call.step,
        path=path,
        dtype=answer.dtype,
        calls=1,
    )
    return Difference(record, call.function, call.process, answer.shape, before)


def _why_none(timeline: Timeline, sums: _Sums) -> str:
    if sums.problems:
        why, count = sums.problems.most_common(1)[0]
        return f"no compiled call could be made eager beside it: {why} ({plural(count, 'call')})"
    if timeline.answers:
        return "what compiled calls return could not be read"
    return "no compiled call returned"


def _notes(sums: _Sums) -> list[str]:
    found: list[str] = []
    if sums.problems:
        why = sums.problems.most_common(1)[0][0]
        count = plural(sum(sums.problems.values()), "sampled call")
        found.append(f"{count} could not be made eager beside it: {why}")
    if sums.kinds["unstable"]:
        count = plural(sums.kinds["unstable"], "value")
        found.append(f"{count} left out: two eager calls on the same input differ")
    if sums.reasons:
        why = sums.reasons.most_common(1)[0][0]
        count = plural(sums.kinds["undetermined"], "difference")
        found.append(f"{count} not judged: {why}")
    if sums.cut:
        found.append(f"{plural(sums.cut, 'call')} with more values than are compared")
    return found


def confirmed(numbers: Numbers, shadowed: Timeline, plain: Timeline) -> Numbers:
    """Differences of calls that answer the same in a run in which nothing was made beside them.

    Args:
        numbers: what `shadowed` shows.
        shadowed: the run with eager calls beside the compiled ones.
        plain: the same without.
    """
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
    """The callable still gives other numbers in another run; None where none of its calls
    was compared there."""
    calls = [each for each in timeline.shadowed_calls if each.function == found.function]
    if not any(each.problem is None for each in calls):
        return None
    return any(each.function == found.function for each in numbers_of(timeline).differences)
