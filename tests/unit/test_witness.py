"""Witnessed changes: how guards' values are reached and compared, how a change becomes a writer, a
field of the receipt and words on the screen, and what an earlier run makes worth following."""

import json
import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import timelines
from built_receipt import built
from false_guards import FLAG, FRAME, PE

from compilediag.diagnosis.causes.run_causes import find_run_causes, list_causes
from compilediag.receipt.schema.compiles import WriteTracingSection
from compilediag.runs.supervised.target import limit_plan, plan_write_tracing
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag.views.style import RenderOptions
from compilediag.views.verdict import render
from compilediag_harness.base.object_graph import MISSING, Hop, read
from compilediag_harness.base.process_options import WriteTracingPlan
from compilediag_harness.blame.guard_sources import parse_path
from compilediag_harness.blame.line_events import Monitoring, TraceFunction, pause_in_compiles
from compilediag_harness.blame.watched_values import (
    WatchedValues,
    format_snapshot,
    has_changed,
    take_snapshot,
)
from compilediag_harness.wire import FalseGuard, Location, ValueChange

ARM = Location("/home/u/train.py", 34, "watch.<locals>.arm")
MAIN = Location("/home/u/train.py", 49, "<module>")
SEEN = ValueChange("False", "True", (ARM, MAIN), in_call=False, step=0)


def recompile(step: int, guard: FalseGuard) -> Recompile:
    again = timelines.recompile(f"0/{step}", step=step, where=FRAME, guards=(guard,))
    return replace(again, reasons=())


# --- reaching a value ------------------------------------------------------------------------


class Held:
    """Anything of it that runs is a failure."""

    constant = 4

    def __init__(self) -> None:
        self.flag = True
        self.items = {"a": [1, 2]}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def computed(self) -> Any:
        raise AssertionError("computed")


class Slotted:
    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 3


def reached(source: str, root: object) -> Any:
    path = parse_path(source)
    value = root
    for hop in path.hops:
        value = read(hop, value)
    return value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("L['self'].flag", True),
        ("L['self'].constant", 4),
        ("L['self'].items['a'][1]", 2),
        ("dict.__getitem__(L['self'].items, 'a')[0]", 1),
        ("L['self'].items[list(dict.keys(L['self'].items))[0]]", [1, 2]),
        ("dict(type(L['self']).__dict__)['constant']", 4),
        ("L['self'].__dict__['flag']", True),
    ],
)
def test_sources_as_torch_writes_them(source: str, value: object) -> None:
    held = Held()
    assert reached(source, held) == value


@pytest.mark.parametrize("name", ["absent", "computed"])
def test_nothing_of_the_program_runs(name: str) -> None:
    assert reached(f"L['self'].{name}", Held()) is MISSING


def test_slots_cells_and_methods() -> None:
    assert reached("L['it'].level", Slotted()) == 3
    flag = True
    cell = Hop("item", 0)
    function = lambda: flag
    hops = (Hop("attribute", "__closure__"), cell, Hop("attribute", "cell_contents"))
    value: object = function
    for hop in hops:
        value = read(hop, value)
    assert value is True
    assert reached("L['it'].__func__", Held.__init__.__get__(Held.__new__(Held))) is Held.__init__


@pytest.mark.parametrize("source", ["", "L", "L['x'][y]", "f(L['x'])", "L['x'", "1 + 2"])
def test_other_texts_are_no_path(source: str) -> None:
    assert parse_path(source) is None


# --- comparing two looks ---------------------------------------------------------------------


def test_looks() -> None:
    """By value where that is safe, by length and keys, else by identity; each with its text."""
    assert take_snapshot(1) == take_snapshot(1) != take_snapshot(True)
    assert take_snapshot(1.5) != take_snapshot(2.5)
    assert format_snapshot(take_snapshot("x" * 400)) == "str of 400 characters"
    grown: dict[str, int] = {}
    empty = take_snapshot(grown)
    grown["key"] = 1
    assert (format_snapshot(empty), format_snapshot(take_snapshot(grown))) == ("0 keys", "1 key")
    assert format_snapshot(take_snapshot(Held())) == "Held object"
    assert format_snapshot(take_snapshot(MISSING)) == "absent"


def test_a_guard_is_about_a_part_of_a_value() -> None:
    one, two = {"a": 1}, {"a": 1}
    before = take_snapshot(one)
    one["b"] = 2
    after = take_snapshot(one)
    assert has_changed(before, after, None)
    assert has_changed(before, after, "length")
    assert has_changed(before, after, "key 'b'")
    assert not has_changed(before, after, "key 'a'")
    assert not has_changed(before, take_snapshot(two), "key 'a'")
    assert has_changed(take_snapshot(MISSING), after, "presence")
    assert not has_changed(before, after, "presence")


def test_a_watch_ends_with_its_object_and_with_the_limit() -> None:
    watches, held = WatchedValues(3), Held()
    watches.add(held, (Hop("attribute", "flag"),))
    watches.add(held, (Hop("attribute", "items"), Hop("item", "a"), Hop("item", 0)))
    assert (watches.count, watches.left_out) == (3, 1)
    held.flag = False
    [(place, old, new)] = watches.collect_changes()
    assert watches.find(held, (Hop("attribute", "flag"),)) is place
    assert (format_snapshot(old), format_snapshot(new)) == ("True", "False")
    assert watches.collect_changes() == []
    del held
    assert (watches.collect_changes(), watches.count) == ([], 0)


def test_an_id_that_is_used_again_takes_the_old_values_with_it() -> None:
    """They are gone before the next comparison finds their object dead."""
    watches, held, other = WatchedValues(9), Held(), Held()
    watches.add(held, (Hop("attribute", "flag"),))
    roots = watches._roots  # pyright: ignore[reportPrivateUsage]
    roots[id(other)] = roots.pop(id(held))  # as if `other` were where `held` was
    del held
    watches.add(other, (Hop("attribute", "flag"),))
    assert (watches.count, watches.collect_changes(), watches.count) == (1, [], 1)


# --- from a change to a writer ---------------------------------------------------------------


def of(guard: FalseGuard) -> Any:
    [cause] = list_causes(recompile(1, guard))
    return cause


def test_inside_a_call_the_line_is_one_of_the_source_or_not_known() -> None:
    grow = Location("/home/u/model.py", 30, "Model.grow")
    inside = replace(SEEN, in_call=True, stack=(MAIN,))
    unknown = of(replace(PE, changed=inside, writers=(grow, ARM)))
    assert (unknown.writers, unknown.write_traced) == ((grow, ARM), False)
    known = of(replace(PE, changed=replace(inside, stack=(grow, MAIN)), writers=(grow, ARM)))
    assert (known.writers, known.write_traced) == ((grow,), True)


def test_a_finding_has_the_change_of_its_first_recompile() -> None:
    """The one whose values it shows; writers of recompiles that were not seen stay guesses."""
    items = (recompile(3, FLAG), recompile(7, replace(FLAG, changed=SEEN)))
    [group] = find_run_causes(Timeline(recompiles=items)).groups["CD101"]
    assert group.first.changed is None
    assert group.writers == [(ARM, "witnessed"), (FLAG.writers[0], "source")]
    [group] = find_run_causes(Timeline(recompiles=items[::-1])).groups["CD101"]
    assert group.first.changed == SEEN


# --- receipt and screen ----------------------------------------------------------------------


def screen(change: ValueChange | None, **witness: Any) -> tuple[Any, str]:
    """The receipt of the example with a change, and its screen."""
    from compilediag.receipt.compiles import make_changed_at
    from compilediag.receipt.sanitize import sanitize
    from compilediag_harness.redaction.redactor import Redactor

    receipt = built()
    found, _ = sanitize(make_changed_at(change), Redactor(), {"/home/u"})
    evidence = "witnessed" if change is not None else "source"
    writer = {"function": "arm", "file": "train.py", "line": 34, "evidence": evidence}
    import msgspec

    finding = msgspec.structs.replace(
        receipt.findings[0],
        changed_at=found,
        evidence={**receipt.findings[0].evidence, "writers": [writer], "compile_ids": []},
        id="F77",
    )
    section = WriteTracingSection(line_events=155, seconds=0.02, values=3, **witness)
    shown = msgspec.structs.replace(receipt, findings=(finding,), write_tracing=section)
    return finding, render(shown, RenderOptions(width=160))


def test_the_screen_names_the_line_first() -> None:
    finding, text = screen(SEEN)
    assert [(each.line, each.function) for each in finding.changed_at.stack] == [
        (34, "watch.<locals>.arm"),
        (49, "<module>"),
    ]
    assert "     changed by arm, train.py:34, called from train.py:49 (seen)" in text
    assert "written by" not in text
    assert "write tracing: 155 lines followed, 3 values watched, 20 ms" in text


def test_a_change_inside_a_call_is_told_apart() -> None:
    _, text = screen(replace(SEEN, in_call=True))
    assert "changed by arm, train.py:34, inside the call train.py:49 (seen)" in text
    _, text = screen(replace(SEEN, in_call=True, stack=(MAIN,)))
    assert "changed inside the compiled call, train.py:49 (seen)" in text


def test_the_screen_says_why_nothing_was_seen() -> None:
    _, text = screen(None, stopped="a debugger", stopped_step=4)
    assert "written by arm, train.py:34" in text
    assert "3 values watched, 20 ms; not traced after step 4: a debugger" in text


# --- what an earlier run makes worth following -----------------------------------------------


def test_the_plan_has_the_steps_and_guards_of_the_recompiles() -> None:
    plan = plan_write_tracing(built())
    assert plan.steps
    assert all(source.startswith(("L", "G")) for source in plan.sources)
    step = min(plan.steps)
    assert plan.should_follow(step - 1)
    assert plan.should_follow(step)
    assert not plan.should_follow(max(plan.steps) + 1)
    assert WriteTracingPlan().should_follow(99)


def test_a_plan_is_no_larger_than_a_variable_may_be() -> None:
    plan = WriteTracingPlan(frozenset({3, 7}), frozenset({"L['self'].flag"}))
    assert limit_plan(plan) == plan
    many = WriteTracingPlan(frozenset({3}), frozenset({"x" * 70_000}))
    assert limit_plan(many) == WriteTracingPlan(frozenset({3}))
    assert limit_plan(WriteTracingPlan(frozenset(range(20_000)))) == WriteTracingPlan()


# --- sys.monitoring, as Python 3.12 has it ---------------------------------------------------


class Events:
    PY_START, PY_RESUME, LINE, PY_RETURN, PY_YIELD, PY_UNWIND = 1, 2, 4, 8, 16, 32


class Api:
    """The part of `sys.monitoring` that is used."""

    events, DISABLE = Events, object()

    def __init__(self, taken: tuple[int, ...] = ()) -> None:
        self.tools: dict[int, str] = dict.fromkeys(taken, "other")
        self.callbacks: dict[int, Any] = {}
        self.wanted = 0
        self.local: dict[types.CodeType, int] = {}

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        assert tool not in self.tools
        self.tools[tool] = name

    def free_tool_id(self, tool: int) -> None:
        del self.tools[tool]

    def register_callback(self, tool: int, event: int, callback: Any) -> None:
        self.callbacks[event] = callback

    def set_events(self, tool: int, events: int) -> None:
        self.wanted = events

    def set_local_events(self, tool: int, code: types.CodeType, events: int) -> None:
        self.local[code] = events


def listener(calls: list[tuple[str, str, int]]) -> Any:
    """What is told of lines, as it is written down."""
    return types.SimpleNamespace(
        handle_entry=lambda frame: calls.append(("entered", frame.f_code.co_name, 0)),
        handle_line=lambda frame, line: calls.append(("line", frame.f_code.co_name, line)),
        handle_exit=lambda frame: calls.append(("left", frame.f_code.co_name, 0)),
    )


def test_monitoring_follows_code_of_the_user_alone() -> None:
    """Its callbacks run in the frame of that code, as the interpreter calls them."""
    calls: list[tuple[str, str, int]] = []
    api = Api()
    events = Monitoring(listener(calls), monitoring=api)
    assert (events.problem, api.tools) == (None, {4: "compilediag"})
    assert events.resume()
    assert api.wanted == Events.PY_START | Events.PY_RESUME | Events.PY_UNWIND

    def own() -> None:
        code = sys._getframe().f_code  # pyright: ignore[reportPrivateUsage]
        assert api.callbacks[Events.PY_START](code, 0) is None
        assert api.local[code] == Events.LINE | Events.PY_RETURN | Events.PY_YIELD
        api.callbacks[Events.LINE](code, 7)
        events.pause()
        api.callbacks[Events.LINE](code, 8)
        events.resume()
        api.callbacks[Events.PY_UNWIND](code, 0, ValueError())
        api.callbacks[Events.PY_RETURN](code, 0, None)

    own()
    assert calls == [
        *(("entered", "own", 0), ("line", "own", 7)),
        *(("left", "own", 0), ("left", "own", 0)),
    ]
    library: dict[str, Any] = {"api": api, "events": Events}
    path = json.__file__  # of the standard library
    exec(compile("answer = api.callbacks[events.PY_START](None, 0)", path, "exec"), library)
    assert library["answer"] is Api.DISABLE
    events.close()
    assert (api.tools, api.wanted, set(api.local.values())) == ({}, 0, {0})


def test_other_tools_keep_their_ids() -> None:
    assert Monitoring(listener([]), monitoring=Api(taken=(4,))).problem is None
    full = Monitoring(listener([]), monitoring=Api(taken=(3, 4)))
    assert full.problem is not None
    assert not full.resume()


def test_no_line_is_followed_in_a_thread_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two compiles in turn; a begin in a thread that is not followed begins nothing at its end."""
    begins, ends, lines = list[Any](), list[Any](), list[int]()
    compiles = "compilediag_harness.torch_internals.torch_compiles"
    monkeypatch.setattr(f"{compiles}.watch_compile_starts", begins.append)
    monkeypatch.setattr(f"{compiles}.watch_compile_ends", ends.append)
    listener = types.SimpleNamespace(
        handle_entry=lambda frame: None,
        handle_line=lambda frame, line: lines.append(line),
        handle_exit=lambda frame: None,
    )
    kept = sys.gettrace()
    sys.settrace(None)
    try:
        events = TraceFunction(listener, lambda frame: frame.f_code is looked_at.__code__)
        pause_in_compiles(events)
        ((begin,), (end,)) = begins, ends
        begin("DYNAMO", "0/0")
        end()
        assert not events.is_following()
        assert events.resume()
        for _ in range(2):
            begin("DYNAMO", "0/0")
            looked_at()
            assert not lines
            end()
        looked_at()
        assert lines
        assert events.problem is None
        events.close()
    finally:
        sys.settrace(kept)


def looked_at() -> int:
    return 1
