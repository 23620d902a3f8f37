"""Every session receives the groups and the steps in which they fired."""

import weakref
from binascii import crc32
from collections.abc import Iterator

import pytest

from compilediag.readers.journal import decode_line
from compilediag.timeline.process import assign_steps
from compilediag.timeline.recorded import CadenceGroup, collect_cadences
from compilediag_harness.base.session import Session
from compilediag_harness.user_api import cadence as module
from compilediag_harness.user_api.cadence import Cadence, cadence
from compilediag_harness.wire import (
    CadenceAsked,
    CadenceDeclared,
    CadenceFired,
    Event,
    StepsEnded,
    encode,
)

DECLARED = CadenceDeclared(0.0, 0, "entropy", 2, 0, 2)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """What one session is received; no group is left from another test."""
    monkeypatch.setattr(module, "_groups", weakref.WeakValueDictionary())
    received: list[Event] = []
    session = Session(received.append)
    module.sinks.install(session)
    yield received
    module.sinks.finish(session)
    module.sinks.uninstall(session)


def flushed(events: list[Event]) -> list[Event]:
    for sink in module.sinks.all:
        module.sinks.finish(sink.session)
    return events


def fired(events: list[Event]) -> list[tuple[str, int]]:
    """Group and step of every firing that was received."""
    return [
        (event.names[place], step)
        for event in flushed(events)
        if isinstance(event, CadenceFired)
        for place, step in zip(event.name, event.steps, strict=True)
    ]


def test_firings_carry_the_step_in_progress(events: list[Event]) -> None:
    """The harness's step, which the step times are received by, not the program's number."""
    entropy, norms = cadence("entropy", 2), cadence("norms", 3)
    session = module.sinks.all[-1].session
    for session.step in range(7):
        number = 100 + session.step
        entropy.due(number)
        norms.due(number)
    assert fired(events) == [
        ("entropy", 0), ("entropy", 2), ("norms", 2), ("entropy", 4), ("norms", 5), ("entropy", 6),
    ]  # fmt: skip


def test_the_first_question_carries_the_programs_own_step(events: list[Event]) -> None:
    """Once a group: with it a probe can set an offset in the program's own numbers."""
    entropy = cadence("entropy", 2)
    for number in (41, 42, 43):
        entropy.due(number)
        cadence("entropy", 2).due(number)
    asked = [event for event in events if isinstance(event, CadenceAsked)]
    assert [(event.name, event.number, event.step) for event in asked] == [("entropy", 41, 0)]


def test_a_late_session_receives_earlier_groups(events: list[Event]) -> None:
    """`watch()` around a loop whose groups were made before."""
    entropy = cadence("entropy", 250)
    cadence("gone", 2)
    late: list[Event] = []
    session = Session(late.append)
    module.sinks.install(session)
    module.sinks.uninstall(session)
    assert [(e.name, e.every, e.own_every) for e in late if isinstance(e, CadenceDeclared)] == [
        ("entropy", entropy.every, 250)
    ]


def test_without_a_session_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attribute check a question."""
    for name in ("_monotonic", "clip_name"):
        monkeypatch.setattr(module, name, None)
    assert not module.sinks.all
    assert [Cadence("entropy", 2).due(number) for number in range(3)] == [True, False, True]


def test_events_survive_the_journal(events: list[Event]) -> None:
    """They are read back as they were written."""
    cadence("entropy", 2).due(0)
    for event in flushed(events):
        payload = b"0 " + encode(event)
        assert decode_line(b"%08x %s" % (crc32(payload), payload)) == (0, event)


def test_steps_are_final_when_it_is_known_where_they_ended() -> None:
    """A firing that was received with a step that was taken back gets the step its time lies in."""
    batch = CadenceFired(0.9, ("entropy",), (0, 0), (0.1, 0.8), (0, 3))
    ends = StepsEnded(2.0, 0, "optimizer", (0.5, 1.0), (0.5, 0.5))
    events = assign_steps([DECLARED, CadenceAsked(0.1, 0, "entropy", 10), batch, ends])
    labelled = [event for event in events if not isinstance(event, StepsEnded)]
    (group,) = collect_cadences(0, labelled)
    assert (group.fires, group.shift, group.every) == ((0, 1), 10, 2)


def test_a_fork_leaves_the_firings_to_its_parent(events: list[Event]) -> None:
    """What the parent had not written yet is not written twice."""
    entropy = cadence("entropy", 1)
    entropy.due(0)
    entropy.due(1)
    module.sinks.discard()
    assert [step for _, step in fired(events)] == [0]


def test_a_doctored_batch_breaks_nothing() -> None:
    """A position that no name has is passed over."""
    (group,) = collect_cadences(
        0, [DECLARED, CadenceFired(1.0, ("entropy",), (0, 9), (0.1,), (1, 2))]
    )
    assert group.fires == (1,)


def group_of(*rows: tuple[int, int]) -> CadenceGroup:
    """A group by (step, the program's number) of its firings."""
    steps, numbers = zip(*rows, strict=True)
    batch = CadenceFired(1.0, ("entropy",), (0,) * len(rows), (0.1,) * len(rows), steps, numbers)
    (group,) = collect_cadences(0, [DECLARED, batch])
    return group


def test_one_number_in_two_steps_is_one_firing() -> None:
    """`due` was called before and after `optimizer.step()`, which ended a step."""
    group = group_of((3, 4), (4, 4), (7, 8), (8, 8))
    assert (group.fires, group.ends) == ((3, 7), (4, 8))
    assert group.steps == (3, 4, 7, 8)


def test_a_number_that_comes_again_is_another_firing() -> None:
    """The program counts anew in every epoch; neighbours with numbers of their own are two."""
    assert group_of((3, 4), (9, 4)).fires == (3, 9)
    assert group_of((3, 4), (4, 5)).fires == (3, 4)
    assert group_of((3, 4), (4, 4), (4, 5)).steps == (3, 4)
    assert group_of((3, 4), (3, 4)).steps == (3,)


def test_older_journals_have_no_numbers() -> None:
    """Each step is a firing, as it was."""
    batch = CadenceFired(1.0, ("entropy",), (0, 0), (0.1, 0.2), (3, 4))
    (group,) = collect_cadences(0, [DECLARED, batch])
    assert group.steps == group.fires == (3, 4)


def test_what_a_probe_set_stands_beside_the_programs_own(events: list[Event], monkeypatch) -> None:
    """A group that is off has period 0 and still its own."""
    monkeypatch.setenv("COMPILEDIAG_CADENCE_A", "off")
    monkeypatch.setenv("COMPILEDIAG_CADENCE_B", "7+3")
    cadence("a", 5)
    cadence("b", 5)
    received = [(e.every, e.offset, e.own_every) for e in events if isinstance(e, CadenceDeclared)]
    assert received == [(0, 0, 5), (7, 3, 5)]
