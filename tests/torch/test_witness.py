"""Who changes a guarded value, as it is seen in this process: the line, its callers, and nothing
else disturbed."""

import gc
import inspect
import sys
import threading
import weakref
from contextlib import contextmanager

import pytest
import torch
import torch._dynamo.utils as dynamo_utils
from attached import watched

from compilediag_harness import attach
from compilediag_harness.base.process_options import ProcessOptions, WriteTracingPlan
from compilediag_harness.blame import line_events
from compilediag_harness.blame import write_tracing as witness_module
from compilediag_harness.wire import Recompiled, Witnessed

pytestmark = [pytest.mark.filterwarnings("ignore")]

BY_TRACE_FUNCTION = sys.version_info < (3, 12)
FLAG = 0
EVERYTHING = WriteTracingPlan()
x = torch.ones(2, 4)


def changes_in(events):
    """Of each recompile, the changes of the guards of its nearest entry."""
    return [[guard.changed for guard in event.entries[0].guards] for event in events.of(Recompiled)]


def lines_in(events):
    """The source text of the line that each recompile's first guard was changed by."""
    return [text_at(changes[0].stack[0]) for changes in changes_in(events)]


def summary_of(events):
    """What following lines cost."""
    return events.of(Witnessed)[0]


def text_at(place):
    """The source text of a line of this file."""
    assert place.file == __file__, place
    with open(__file__) as file:
        return file.read().splitlines()[place.line - 1].strip()


@contextmanager
def witnessing(plan=EVERYTHING):
    """Follows lines around a block; the events are complete after it."""
    dynamo_utils.counters.clear()
    with watched(ProcessOptions(write_tracing=plan)) as events:
        yield events


def compiled(function):
    return torch.compile(function, backend="eager")


def armable():
    """A compiled function with a captured flag, and what sets the flag."""
    armed = False

    def probe(value):
        return value * 2 if armed else value + 1

    def arm(value):
        nonlocal armed
        armed = value  # the line

    return compiled(probe), arm


def outer(arm):
    arm(True)  # the caller


def test_a_captured_flag_is_changed_by_the_line_that_sets_it():
    with witnessing() as events:
        probe, arm = armable()
        probe(x)
        outer(arm)
        probe(x)
    [[change]] = changes_in(events)
    assert (change.old, change.new, change.in_call) == ("False", "True", False)
    assert [text_at(place) for place in change.stack[:2]] == [
        "armed = value  # the line",
        "arm(True)  # the caller",
    ]
    assert change.stack[0].function.endswith("arm")
    assert summary_of(events).stopped is None
    assert summary_of(events).line_events > 0


def test_a_captured_dict_that_grows_outside():
    with witnessing() as events:
        seen = {}

        def probe(value):
            return value * 2 if "key" in seen else value + 1

        compile_it = compiled(probe)
        compile_it(x)
        seen["other"] = 1
        seen["key"] = 2  # the line
        del seen["other"]
        compile_it(x)
    assert lines_in(events) == ['seen["key"] = 2  # the line']


class Model(torch.nn.Module):
    """Reads what its methods change."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 1
        self.parts = [1, 2]
        self.register_buffer("table", torch.zeros(1, 4), persistent=False)

    def set_scale(self, value):
        self.scale = value  # the method

    def grow(self, rows):
        self.table = torch.zeros(rows, 4)  # the buffer

    def forward(self, value):
        if self.table.shape[0] < value.shape[0]:
            self.grow(value.shape[0])
        total = self.linear(value) * self.scale + self.table[: value.shape[0]]
        for part in self.parts:
            total = total + part
        return total * 2 if self.training else total


def set_global(value):
    global FLAG
    FLAG = value  # the global


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda model: model.set_scale(3), "self.scale = value  # the method"),
        (lambda model: model.parts.append(3), "(lambda model: model.parts.append(3)"),
        (lambda model: model.eval(), "(lambda model: model.eval()"),
        (lambda model: model.requires_grad_(False), "(lambda model: model.requires_grad_(False)"),
    ],
    ids=["method", "list", "eval", "requires_grad"],
)
def test_an_attribute_of_a_module(change, expected):
    """What a library sets is the line of the user's that called it."""
    with witnessing() as events:
        model = Model()
        model.grow(8)
        compile_it = compiled(model)
        compile_it(x)
        change(model)
        compile_it(x)
    [line] = lines_in(events)
    assert line.startswith(expected)


def test_a_global():
    with witnessing() as events:
        set_global(0)

        def probe(value):
            return value + FLAG

        compile_it = compiled(probe)
        compile_it(x)
        set_global(1)
        compile_it(x)
    assert lines_in(events) == ["FLAG = value  # the global"]


def test_a_buffer_that_forward_grows_is_changed_inside_the_call():
    with witnessing() as events:
        compile_it = compiled(Model())
        compile_it(x)  # the call
        compile_it(x)
    [[change, *_]] = changes_in(events)
    assert change.in_call
    assert change.new.startswith("Tensor [2, 4]")
    assert [text_at(place) for place in change.stack[:2]] == [
        "self.table = torch.zeros(rows, 4)  # the buffer",
        "compile_it(x)  # the call",
    ]


class Setting:
    """Its attribute is of the class at first."""

    flag = False


def test_an_attribute_of_a_class():
    with witnessing() as events:
        held = Setting()
        compile_it = compiled(lambda value: value * 2 if held.flag else value + 1)
        compile_it(x)
        Setting.flag = True  # the class
        compile_it(x)
        Setting.flag = False
    assert lines_in(events) == ["Setting.flag = True  # the class"]


@pytest.mark.parametrize("name", ["flag", "other"])
def test_an_attribute_that_an_object_has_not_yet(name):
    with witnessing() as events:
        held = Setting()

        def probe(value):
            return value * 2 if getattr(held, name, False) else value + 1

        compile_it = compiled(probe)
        compile_it(x)
        setattr(held, name, True)  # the attribute
        compile_it(x)
    assert lines_in(events) == ["setattr(held, name, True)  # the attribute"]


def test_grad_mode():
    with witnessing() as events:
        compile_it = compiled(lambda value: value * 2)
        compile_it(x)
        with torch.no_grad():  # the mode
            compile_it(x)
    assert lines_in(events) == ["with torch.no_grad():  # the mode"]


def failing(arm):
    arm(True)
    raise ValueError


def resumed(arm):
    yield
    arm(True)  # the generator
    yield


def test_a_change_before_an_exception_and_in_a_generator():
    with witnessing() as events:
        for change in (failing, resumed):
            probe, arm = armable()
            probe(x)
            if change is failing:
                with pytest.raises(ValueError):
                    change(arm)
            else:
                list(change(arm))
            probe(x)
            torch._dynamo.reset()
    assert lines_in(events) == ["armed = value  # the line"] * 2
    callers = [text_at(changes[0].stack[1]) for changes in changes_in(events)]
    assert callers == ["arm(True)", "arm(True)  # the generator"]


def test_a_thread_changes_the_value():
    """The line of the thread, or nothing: never a line of the thread that waits for it."""
    with witnessing() as events:
        probe, arm = armable()
        probe(x)
        thread = threading.Thread(target=outer, args=(arm,))
        thread.start()
        thread.join()
        probe(x)
    [[change]] = changes_in(events)
    assert change is None or text_at(change.stack[0]) == "armed = value  # the line"


def parked(begun, events):
    for event in events:
        begun.release()
        event.wait()


def test_a_change_is_nobodys_while_another_thread_runs_lines_of_the_user():
    """A thread that waits has changed nothing; one that has moved since the last look may have."""
    begun, events = threading.Semaphore(0), [threading.Event(), threading.Event()]
    with witnessing():
        (attachment,) = attach._attachments.values()
        witness = attachment._collectors._write_tracer
        thread = threading.Thread(target=parked, args=(begun, events))
        thread.start()
        begun.acquire()
        while not witness._is_alone():  # until it is asleep
            pass
        assert witness._is_alone()
        events[0].set()
        begun.acquire()
        assert not witness._is_alone()
        events[1].set()
        thread.join()
        assert not witness._is_alone()
        assert witness._is_alone()


def test_a_change_that_may_be_another_threads_has_no_line(monkeypatch):
    with witnessing() as events:
        probe, arm = armable()
        probe(x)
        monkeypatch.setattr(witness_module.WriteTracer, "_is_alone", lambda witness: False)
        arm(True)
        monkeypatch.undo()
        probe(x)
    assert changes_in(events) == [[None]]


def test_a_finalizer_in_a_comparison_may_call_compiled_code(monkeypatch):
    """Nothing waits for a lock of ours, and lines are followed as before."""
    compare = witness_module.WatchedValues.collect_changes
    busy, called = [], []

    def compare_and_finalize(values):
        if not busy:
            busy.append(True)
            called.append(other(x))
            busy.clear()
        return compare(values)

    def use():
        other(x)
        monkeypatch.setattr(witness_module.WatchedValues, "collect_changes", compare_and_finalize)
        probe(x)
        arm(True)
        probe(x)
        monkeypatch.undo()

    with witnessing() as events:
        (probe, arm), other = armable(), compiled(lambda value: value + 2)
        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(20)
        ended = not thread.is_alive()
        if not ended:  # it goes on, so that the next test can begin
            attach._attachments[id(events.session)]._collectors._write_tracer._lock.release()
    assert ended
    assert called
    change = changes_in(events)[-1][0]  # `other` may compile again: torch functions were disabled
    assert text_at(change.stack[0]) == "armed = value  # the line"


class Poisoned:
    """Any code of it that runs is a failure."""

    def __init__(self):
        object.__setattr__(self, "level", 1)
        object.__setattr__(self, "ran", [])

    def __getattr__(self, name):
        self.ran.append(name)
        raise AttributeError(name)

    def __eq__(self, other):
        self.ran.append("__eq__")
        return NotImplemented

    __hash__ = object.__hash__

    def __repr__(self):
        self.ran.append("__repr__")
        return "Poisoned()"

    @property
    def computed(self):
        self.ran.append("computed")
        return self.level


def test_no_code_of_the_program_runs_for_a_look():
    def calls(follow):
        with witnessing() if follow else watched():
            held = Poisoned()

            def probe(value):
                return value * held.computed

            compile_it = compiled(probe)
            compile_it(x)
            object.__setattr__(held, "level", 2)
            text = "no line of the program reads it here"
            assert text
            compile_it(x)
        return held.ran

    assert calls(follow=True) == calls(follow=False)


def test_what_the_program_drops_is_gone():
    with witnessing():
        model = Model()
        compile_it = compiled(model)
        compile_it(x)
        table = weakref.ref(model.table)
        model.grow(9)
        gone = table() is None
        reference = weakref.ref(model)
        del model, compile_it
        torch._dynamo.reset()
        probe, _ = armable()
        probe(x)  # Python 3.11 keeps deleted locals of traced functions until it is read again
        gc.collect()
        dropped = reference() is None
    assert gone
    assert dropped


def program():
    """Recompiles by flags, with a graph break, and helpers of the user's in compiled code."""
    probe, arm = armable()
    model = Model()
    compile_model = compiled(model)

    def broken(value):
        torch._dynamo.graph_break()
        return value * model.scale

    compile_broken = compiled(broken)
    for step in range(6):
        arm(step % 3 == 2)
        model.set_scale(step // 2)
        probe(x)
        compile_model(x)
        compile_broken(x).sum()


def test_compiles_and_breaks_are_those_of_a_plain_run():
    def counts():
        program()
        rows = dynamo_utils.get_compilation_metrics()
        kept = ("frames", "stats", "graph_break", "inline_call", "unimplemented")
        counters = {name: dict(dynamo_utils.counters[name]) for name in kept}
        return counters, sorted(str(row.compile_id) for row in rows[-counters["frames"]["total"] :])

    dynamo_utils.clear_compilation_metrics()
    torch._dynamo.reset()
    dynamo_utils.counters.clear()
    expected = counts()
    dynamo_utils.clear_compilation_metrics()
    with witnessing() as events:
        assert counts() == expected
    assert summary_of(events).line_events > 20
    assert expected[0]["stats"]["unique_graphs"] > 5


def test_only_the_steps_before_a_recompile_are_followed():
    with witnessing(WriteTracingPlan(steps=frozenset({5}))) as events:
        probe, arm = armable()
        for step in range(8):
            arm(step >= 5)
            probe(x)
    assert lines_in(events) == ["armed = value  # the line"]
    few = summary_of(events).line_events
    with witnessing() as events:
        probe, arm = armable()
        for step in range(8):
            arm(step >= 5)
            probe(x)
    assert lines_in(events) == ["armed = value  # the line"]
    assert 0 < few < summary_of(events).line_events / 2


def test_a_change_in_a_step_that_is_not_followed_is_nobodys():
    with witnessing(WriteTracingPlan(steps=frozenset({6}))) as events:
        probe, arm = armable()
        for step in range(8):
            arm(step >= 2)
            probe(x)
    assert changes_in(events) == [[None]]


def test_only_the_sources_of_the_plan_are_watched():
    with witnessing(WriteTracingPlan(sources=frozenset({"L['armed']"}))) as events:
        probe, arm = armable()
        probe(x)
        arm(True)
        probe(x)
    assert lines_in(events) == ["armed = value  # the line"]
    assert summary_of(events).values <= 3


def test_after_too_many_lines_nothing_is_followed(monkeypatch):
    monkeypatch.setattr(witness_module, "MAX_LINES", 3)
    with witnessing() as events:
        probe, arm = armable()
        probe(x)
        for _ in range(9):
            pass
        assert sys.gettrace() is None
        arm(True)
        probe(x)
    assert changes_in(events) == [[None]]
    assert summary_of(events).stopped == "after 3 lines"
    assert summary_of(events).line_events == 3


@pytest.mark.skipif(not BY_TRACE_FUNCTION, reason="sys.monitoring has room for all")
@pytest.mark.parametrize("first", [True, False], ids=["was there first", "comes later"])
def test_a_trace_function_of_the_program_stays(first):
    def theirs(frame, event, arg):
        return None

    if first:
        sys.settrace(theirs)
    try:
        with witnessing() as events:
            probe, arm = armable()
            probe(x)
            if not first:
                sys.settrace(theirs)
            arm(True)
            probe(x)
            assert sys.gettrace() is theirs
    finally:
        sys.settrace(None)
    expected = line_events.OTHER_TRACER if first else line_events.REPLACED
    assert summary_of(events).stopped == expected
    assert (summary_of(events).line_events == 0) is first
    assert changes_in(events) == [[None]]


def test_nothing_is_left_behind():
    with witnessing():
        probe, _ = armable()
        probe(x)
    assert sys.gettrace() is None
    assert threading.gettrace() is None
    assert inspect.currentframe().f_trace is None or sys.gettrace() is None
    if not BY_TRACE_FUNCTION:
        assert [sys.monitoring.get_tool(tool) for tool in (3, 4)] == [None, None]


def test_a_forked_child_follows_nothing():
    import os

    with witnessing():
        probe, arm = armable()
        probe(x)
        child = os.fork()
        if child == 0:
            arm(True)
            os._exit(0 if sys.gettrace() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
