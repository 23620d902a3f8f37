"""Every outermost compiled call is compared with its own."""

import base64
import struct
from dataclasses import replace
from typing import Any

import pytest

from compilediag.certify.calls import CallComparison, compare_calls
from compilediag.timeline.timeline import Process
from compilediag_harness.redaction.in_process import redact_text
from compilediag_harness.wire import (
    CALL_FORMAT,
    NOT_COMPARED,
    CallsRecorded,
    Location,
    encode_calls,
)
from tests.support.certified_states import FILE, calls, digest, state
from tests.support.timelines import WHERE, process

OTHER = Location(FILE, 40, "Decoder.forward")
MOVED = Location("/home/user/moved.py", 7, "Renamed.forward")


def compare(
    before: list[CallsRecorded], after: list[CallsRecorded], eager: Any = None, **more: Any
) -> CallComparison:
    old, new = (state(*records, **more).timeline for records in (before, after))
    reference = None if eager is None else state(*eager, **more).timeline
    return compare_calls(old, new, reference)


def test_equal_calls() -> None:
    found = compare([calls(1.0, 2.0)], [calls(1.0, 2.0)])
    assert (found.equal, found.exact, found.compared) == (True, True, 2)


@pytest.mark.parametrize(
    ("value", "structure", "equal"),
    [
        (2.0 + 1e-6, "(float32[4])", True),
        (2.0 + 1e-4, "(float32[4])", False),
        (2.0 + 1e-2, "(bfloat16[4])", True),
        (2.0 + 1e-2, "(float32[4], bfloat16[4])", True),
        (2.0 + 1e-6, "(float64[4])", False),
        (2.0 + 1e-9, "(int64[4])", False),
        (float("nan"), "(float32[4])", False),
    ],
)
def test_tolerance_is_that_of_the_coarsest_dtype(value: float, structure: str, equal: bool) -> None:
    found = compare(
        [calls(1.0, 2.0, structure=structure)], [calls(1.0, value, structure=structure)]
    )
    assert found.equal == equal
    assert not found.exact
    assert equal or "call 1 of forward" in (found.difference or "")


def test_what_must_be_equal_is_compared_bit_for_bit() -> None:
    found = compare([calls(digest(1.0, exact=1))], [calls(digest(1.0, exact=2))])
    assert found.difference
    assert not found.may_round


def test_only_the_last_of_many_calls_is_wrong() -> None:
    found = compare([calls(*[1.0] * 1000)], [calls(*[1.0] * 999, 1.5)])
    assert "call 999" in (found.difference or "")
    assert not found.at_start


@pytest.mark.parametrize(
    ("before", "after", "corresponds"),
    [
        ([calls(1.0, 2.0)], [calls(1.0)], False),
        ([calls(1.0)], [calls(1.0, function=MOVED)], True),
        ([calls(1.0)], [calls(1.0), calls(2.0, function=OTHER, number=1)], False),
        ([calls(1.0)], [calls(1.0, structure="(float32[4,8], int64[])")], False),
        ([calls(1.0, structure="(float32[])")], [calls(1.0, structure="(float)")], True),
        ([calls(1.0, structure="(int)")], [calls(1.0, structure="(int64[])")], True),
        ([calls(1.0, structure="(float)")], [calls(1.0, structure="(float64[])")], False),
        ([calls(1.0, structure="(bool)")], [calls(1.0, structure="(int)")], False),
        ([calls(1.0)], [], False),
    ],
)
def test_calls_that_correspond(
    before: list[CallsRecorded], after: list[CallsRecorded], corresponds: bool
) -> None:
    assert (compare(before, after).mismatch is None) == corresponds


def test_calls_are_read_as_they_were_written() -> None:
    """Their bytes may spell what looks like a token, which is replaced in a journal."""
    token = b"eyJhbGciOiJIUzI1NiJ9eyJzdWIiOiIxMjM0NTY3ODkwIn0AKIAIOSFODNN7EXAMPLE"
    for at in range(4):
        rows = base64.b64decode(b"A" * at + token + b"A" * (-(at + len(token)) % 4))
        content = encode_calls(rows)
        assert base64.b64decode(redact_text(content)) == rows


WIDE, NARROW = "(float64[])", "(float32[])"


def make_mixed(eager: tuple[int, ...] = (0,)) -> list[CallsRecorded]:
    """Calls in float64 where they are compiled, and then in float32."""
    later = calls(3.0, structure=NARROW, number=1, eager=eager)
    content = base64.b64encode(struct.pack(CALL_FORMAT, 0, 1, 3.0, 6.0, 1.0, 7)).decode()
    return [calls(1.0, 2.0, structure=WIDE), replace(later, functions=(), calls=content)]


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        (NARROW, "float64[] where compiled (call 0) and float32[] where eager (call 2)"),
        (WIDE, "float32[] where eager (call 2) and float64[] where compiled (call 0)"),
    ],
)
def test_a_dtype_that_depends_on_being_compiled_is_said_to_be_the_old_state_s(
    structure: str, words: str
) -> None:
    """As where `np.log` of a number is traced: float64, and float32 behind a recompile limit."""
    found = compare(make_mixed(), [calls(1.0, 2.0, 3.0, structure=structure)])
    assert (found.own_precision, found.other_precision) == (True, False)
    assert words in (found.mismatch or "")


def test_a_dtype_of_the_new_state_alone_is_another_precision() -> None:
    """One that no call of the old state has, and one that its compiled calls have as well."""
    other = [calls(1.0, 2.0, 3.0, structure="(float16[])")]
    assert compare(make_mixed(), other).other_precision
    narrow = [calls(1.0, 2.0, 3.0, structure=NARROW)]
    found = compare(make_mixed(eager=()), narrow)
    assert (found.own_precision, found.other_precision) == (False, True)
    assert compare([calls(1.0, 2.0, structure=WIDE)], make_mixed()).mismatch is not None


def test_functions_are_numbered_on_from_record_to_record() -> None:
    first, second = calls(1.0), calls(2.0, function=OTHER, number=1)
    later = replace(calls(3.0), functions=(), structures=())
    found = compare([first, second, later], [first, second, later])
    assert found.compared == 3
    changed = replace(calls(4.0), functions=(), structures=())
    assert "call 1 of forward" in (
        compare([first, second, later], [first, second, changed]).difference or ""
    )


def test_ranks_are_compared_each_with_its_own() -> None:
    def record(*values: float) -> list[CallsRecorded]:
        return [calls(value, process=index) for index, value in enumerate(values)]

    def make(rank: int) -> Process:
        one = process(rank)
        assert one.started is not None
        return replace(one, started=replace(one.started, rank=rank))

    ranks = make(0), make(1)
    one, other = (state(*record(1.0, 2.0), processes=ranks).timeline for _ in range(2))
    assert compare_calls(one, other).equal
    swapped = replace(ranks[0], index=1), replace(ranks[1], index=0)
    assert not compare_calls(one, state(*record(1.0, 2.0), processes=swapped).timeline).equal
    assert compare_calls(one, state(*record(2.0, 1.0), processes=swapped).timeline).equal


@pytest.mark.parametrize(
    ("new", "eager", "equal", "measured"),
    [
        (1.0002, 1.0001, True, True),  # no farther than three times eager
        (1.0004, 1.0001, False, True),
        (1.0002, 1.0, False, True),
        (1.01, 1.01, False, False),  # neither is rounding
        (1.0002, 1.01, False, False),  # eager is no measure
    ],
)
def test_eager_is_the_yardstick_of_rounding(
    new: float, eager: float, equal: bool, measured: bool
) -> None:
    found = compare([calls(0.0, 1.0)], [calls(0.0, new)], [calls(0.0, eager)])
    assert (found.equal, found.measured or found.equal) == (equal, measured)
    assert found.rounded == int(equal)


def test_eager_measures_until_the_call_only() -> None:
    found = compare([calls(1.0, 1.0)], [calls(1.0002, 1.0)], [calls(1.0, 1.0002)])
    assert found.difference is not None
    assert found.may_round
    elsewhere = [calls(1.0), calls(1.0001, function=OTHER, number=1)]
    old = [calls(1.0), calls(1.0, function=OTHER, number=1)]
    assert compare(old, [calls(1.0001), calls(1.0, function=OTHER, number=1)], elsewhere).difference


@pytest.mark.parametrize(
    ("values", "is_slow"),
    [
        ((1.00001, 1.00004, 1.0001), True),
        ((1.0002, 1.0002, 1.0002), False),  # more than rounding at once
        ((1.00001, 1.00004, 1.01), False),  # a jump
        ((1.00001, 1.0, digest(1.0, exact=8)), False),
    ],
)
def test_what_begins_as_rounding_and_grows_slowly_is_told_apart(
    values: tuple[Any, ...], is_slow: bool
) -> None:
    eager = [calls(1.0, 1.0, 1.0)]  # as of a backend that computes like eager
    found = compare([calls(1.0, 1.0, 1.0)], [calls(*values)], eager)
    assert (found.difference is not None, found.is_slow) == (True, is_slow)
    later = calls(5.0, function=OTHER, number=1), calls(6.0, function=OTHER, number=1)
    found = compare(
        [calls(1.0, 1.0, 1.0), later[0]], [calls(*values), later[1]], [*eager, later[0]]
    )
    assert not found.is_slow


def test_one_wrong_row_of_a_hundred_is_seen_in_16_bits_too() -> None:
    structure = "(bfloat16[100,64])"
    assert not compare([calls(0.0, structure=structure)], [calls(0.03, structure=structure)]).equal


@pytest.mark.parametrize("structure", ["None", "opaque:Cache"])
def test_what_returns_nothing_shows_nothing(structure: str) -> None:
    found = compare([calls(0.0, structure=structure)], [calls(0.0, structure=structure)])
    assert (found.compared, found.unseen) == (0, int(structure != "None"))


def test_of_what_is_not_compared_the_type_is_not_either() -> None:
    """A static cache in place of a growing one: what stands beside it is compared."""
    structures = [
        f"Output(logits=float32[4,8], cache=opaque:{name}Cache)" for name in ("", "Static")
    ]
    for value, equal in ((1.0, True), (2.0, False)):
        old, new = (
            calls(v, structure=its) for v, its in zip((1.0, value), structures, strict=True)
        )
        assert compare([old], [new]).equal is equal


def test_what_was_not_read_is_not_equal() -> None:
    structure = f"{NOT_COMPARED}a CUDA graph is captured"
    found = compare([calls(1.0, structure=structure)], [calls(1.0, structure=structure)])
    assert (found.compared, found.opaque) == (0, 1)


def test_a_callable_of_several_threads_has_an_order_in_each() -> None:
    twice = replace(calls(1.0), functions=(WHERE, WHERE))
    found = compare([twice], [twice])
    assert found.equal
