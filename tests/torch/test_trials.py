"""What a trial changes in this process, the answers it records, and that a plan without changes
changes nothing."""

import collections
import dataclasses
import enum
import functools
import gc
import math
import random
import sys
import threading
import weakref
from contextlib import contextmanager, suppress

import pytest
import torch
import torch._dynamo.utils as dynamo_utils
from attached import watched
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from compilediag.certify.calls import read_calls
from compilediag.timeline.timeline import fold
from compilediag_harness import wire
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.torch_internals import torch_calls, torch_open_calls
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.trials import sampled_values, settings

pytestmark = [pytest.mark.filterwarnings("ignore")]


def applied_in(events):
    """The last outcome of each change, but for the seed of the recording."""
    applied = {event.change: event.problem for event in events.of(wire.TrialApplied)}
    applied.pop(wire.describe_seed(SEED), None)
    return applied


def outputs_in(events):
    """The recorded calls: function, and what it returned."""
    calls = read_calls(fold([list(events)])).get((0, 0), {})
    return [
        (made.function.function, made.structure, made.digest)
        for of_one in calls.values()
        for made in of_one
    ]


@contextmanager
def trying(plan=None):
    """Runs a block as a trial whose calls are recorded; a plain session without a plan."""
    dynamo_utils.counters.clear()
    if plan is not None and not plan.call_seconds:
        plan = dataclasses.replace(plan, recording=plan.recording or RECORDED.recording)
    try:
        with watched(trial=plan) as events:
            yield events
    finally:
        torch.compiler.set_stance("default")


SEED = 77
RECORDED = wire.TrialPlan(recording=wire.RecordingPlan(seed=SEED))


def compiled(function, **options):
    return torch.compile(function, backend="eager", **options)


class Counter(torch.nn.Module):
    """A module with a counter of its own, a buffer and random numbers."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(()))
        self.calls = 0
        self._mode = "train"
        self.sizes = [1, 2]

    def forward(self, x):
        self.calls += 1
        self.total += x.sum()
        return torch.nn.functional.dropout(self.linear(x), 0.5, self.training) * self.calls


def program():
    """Recompiles, breaks, draws random numbers and returns what it computed."""

    def broken(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + torch.rand(4)

    model, results = Counter(), []
    run, other = compiled(model), compiled(broken)
    for size in (2, 3, 2, 4):
        results.append(run(torch.randn(size, 4)).tolist())
        results.append(other(torch.randn(4)).tolist())
    return results, model.calls, model.total.item()


def seeded(plan=None):
    """What the program computed, torch's own counts, and where the generators are."""
    with trying(plan) as events:
        torch.manual_seed(0)
        random.seed(0)
        results = program()
        frames = dict(dynamo_utils.counters["frames"])
        breaks = sum(dynamo_utils.counters["graph_break"].values())
        graphs = dynamo_utils.counters["stats"]["unique_graphs"]
    made = frames, breaks, graphs, len(events.of(wire.Compiled)), len(events.of(wire.Recompiled))
    return events, (results, made, torch.random.get_rng_state().tolist(), random.getstate())


def test_a_plan_without_changes_changes_nothing():
    """Results, random state, compiles, breaks and recompiles are those of a plain run."""
    seeded()  # what torch imports in its first compile is found by finders of other tests
    _, plain = seeded()
    events, tried = seeded(wire.TrialPlan())
    assert tried == plain
    assert outputs_in(events)
    assert not applied_in(events)


def test_two_runs_of_one_program_give_the_same_answers():
    first, second = seeded(wire.TrialPlan())[0], seeded(wire.TrialPlan())[0]
    assert outputs_in(first) == outputs_in(second)
    first, second = seeded(RECORDED)[0], seeded(RECORDED)[0]

    def states(events):
        return [dataclasses.replace(event, t=0.0) for event in events.of(wire.StateRead)]

    assert states(first) == states(second) != []
    assert first.of(wire.RandomStateRead)[0].digests == second.of(wire.RandomStateRead)[0].digests


# --- changes -------------------------------------------------------------------------------------


def recompiles(plan, function, inputs):
    with trying(plan) as events:
        run = compiled(function)
        for each in inputs:
            run(each)
    return len(events.of(wire.Recompiled)), events


def double(x):
    return x * 2


SIZES = [torch.ones(size, 3) for size in (4, 5, 6)]


@pytest.mark.parametrize(
    ("action", "dimension"), [("mark_dynamic", 0), ("maybe_mark_dynamic", 0), ("mark_unbacked", 0)]
)
def test_a_marked_dimension_does_not_recompile(action, dimension):
    change = wire.ArgumentChange(get_definition(double), "x", action, dimension)
    fresh = [each.clone() for each in SIZES]
    assert recompiles(wire.TrialPlan(), double, SIZES)[0] == 1
    count, events = recompiles(wire.TrialPlan(arguments=(change,)), double, fresh)
    assert count == 0
    assert applied_in(events) == {change.label: None}


def test_arguments_and_outputs_of_a_module_of_torch_have_its_names():
    """torch calls them all by one function of its own."""
    module = torch.nn.Linear(3, 3)
    place = get_definition(torch.nn.Linear.forward)
    change = wire.ArgumentChange(place, "input", "maybe_mark_dynamic", 0)
    fresh = [each.clone() for each in SIZES]
    count, events = recompiles(wire.TrialPlan(arguments=(change,)), module, fresh)
    assert count == 0
    assert applied_in(events) == {change.label: None}
    (recorded,) = events.of(wire.CallsRecorded)
    assert recorded.functions == (place,)


def test_an_argument_inside_of_others_is_found():
    def forward(batch, *args, flag=False, **rest):
        return batch["ids"] * 2 + args[0] + rest["scale"]

    def run(plan):
        with trying(plan) as events:
            for size in (4, 5, 6):
                one = torch.ones(size)
                compiled(forward)({"ids": one.clone()}, one.clone(), scale=one.clone())
        return len(events.of(wire.Recompiled)), events

    place = get_definition(forward)
    names = ("batch['ids']", "args[0]", "rest['scale']")
    changes = tuple(wire.ArgumentChange(place, name, "mark_dynamic", 0) for name in names)
    assert run(wire.TrialPlan())[0] == 1
    count, events = run(wire.TrialPlan(arguments=changes))
    assert count == 0
    assert applied_in(events) == {change.label: None for change in changes}


def test_arguments_have_the_names_of_the_parameters():
    def function(self, a, b, *args, c, **rest):
        return None

    call = CallArguments(function, (1, 2, 3), {"c": 4, "d": 5})
    found = settings.bind_arguments(function.__code__, "owner", call)
    assert found == {"self": "owner", "a": 1, "b": 2, "args": (3,), "c": 4, "rest": {"d": 5}}


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_functions_behind_one_wrapper_are_told_apart():
    """Arguments are found by the names of the wrapper and of what it wraps."""

    @decorated
    def first(x):
        return x * 2

    @decorated
    def second(x):
        return x * 3

    changes = (
        wire.ArgumentChange(get_definition(first.__wrapped__), "x", "mark_dynamic", 0),
        wire.ArgumentChange(get_definition(second), "args[0]", "mark_dynamic", 0),
    )
    with trying(wire.TrialPlan(arguments=changes)) as events:
        for function in (first, second):
            for size in (4, 5, 6):
                compiled(function)(torch.ones(size))
    assert len(events.of(wire.Recompiled)) == 1, "for the other function in the wrapper's closure"
    assert applied_in(events) == {change.label: None for change in changes}
    names = [name.rpartition(".")[2] for name, *_ in outputs_in(events)]
    assert names == ["first"] * 3 + ["second"] * 3


def test_a_function_in_a_changed_file_is_found_by_its_name():
    place = get_definition(double)
    moved = dataclasses.replace(place, line=place.line + 7)
    change = wire.ArgumentChange(moved, "x", "mark_dynamic", 0)
    source = wire.SourceChange(place.file, "another", "text")
    assert applied_in(recompiles(wire.TrialPlan(arguments=(change,)), double, SIZES)[1]) == {}
    fresh = [each.clone() for each in SIZES]
    _, events = recompiles(wire.TrialPlan(arguments=(change,), sources=(source,)), double, fresh)
    assert applied_in(events)[change.label] is None


def test_an_argument_that_is_not_there_is_a_problem_and_runs_no_code():
    class Batch:
        def __init__(self):
            self.ids = torch.ones(3)

        def __getattr__(self, name):
            raise AssertionError(name)

    def forward(batch):
        return batch.ids * 2

    place = get_definition(forward)
    absent = wire.ArgumentChange(place, "batch.mask", "mark_dynamic", 0)
    missing = wire.ArgumentChange(place, "batch.ids", "mark_dynamic")
    strange = wire.ArgumentChange(place, "batch.ids", "delete", 0)
    with trying(wire.TrialPlan(arguments=(absent, missing, strange))) as events:
        compiled(forward)(Batch())
    assert all(applied_in(events).values())
    assert "cannot be found" in applied_in(events)[absent.label]


def test_a_compile_option_reaches_every_way_to_compile():
    """`torch.compile` of a function, as a decorator, and `Module.compile`."""
    option = wire.CompileOption("dynamic", True)
    plan = wire.TrialPlan(compile_options=(option,))
    assert recompiles(plan, double, SIZES)[0] == 0

    def run(make):
        with trying(plan) as events:
            call = make()
            for each in SIZES:
                call(each)
        assert applied_in(events) == {option.label: None}
        return len(events.of(wire.Recompiled))

    def decorated():
        @torch.compile(backend="eager")
        def triple(x):
            return x * 3

        return triple

    def module():
        model = torch.nn.Linear(3, 3)
        model.compile(backend="eager")
        return model

    assert run(decorated) == run(module) == 0


class Rounded(torch.nn.Module):
    def forward(self, x):
        return x.round()


def test_another_backend_compiles_everything():
    """However it is compiled; options and mode are those of the backend that it had."""
    seen = []

    def count(graph, _inputs):
        seen.append(graph)
        return graph

    def run():
        results = [torch.compile(lambda x: x * 3, mode="max-autotune-no-cudagraphs")(torch.ones(2))]
        results += [torch.compile(lambda x: x + 1, backend=count)(torch.ones(2))]
        model = Rounded()
        model.compile(backend=count, options={"trace.enabled": True})
        return [value.tolist() for value in (*results, model(torch.ones(1, 2)))]

    with trying(wire.TrialPlan(backend="eager")) as events:
        run()
    assert seen == []
    assert len(events.of(wire.Compiled)) == 3


def test_what_the_program_passes_itself_stays():
    option = wire.CompileOption("dynamic", True)
    with trying(wire.TrialPlan(compile_options=(option,))) as events:
        run = compiled(double, dynamic=False)
        for each in SIZES:
            run(each)
    assert len(events.of(wire.Recompiled)) == 2
    assert "itself" in applied_in(events)[option.label]


def test_an_option_that_this_torch_lacks_is_a_problem():
    option = wire.CompileOption("no_such_option", True)
    setting = wire.SettingChange("torch._dynamo.config", "no_such_option", True)
    with trying(wire.TrialPlan(compile_options=(option,), settings=(setting,))) as events:
        compiled(double)(SIZES[0])
    assert all(applied_in(events).values())
    assert len(applied_in(events)) == 2


@pytest.fixture
def config():
    """Dynamo's configuration, which is put back."""
    names = ("recompile_limit", "capture_scalar_outputs")
    before = {name: getattr(torch._dynamo.config, name) for name in names}
    yield torch._dynamo.config
    for name, value in before.items():
        setattr(torch._dynamo.config, name, value)


def test_a_setting_is_set_and_what_the_program_sets_wins(config):
    kept = wire.SettingChange("torch._dynamo.config", "capture_scalar_outputs", True)
    lost = wire.SettingChange("torch._dynamo.config", "recompile_limit", 31)
    with trying(wire.TrialPlan(settings=(kept, lost))) as events:
        assert config.capture_scalar_outputs is True
        assert config.recompile_limit == 31
        config.recompile_limit = 5
    assert config.recompile_limit == 5
    assert applied_in(events)[kept.label] is None
    assert "itself" in applied_in(events)[lost.label]


def test_the_stance_holds_for_the_whole_run_and_the_programs_own_wins():
    plan = wire.TrialPlan(stance="force_eager")
    with trying(plan) as events:
        run = compiled(double)
        run(SIZES[0])
        assert dynamo_utils.counters["frames"]["total"] == 0
        with torch.compiler.set_stance("default"):
            run(SIZES[0])
        assert dynamo_utils.counters["frames"]["total"] == 1
        run(SIZES[1])
    assert applied_in(events) == {"stance force_eager": None}
    assert len(outputs_in(events)) == 3


def test_the_same_calls_are_recorded_eager_and_compiled():
    """A compiled function that calls another is one call from eager code, whatever the stance."""

    def inner(x):
        return x + 1

    nested = compiled(inner)

    def outer(x):
        torch._dynamo.graph_break()
        return nested(x) * 2

    def sampled(plan):
        with trying(plan) as events:
            run = compiled(outer)
            for size in range(1, 6):
                run(torch.ones(size))
                nested(torch.ones(size))
        return outputs_in(events)

    eager = sampled(wire.TrialPlan(stance="force_eager"))
    assert sampled(wire.TrialPlan()) == eager
    assert len(eager) == 10


def test_a_seed_makes_an_unseeded_program_the_same():
    def drawn(seed):
        recording = wire.RecordingPlan(seed=seed)
        with trying(wire.TrialPlan(recording=recording)) as events:
            result = compiled(lambda x: x + torch.rand(4))(torch.zeros(4)).tolist()
        assert applied_in(events) == {f"seed {seed}": None}
        return result, random.random()

    assert drawn(3) == drawn(3) != drawn(4)


# --- answers -------------------------------------------------------------------------------------


def answers_of(value):
    leaves = sampled_values.iterate_leaves("", value)
    return sampled_values.ValueSampler(torch).read_leaves(leaves, 64, sampled_values.MAX_VALUES)


def answer_of(value):
    (answer,), _ = answers_of(value)
    return answer


@dataclasses.dataclass
class Output:
    """As libraries return them."""

    loss: object
    parts: object


def test_containers_are_taken_apart():
    value = Output(torch.ones(1), [(1, 2.5), {"a": True, "b": None}, "text", object()])
    found, complete = answers_of(value)
    assert [(answer.path, answer.kind, answer.dtype) for answer in found] == [
        (".loss", "tensor", "float32"),
        (".parts[0][0]", "number", "int"),
        (".parts[0][1]", "number", "float"),
        (".parts[1]['a']", "number", "bool"),
        (".parts[1]['b']", "other", "NoneType"),
        (".parts[2]", "other", "str"),
        (".parts[3]", "other", "object"),
    ]
    assert not complete  # of an object nothing is read


def test_a_tensor_is_sampled_measured_and_digested():
    value = torch.arange(1000, dtype=torch.float32)
    answer = answer_of(value)
    assert (answer.dtype, answer.shape, answer.not_finite) == ("float32", (1000,), 0)
    assert len(answer.values) == sampled_values.MAX_VALUES
    assert answer.values[:3] == (0.0, 15.0, 31.0)
    assert answer.norm == pytest.approx(float(value.double().norm()))
    assert answer.largest == 999.0
    assert answer_of(value.clone()).digest == answer.digest
    value[500] = math.nan
    changed = answer_of(value)
    assert (changed.not_finite, changed.digest != answer.digest) == (1, True)
    assert changed.largest == 999.0


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([math.nan, math.inf, 1.0]),
        torch.ones(3, 2).t(),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.tensor([True, False]),
        torch.ones(0),
        torch.tensor(3),
        torch.ones(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2)),
    ],
)
def test_every_kind_of_tensor_is_read_and_left_alone(value):
    requires_grad, version = value.requires_grad, value._version
    answer = answer_of(value)
    assert answer.kind == "tensor"
    assert answer.digest
    assert (value.requires_grad, value._version) == (requires_grad, version)


def test_what_cannot_be_read_is_not():
    """Neither a tensor of a tracer's nor one whose class has a say in each operation, nor any
    while a mode of the program's is active."""

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            raise AssertionError(function)

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
    plain = torch.ones(2)
    with Mode():
        inside = answer_of(plain)
    for answer in (answer_of(fake), answer_of(torch.ones(2, device="meta")), inside):
        assert (answer.kind, answer.digest) == ("other", "")
    assert answer_of(torch.ones(2).to_sparse()).kind == "other"


def test_a_large_tensor_is_only_sampled(monkeypatch):
    monkeypatch.setattr(sampled_values, "MAX_BYTES", 64)
    value = torch.arange(200.0).reshape(10, 20)
    for each in (value, value.t()):
        (answer,), complete = answers_of(each)
        assert not complete
        assert (answer.digest, answer.norm) == ("", None)
        expected = each.reshape(-1)
        assert answer.values == tuple(float(expected[i * 200 // 64]) for i in range(64))


class Mode(enum.IntEnum):
    """Not a plain number: what it is equal to is the program's."""

    ON = 1


def test_state_is_read_at_the_end():
    with trying(RECORDED) as events:
        model = Counter()
        model.kind = Mode.ON
        run = compiled(model)
        for _ in range(6):
            run(torch.ones(2, 4))
    end = next(event for event in events.of(wire.StateRead) if event.module == "Counter")
    held = {answer.path: answer for answer in end.answers}
    assert held[".calls"].values == (6.0,)
    assert held[".total"].values == (48.0,)
    names = {".calls", "._mode", ".total", ".linear.weight", ".linear.bias"}
    names |= {".sizes[0]", ".sizes[1]"}
    assert {path for path in held if "features" not in path} == names
    assert end.complete


def test_a_function_leads_to_the_modules_that_it_uses():
    model = Counter()

    def step(x):
        return model(x).sum()

    with trying(RECORDED) as events:
        compiled(step)(torch.ones(2, 4))
    assert "Counter" in {event.module for event in events.of(wire.StateRead)}


def test_a_model_that_is_dropped_is_dropped():
    """As in a plain run; what it held then is known."""
    with trying(RECORDED) as events:
        model = Counter()
        gone = weakref.ref(model)
        run = compiled(model)
        run(torch.ones(2, 4))
        del model, run
        torch._dynamo.reset()
        gc.collect()
        assert gone() is None
    assert [event.module for event in events.of(wire.StateRead)].count("Counter") == 1


def test_nothing_is_kept_of_a_call_that_raised():
    """The frame of torch's wrapper has the arguments."""

    def fail(x):
        raise KeyError("mine")

    with trying(wire.TrialPlan()) as events:
        argument = torch.ones(2)
        gone = weakref.ref(argument)
        with suppress(KeyError):
            compiled(fail)(argument)
        del argument
        assert events.session.trial._outputs._this.call is None
        gc.collect()
        assert gone() is None


def test_an_older_torch_has_the_same_answers(monkeypatch):
    """Its wrapper keeps the result in no local variable: a profile function sees it, and is gone
    after it. A call that raises has no answer; nor has one under a profile function of the
    program's, which stays."""

    def forward(x):
        if x.shape[0] == 3:
            raise KeyError("three")
        return x + 1

    def sampled():
        with trying(wire.TrialPlan()) as events:
            run = compiled(forward)
            for size in (2, 3, 2):
                with suppress(KeyError):
                    run(torch.ones(size))
                assert sys.getprofile() is None
        return outputs_in(events)

    newer = sampled()
    monkeypatch.setattr(torch_open_calls, "RESULT", "no_such_local")
    assert sampled() == newer
    structures = [structure for _, structure, _ in newer]
    assert structures == ["float32[2]", "raised KeyError", "float32[2]"]

    def profile(*_):
        return None

    with trying(wire.TrialPlan()) as events:
        run = compiled(forward)
        run(torch.ones(2))
        sys.setprofile(profile)
        try:
            run(torch.ones(2))
            assert sys.getprofile() is profile
        finally:
            sys.setprofile(None)
    structures = [structure for _, structure, _ in outputs_in(events)]
    assert structures == ["float32[2]", "not compared: its result was not seen"]


def calls_timed(stance):
    """How often each function was timed; nothing else than the stance differs."""

    def inner(x):
        return x + 1

    def outer(x):
        y = run_inner(x)
        torch._dynamo.graph_break()
        return run_inner(y) * 2

    def bad(x):
        raise ValueError

    run_inner, run_outer, run_bad = compiled(inner), compiled(outer), compiled(bad)
    with trying(wire.TrialPlan(call_seconds=True, stance=stance)) as events:
        for _ in range(3):
            run_outer(torch.ones(2))
            run_inner(torch.ones(2))
            run_inner(torch.ones(2))
            with suppress(ValueError):
                run_bad(torch.ones(2))
    counts = collections.Counter()
    for event in events.of(wire.CallsTimed):
        assert not event.on_device
        assert all(seconds > 0 for seconds in event.seconds)
        for index, count in zip(event.callables, event.counts, strict=True):
            counts[event.functions[index].function.rpartition(".")[2]] += count
    return counts


@pytest.mark.parametrize("stance", [None, "force_eager"])
def test_calls_are_timed_alike_in_both_arms(stance):
    """Outermost calls only, a call that raises too: what a compiled function calls is a part of
    it, also where the stance compiles nothing."""
    assert calls_timed(stance) == {"outer": 3, "inner": 6, "bad": 3}


def test_modules_of_torch_are_timed_by_their_class():
    """torch calls them all by one function of its own, which names none of them."""
    with trying(wire.TrialPlan(call_seconds=True)) as events:
        for module in (torch.nn.ReLU(), torch.nn.Sequential(torch.nn.ReLU())):
            compiled(module)(torch.ones(2))
    names = {place.function for event in events.of(wire.CallsTimed) for place in event.functions}
    assert names == {"ReLU.forward", "Sequential.forward"}


def run_in_thread(work):
    """What hangs there fails here."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_a_signal_handler_while_a_call_is_timed_may_call_compiled_code():
    class Rows(dict):
        def get(self, key):
            known = super().get(key)
            if not ran:
                ran.append(None)
                run(torch.ones(2))
            return known

    ran = []
    with trying(wire.TrialPlan(call_seconds=True)) as events:
        run = compiled(torch.nn.ReLU())
        events.session.trial._call_seconds._rows = Rows()
        run_in_thread(lambda: run(torch.ones(2)))
    assert sum(sum(event.counts) for event in events.of(wire.CallsTimed)) == 2


def test_a_plan_that_only_times_calls_lets_steps_go_unsampled():
    """Nothing else looks at each call, so that calls can be paused in brief steps."""
    with trying(wire.TrialPlan(call_seconds=True)):
        compiled(torch.relu)(torch.ones(2))
        assert torch_calls.pause_calls()
        torch_calls.resume_calls()
    with trying(wire.TrialPlan()):
        assert not torch_calls.pause_calls()
