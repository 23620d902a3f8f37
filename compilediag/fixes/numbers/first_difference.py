"""The result of a run whose sampled compiled calls were made eager beside them: the first call of
each callable that gives other numbers, in the order in which they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.fixes.answers import difference_of
from compilediag.fixes.numbers.rounding import Judged, judged
from compilediag.receipt.schema.comparisons import NumberDifference, NumbersSection
from compilediag.receipt.schema.record import record_from
from compilediag.rules.make_finding import plural
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Answer, CallShadowed, ComparedValue, Location

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


def numbers_of(timeline: Timeline) -> Numbers:
    """What the calls of a run show."""
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
