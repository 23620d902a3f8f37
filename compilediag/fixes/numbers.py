"""The numbers of compiled calls against those of eager: calls that were made again at the end of a
run, by the program's backend and eager, by `certify`'s comparison; and CD651 where they differ.

What rounding explains is measured by the same call in float64. Without that nothing is concluded of
numbers that differ.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from compilediag.certify.calls import (
    GROWTH,
    RecordedCall,
    is_same_structure,
    measure_difference,
    read_structure,
)
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.comparisons import NumberDifference, NumbersSection
from compilediag.receipt.schema.record import make_record
from compilediag.rules.make_finding import format_count, make_finding, shorten
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import ROUNDS, CallVaried, Location

MAX_CALLABLES = 20
REPEATED = 4  #: Calls for each that the program made: eager twice, in float64, compiled.


class _Judgement(NamedTuple):
    """The judgement of one call; `unstable`: two eager calls on the same input differ."""

    kind: Literal["same", "differs", "unstable", "undetermined"]
    text: str = ""  #: The difference, or why it is undetermined.


def make_not_compared(problem: str) -> NumbersSection:
    """Make the result of a comparison in which nothing was compared."""
    return NumbersSection(same=None, problem=problem)


def format_difference(difference: NumberDifference) -> str:
    """Format a difference: "f first differs at call 3 (step 3): its digest by 0.2 (float32)"."""
    return (
        f"{difference.function.function} first differs at call {difference.call} "
        f"(step {difference.step}): {difference.text} ({difference.dtype})"
    )


def compare_numbers(timeline: Timeline) -> NumbersSection:
    """Compare the calls of a run that were made again alone (`RecordingPlan.repeats`).

    Returns:
        At most `MAX_CALLABLES` differences, one a callable; `same` is None where no call was
            compared.
    """
    if timeline.stance_calls:
        return make_not_compared("the program sets the stance of torch.compile itself")
    groups: dict[object, list[CallVaried]] = {}
    for call in timeline.varied_calls:
        key = call.process, call.function, call.call, call.number
        groups.setdefault(key, []).append(call)
    problems = [text for end in timeline.varying_ends for text in end.left_out]
    problems += [calls[0].raised for calls in groups.values() if calls[0].raised is not None]
    whole = [calls for calls in groups.values() if len(calls) == REPEATED]
    made = [calls for calls in whole if calls[0].raised is None]
    if not made:
        why = f"no compiled call could be made again: {problems[0]}" if problems else None
        return make_not_compared(why or "no compiled call returned")
    made.sort(key=lambda calls: calls[0].number)
    kinds, reasons = Counter[str](), Counter[str]()
    first: dict[tuple[int, Location], NumberDifference] = {}
    for calls in made:
        judged, structure = _judge(*calls), read_structure(calls[0].structure)
        kinds[judged.kind] += len(structure.leaves) if judged.kind == "unstable" else 1
        reasons[judged.text] += judged.kind == "undetermined"
        if judged.kind == "differs":
            key = calls[0].process, calls[0].function
            known = first.setdefault(key, _make_difference(calls[0], judged.text))
            first[key] = replace(known, calls=known.calls + 1)
    return NumbersSection(
        same=not first,
        calls=len(made),
        values=sum(len(read_structure(calls[0].structure).leaves) for calls in made),
        unstable=kinds["unstable"],
        undetermined=kinds["undetermined"],
        differences=tuple(first.values())[:MAX_CALLABLES],
        notes=tuple(_format_notes(problems, kinds, reasons)),
    )


def _make_difference(call: CallVaried, text: str) -> NumberDifference:
    dtypes = ", ".join(dict.fromkeys(read_structure(call.structure).dtypes))
    return make_record(
        NumberDifference,
        None,
        function=call.function,
        call=call.number,
        step=call.step,
        dtype=dtypes or "no number",
        text=text,
    )


def _format_notes(
    problems: Sequence[str], kinds: Counter[str], reasons: Counter[str]
) -> Iterator[str]:
    if problems:
        yield f"not all compiled calls could be made again: {problems[0]}"
    if kinds["unstable"]:
        count = format_count(kinds["unstable"], "value")
        yield f"{count} left out: two eager calls on the same input differ"
    if kinds["undetermined"]:
        count = format_count(kinds["undetermined"], "difference")
        yield f"{count} not judged: {reasons.most_common(1)[0][0]}"


def _judge(eager: CallVaried, again: CallVaried, exact: CallVaried, own: CallVaried) -> _Judgement:
    """Judge a compiled call by the same call eager. Beside whole numbers and which numbers are
    finite, of which rounding may decide, all are compared."""
    if own.raised is not None:
        return _Judgement("undetermined", f"made again compiled it raises {own.raised}")
    if (eager.structure, eager.digest) != (again.structure, again.digest):
        return _Judgement("unstable")
    structure, now = read_structure(eager.structure), read_structure(own.structure)
    if structure.leaves != now.leaves:
        # Rounding may decide a size, as that of what a comparison selects: float64 has it then.
        if structure.dtypes == now.dtypes and _list_shapes(exact) != _list_shapes(eager):
            return _Judgement("undetermined", "rounding may decide sizes")
        before, after = (", ".join(its.leaves) for its in (structure, now))
        return _Judgement("differs", f"returns {shorten(before, 60)} → {shorten(after, 60)}")
    if not is_same_structure(eager.structure, own.structure):
        return _Judgement("undetermined", "other random numbers are drawn")
    size = _measure(eager, own)
    if not size:
        if eager.digest[0].exact != own.digest[0].exact:
            if ROUNDS not in eager.structure:
                return _Judgement("differs", "its whole numbers")
            return _Judgement("undetermined", "rounding may decide whole numbers")
        if not structure.is_whole:
            return _Judgement("undetermined", "some values are not compared")
        return _Judgement("same")
    if exact.raised is not None:
        return _Judgement("undetermined", "the call could not be made in float64")
    yardstick = _measure(eager, exact)
    if yardstick > structure.cap:
        return _Judgement("undetermined", "eager itself is far from float64")
    if size > GROWTH * max(structure.tolerance, yardstick):
        return _Judgement("differs", f"its digest by {size:.1g}")
    return _Judgement("same")


def _list_shapes(call: CallVaried) -> list[str]:
    return [leaf.partition("[")[2] for leaf in read_structure(call.structure).leaves]


def _measure(one: CallVaried, other: CallVaried) -> float:
    """Measure how far the floating numbers of two calls are apart, relative to their size."""
    digest = dataclasses.replace(other.digest[0], exact=one.digest[0].exact)
    ours, theirs = (
        RecordedCall(one.function, one.structure, its) for its in (one.digest[0], digest)
    )
    return measure_difference(ours, theirs)


def find_number_differences(timeline: Timeline, section: NumbersSection) -> Iterable[Finding]:
    """Find one for each callable that gives other numbers."""
    for difference in section.differences:
        yield make_finding(
            timeline,
            "CD651",
            format_difference(difference),
            "put torch.compiler.disable on it, or mend the pass, operator or backend that is wrong",
            location=difference.function,
            variable=difference.function.function,
            count=difference.calls,
            steps=(difference.step,),
            evidence={"call": difference.call, "dtype": difference.dtype},
        )
