"""The sizes that several cache entries of a frame serve together, and why each of them ends."""

from dataclasses import replace

import msgspec
import pytest
from built_receipt import built
from timelines import FILE, WHERE, attempt, false_guard, recompile, timeline

from compilediag.diagnosis.figures.accepted_sizes import list_accepted_sizes
from compilediag.views.graphs import list_served
from compilediag.views.style import PLAIN
from compilediag_harness.wire import (
    EntryDiff,
    EntryServed,
    InputsGuarded,
    SizeGuard,
    SizesGuarded,
    TensorGuard,
)

SIZE = "L['x'].size()[0]"
CONV = SizeGuard("s0 < 16", (("s0", SIZE),), (), ("conv", "run_node"), (WHERE,), ("conv(x)",))
BACKEND = SizeGuard("s0 <= 64", (("s0", SIZE),), (), (), (), ())
SMALL, LARGE = f"2 <= {SIZE} and {SIZE} < 16", f"16 <= {SIZE} and {SIZE} <= 64"


def _say(former: str, latest: str, *known: SizeGuard) -> str:
    """The sentence on a frame with two entries; `known`: conditions of the latest one, and then of
    the former one."""
    entry = EntryDiff("0/0", (false_guard("L['x']", former, leaf="SHAPE"),))
    cause = replace(recompile(), entries=(entry,))
    compiles = (attempt(), attempt("0/1", kind="recompile", step=1, cause=cause))
    tensor = TensorGuard("L['x']", "check_tensor(L['x'], ", (8, 4), (4, 1))
    texts = {"0/0": former, "0/1": latest}
    run = timeline(
        compiles,
        guarded_inputs=tuple(
            InputsGuarded(0.0, 0, key, 0, (tensor,), tuple(text.split(" and ")))
            for key, text in texts.items()
        ),
        served=(EntryServed(0.0, 1, "0/1", 0, again=True),),
        guarded_sizes=tuple(
            SizesGuarded(0.0, 0, key, 0, (guard,))
            for key, guard in zip(("0/1", "0/0"), known, strict=False)
        ),
    )
    sizes = [its for its in list_accepted_sizes(run) if its.dimensions == ("x.shape[0]",)]
    receipt = built()
    section = msgspec.structs.replace(receipt.compile, accepted_sizes=tuple(sizes))
    said = list_served(msgspec.structs.replace(receipt, compile=section), PLAIN)[0]
    return said.partition(" serves x.shape[0] ")[2]


@pytest.mark.parametrize(
    ("known", "outer"),
    [((CONV,), ""), ((CONV, BACKEND), " (guard: x.size()[0] <= 64)")],
)
def test_a_reason_is_that_of_the_graph_that_ends_there(
    known: tuple[SizeGuard, ...], outer: str
) -> None:
    """The graph of 2 to 15, compiled last, ends at 16, where another one goes on to 64: its reason
    is none for 65, of which nothing is said where that of the other is not known."""
    inner = f"in 2 graphs (split at 16: guard of torch's conv: x.size()[0] < 16, {FILE}:10)"
    again = f"and compiles again for 1 and 65 or more{outer}"
    assert _say(LARGE, SMALL, *known) == f"2–64 {inner}, {again}"


def test_a_graph_that_another_one_covers_is_none_that_the_sizes_need() -> None:
    wide = f"2 <= {SIZE} and {SIZE} <= 64"
    assert _say(wide, SMALL, CONV) == "2–64, and compiles again for 1 and 65 or more"
    assert _say(SMALL, wide, BACKEND).endswith("1 and 65 or more (guard: x.size()[0] <= 64)")


def test_of_two_sides_the_reason_stands_behind_the_one_it_is_of() -> None:
    """What refuses smaller sizes is not said behind larger ones, but where none is larger."""
    least = replace(BACKEND, expression="4 <= s0")
    assert _say(LARGE, f"4 <= {SIZE} and {SIZE} < 16", least).endswith("less than 4 and 65 or more")
    every = f"4 <= {SIZE}"
    assert _say(LARGE, every, least).endswith("for less than 4 (guard: 4 <= x.size()[0])")
