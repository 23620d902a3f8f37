"""Batches of spans taken apart: the same spans, and nothing a doctored journal can break."""

from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.timeline.invocations import collect_disabled_calls
from compilediag.timeline.process import unpack_batches
from compilediag.timeline.timeline import CallsOutside
from compilediag_harness import wire
from compilediag_harness.base.session import Session

HOOK, OTHER = wire.Location("a.py", 1, "hook"), wire.Location("b.py", 2, "other")


def batch(**changes: object) -> wire.SpansEnded:
    made: dict[str, object] = {
        "t": 3.0,
        "names": ("eval", "metrics"),
        "depths": (0, 1),
        "threads": (0, 7),
        "phases": ("rest", ""),
        "kinds": (1, 0, 1),
        "steps": (4, 4, 5),
        "starts_ns": (1_000_000_000, 500_000_000, 2_500_000_000),
        "walls_ns": (250_000_000, 1_000_000_000, 125_000_000),
        **changes,
    }
    return wire.SpansEnded(**made)  # pyright: ignore[reportArgumentType]


def test_a_batch_is_its_spans() -> None:
    """In the order they ended, among the other events."""
    other = wire.StepsEnded(1.0, 0, "optimizer", (1.0,), (1.0,))
    assert list(unpack_batches([other, batch()])) == [
        other,
        wire.SpanEnded(1.25, 4, "metrics", 1.0, 0.25, 1, 7, None),
        wire.SpanEnded(1.5, 4, "eval", 0.5, 1.0, 0, 0, "rest"),
        wire.SpanEnded(2.625, 5, "metrics", 2.5, 0.125, 1, 7, None),
    ]


def test_old_records_stay_as_they_are() -> None:
    """A journal of before batches holds one record a span."""
    old: list[wire.Event] = [wire.SpanEnded(1.0, 0, "eval", 0.0, 1.0, 0, 0)]
    assert list(unpack_batches(old)) == old


NUMBERS = st.lists(st.integers(-5, 5), max_size=4).map(tuple)


@settings(deadline=None)
@given(names=st.lists(st.text(), max_size=3).map(tuple), kinds=NUMBERS, starts_ns=NUMBERS)
def test_a_doctored_batch_gives_what_all_of_it_tells(names, kinds, starts_ns) -> None:
    """Tuples of other lengths and kinds that are none: no error, and no span without a name."""
    doctored = batch(names=names, kinds=kinds, starts_ns=starts_ns)
    found = [event for event in unpack_batches([doctored]) if isinstance(event, wire.SpanEnded)]
    assert len(found) <= min(len(kinds), len(starts_ns), 3)
    assert all(event.name in names for event in found)


def test_what_is_written_is_read() -> None:
    """The harness's own batches, to the nanosecond."""
    from compilediag_harness.user_api import spans

    events: list[wire.Event] = []
    session = Session(events.append)
    spans.install(session)
    for name in ("one", "two", "one"):
        with spans.span(name):
            pass
    spans.finish(session)
    spans.uninstall(session)
    found = [event for event in unpack_batches(events) if isinstance(event, wire.SpanEnded)]
    assert [event.name for event in found] == ["one", "two", "one"]
    assert all(event.wall_s >= 0.0 for event in found)
    assert [event.t for event in found] == sorted(event.t for event in found)


def test_sums_of_calls_are_added_up() -> None:
    """Each function once a phase; the longest is the longest of all."""
    batches = (
        wire.DisabledCallsEnded(
            1.0, (HOOK, OTHER), ("forward", "rest"), (2, 1), (1.0, 4.0), (0.75, 4.0)
        ),
        wire.DisabledCallsEnded(
            2.0, (HOOK, HOOK), ("forward", "rest"), (3, 1), (1.5, 0.5), (0.5, 0.5)
        ),
    )
    assert collect_disabled_calls(0, batches) == [
        CallsOutside(0, HOOK, "forward", 5, 2.5, 0.75),
        CallsOutside(0, OTHER, "rest", 1, 4.0, 4.0),
        CallsOutside(0, HOOK, "rest", 1, 0.5, 0.5),
    ]
