"""The recorder: which calls it records and how; a recorded run is a plain run otherwise."""

import base64
import dataclasses
import gc
import json
import os
import struct
import sys
import textwrap
import threading
import time
import types
from contextlib import suppress

import pytest
import torch
from attached import watched
from command_line import captured

from compilediag.certify.values import find_difference
from compilediag_harness import wire
from compilediag_harness.base.session import Session
from compilediag_harness.shapes.fixed_shape import FixedShape
from compilediag_harness.torch_internals.torch_graphs import NOT_COUNTED, GraphCounter
from compilediag_harness.trials import recorder
from compilediag_harness.trials.recorder import Recorder
from compilediag_harness.trials.sampled_values import ValueSampler

pytestmark = [pytest.mark.filterwarnings("ignore")]

PLAN = wire.TrialPlan(recording=wire.RecordingPlan(seed=7))
FIELDS = struct.calcsize(wire.CALL_FORMAT)
PLACE = wire.Location("a.py", 1, "f")


def rows_in(events):
    """Function, structure and digest of each recorded call."""
    functions, structures, rows = [], [], []
    for event in (each for each in events if isinstance(each, wire.CallsRecorded)):
        functions += event.functions
        structures += event.structures
        content = base64.b64decode(event.calls)
        for row in struct.iter_unpack(wire.CALL_FORMAT, content):
            digest = wire.CallDigest(*row[2:])
            rows.append((functions[row[0]].function.rpartition(".")[2], structures[row[1]], digest))
    return rows


def names_in(events):
    return [(function, structure) for function, structure, _ in rows_in(events)]


def compiled(function, **options):
    return torch.compile(function, backend="eager", **options)


def double(x):
    return x * 2


class TwoMethods(torch.nn.Module):
    def forward(self, x):
        return x * 2

    def loss(self, x):
        return x.sum()


def test_a_method_of_a_module_has_its_own_name():
    """One compiled beside its `forward` is another function; `Module.compile` is its call."""
    model, whole = TwoMethods(), TwoMethods()
    whole.compile(backend="eager")
    forward, loss = compiled(model), compiled(model.loss)
    with watched(trial=PLAN) as events:
        loss(forward(torch.ones(2)))
        whole(torch.ones(2))
    assert [name for name, _ in names_in(events)] == ["forward", "loss", "forward"]


def test_calls_in_which_no_graph_ran_are_named():
    """Behind a recompile limit, and where nothing is compiled."""

    def triple(x):
        return x * 3

    run = compiled(triple, dynamic=False)
    with watched(trial=PLAN) as events, torch._dynamo.config.patch(recompile_limit=1):
        for size in (2, 3, 2):
            run(torch.ones(size))
        with torch.compiler.set_stance("force_eager"):
            run(torch.ones(2))
    assert [event.eager for event in events.of(wire.CallsRecorded)] == [(1, 3)]


def raising(x):
    torch._dynamo.graph_break()
    raise ValueError(x.shape)


def test_every_outermost_call_is_recorded():
    """Also those that raise; none of what a compiled call calls itself."""
    inner = compiled(double)

    @torch._dynamo.disable
    def outside(x):
        return inner(x)

    def outer(x):
        return outside(x) + 1, x.shape[0]

    with watched(trial=PLAN) as events:
        run, fails = compiled(double), compiled(raising)
        for size in (2, 3, 2):
            run(torch.ones(size))
            compiled(outer)(torch.ones(size))
        with suppress(ValueError):
            fails(torch.ones(2))
        run(torch.zeros(2))
    sizes = [[("double", f"float32[{n}]"), ("outer", f"(float32[{n}], int)")] for n in (2, 3, 2)]
    last = [("raising", "raised ValueError"), ("double", "float32[2]")]
    assert names_in(events) == [*sizes[0], *sizes[1], *sizes[2], *last]
    digests = [digest for _, structure, digest in rows_in(events) if structure == "float32[2]"]
    assert digests[0] == digests[1] != digests[2]
    assert [event.seed for event in events.of(wire.RecordingStarted)] == [7]


def test_a_fixed_shape_s_call_is_one_call():
    with watched(trial=PLAN) as events:
        shape = FixedShape(compiled(double), {"x": {"rows": 0}}, {"rows": [4]}, pad=0)
        shape(torch.ones(10, 2))
        shape(torch.ones(3, 2))
    assert names_in(events) == [("double", "float32[10,2]"), ("double", "float32[3,2]")]


def test_steps_of_optimizers_are_calls():
    with watched(trial=PLAN) as events:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        compiled(optimizer.step)()
    assert [structure for _, structure in names_in(events)] == ["None"]


def test_each_thread_has_an_order_of_its_own():
    with watched(trial=PLAN) as events:
        run = compiled(double)
        run(torch.ones(1))
        for size in (2, 3):
            thread = threading.Thread(target=lambda size=size: run(torch.ones(size)))
            thread.start()
            thread.join()
        run(torch.ones(1))
    (record,) = events.of(wire.CallsRecorded)
    rows = [row[0] for row in struct.iter_unpack(wire.CALL_FORMAT, base64.b64decode(record.calls))]
    assert rows == [0, 1, 2, 0]
    assert record.functions[0] == record.functions[1] == record.functions[2]


class Model(torch.nn.Module):
    """A module whose own `state_dict` must not be called."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.BatchNorm1d(2))
        self.register_buffer("lost", torch.ones(1), persistent=False)
        self.register_buffer("empty", None)
        self.plain = torch.ones(2)

    def get_extra_state(self):
        raise AssertionError("it is never called")

    def forward(self, x):
        return self.inner(x)


class Saved(Model):
    def get_extra_state(self):
        return 1


def train(steps, last):
    """A training loop whose model and optimizer are gone before the process ends."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile(backend="eager")
    def loss(x):
        return x.square().mean()

    for step in range(steps):
        loss(model(torch.ones(3, 2))).backward()
        if step < steps - 1 or last:
            optimizer.step()
        optimizer.zero_grad()
    return {key: value.clone() for key, value in model.inner.state_dict().items()}


def test_what_is_gone_before_the_end_is_read():
    """An optimizer too that no compiled function reaches: its last step is seen in it."""
    states = []
    for last in (True, False):
        with watched(trial=PLAN) as events:
            expected = train(3, last)
        (state,) = events.of(wire.StateRead)
        assert state.module == "Adam"
        values = {value.path: value for value in state.answers}
        weight = values[".param_groups[0]['params'][0]"]
        assert weight.values == tuple(expected["0.weight"].double().flatten().tolist())
        assert values[".param_groups[0]['params'][0] step"].values == (3.0 - (not last),)
        states.append(weight.digest)
    assert states[0] != states[1]
    assert not hasattr(torch.nn.Module, "__del__")
    assert not hasattr(torch.optim.Optimizer, "__del__")


def test_a_model_that_is_gone_is_read_once():
    def main():
        model = Model()
        compiled(model)(torch.ones(3, 2))
        model.inner[1].weight.data.fill_(7)
        return Model()  # of it nothing is read: no compiled function reaches it

    with watched(trial=PLAN) as events:
        main()
        gc.collect()
    (state,) = events.of(wire.StateRead)
    (weight,) = [value for value in state.answers if value.path == ".inner.1.weight"]
    assert weight.values == (7.0, 7.0)
    assert "inner.0.weight" in state.saved


def test_the_keys_that_a_module_would_save_are_read():
    model, expected = Model(), list(Saved().state_dict())
    with watched(trial=PLAN) as events:
        compiled(model)(torch.ones(3, 2))
    (state,) = events.of(wire.StateRead)
    assert sorted(state.saved) == sorted(expected)
    assert ".lost" in [value.path for value in state.answers]
    assert events.of(wire.RandomStateRead)


@torch.library.custom_op("compilediag_test::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@hidden.register_fake
def _(x):
    return torch.empty_like(x)


def unknown(x):
    return x.sin()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_calls_of_graphs_are_counted(backend):
    torch._dynamo.allow_in_graph(unknown)

    def broken(x):
        y = hidden(x * 2)
        torch._dynamo.graph_break()
        return unknown(y).relu() + 1

    with watched(trial=PLAN) as events:
        run = torch.compile(broken, backend=backend, dynamic=False)
        for size in (3, 3, 4):
            run(torch.ones(size))
    graphs = [(g.frame.function, g.operations, g.calls) for g in events.of(wire.GraphRun)]
    rest = next(name for name, _, _ in graphs if name != "broken")
    assert graphs == [("broken", 2, 2), (rest, 3, 2), ("broken", 2, 1), (rest, 3, 1)]
    opaque = [g.opaque for g in events.of(wire.GraphRun)]
    assert opaque[0] == ("compilediag_test.hidden.default",)
    assert opaque[1] == (f"{__name__}.unknown",)


def test_what_was_compiled_goes_as_in_a_plain_run():
    with watched(trial=PLAN):
        run = compiled(double)
        run(torch.ones(2))
        torch._dynamo.reset()
        del run
        gc.collect()
        graphs = [each for each in gc.get_objects() if isinstance(each, torch.fx.GraphModule)]
        assert not [graph for graph in graphs if "double" in str(graph.meta)]


def recorded(count, make):
    """The events of so many calls of a recorder, without torch's wrappers."""
    events = []
    session = Session(events.append)
    made = Recorder(session, torch, 1)
    for index in range(count):
        made.record(PLACE, make(index))
    made.finish()
    made.uninstall()
    return events, made


def test_many_calls_take_little_room():
    """100,000 calls: less than 10 MB of journal; here a hundredth of them, whose last batch is not
    full."""
    values = torch.randn(16)
    events, made = recorded(2500, lambda index: values)
    assert len(rows_in(events)) == 2500
    assert len({str(row) for row in rows_in(events)}) == 1
    size = sum(len(repr(event)) for event in events)
    assert size * 40 < 10_000_000
    assert not made._calls
    assert not made._batches


def test_structures_without_end(monkeypatch):
    monkeypatch.setattr(recorder, "MAX_NUMBERED", 10)
    events, _ = recorded(50, lambda index: torch.ones(index + 1))
    structures = [structure for _, structure in names_in(events)]
    assert structures[9] == "float32[10]"
    assert set(structures[10:]) == {recorder.TOO_MANY}


def test_callables_without_end(monkeypatch):
    monkeypatch.setattr(recorder, "MAX_NUMBERED", 2)
    events = []
    made = Recorder(Session(events.append), torch, 1)
    for line in range(3):
        made.record(wire.Location("a.py", line, "f"), 1)
    made.finish()
    made.uninstall()
    assert [structure for _, structure in names_in(events)] == ["int", "int", recorder.TOO_MANY]


def test_a_value_without_memory_for_its_digest_is_named(monkeypatch):
    def fail(*_args, **_options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    events = []
    made = Recorder(Session(events.append), torch, 1)
    monkeypatch.setattr(made._digester, "begin", fail)
    made.record(PLACE, torch.ones(2))
    made.finish()
    made.uninstall()
    assert names_in(events) == [("f", "not compared: OutOfMemoryError")]


PROGRAM = """
    import os, sys
    import torch
    import torch._dynamo.utils as utils

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = torch.compile(model, backend="aot_eager")

    @torch.compile(backend="eager")
    def loud(x):
        y = x + 1
        print("inside", tuple(y.shape))
        return y * 2

    for step in range(6):
        loss = run(torch.randn(4 + step % 3, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loud(torch.ones(2))
        print("step", step, loss.item())
        sys.stderr.write(f"{step}\\r")
    breaks = {key[:400]: value for key, value in utils.counters["graph_break"].items()}
    print(dict(utils.counters["frames"]), dict(utils.counters["stats"]), breaks)
    print(os.environ.get("PYTHONHASHSEED"), sorted(vars(sys.stdout)))
    print({**utils.counters["aot_autograd"]})
    if os.fork() == 0:
        run(torch.randn(4, 8))
        print("child", flush=True)
        os._exit(0)
    os.wait()
    sys.exit(3)
"""


def test_a_recorded_run_prints_counts_and_ends_as_a_plain_one(tmp_path):
    from compilediag.readers.journal import read_run
    from compilediag.runs.supervised.child import make_child_environment

    (tmp_path / "main.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "run").mkdir()
    plan = dataclasses.replace(PLAN, recording=wire.RecordingPlan(seed=7, hides_hash_seed=True))
    (tmp_path / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))

    def run(env):
        return captured(sys.executable, "main.py", cwd=tmp_path, env=env, timeout=300)

    plain = run({k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"})
    env = make_child_environment(dict(os.environ), str(tmp_path / "run"))
    env |= {"COMPILEDIAG_TRIAL": str(tmp_path / "plan.json"), "PYTHONHASHSEED": "7"}
    recorded = run(env)
    expected = plain.stdout.replace("['mode']", "['mode', 'write']")
    assert recorded.stdout == expected
    assert (recorded.stderr, recorded.returncode) == (plain.stderr, 3)
    events, child = [list(journal.events) for journal in read_run(str(tmp_path / "run"))]
    assert not [e for e in (*events, *child) if isinstance(e, wire.FaultOccurred)]
    assert len(names_in(events)) == 12
    printed = [e for e in events if isinstance(e, wire.LinesPrinted)]
    lines = [line for e in printed if e.stream == "stdout" for line in e.lines]
    assert lines == [line for line in recorded.stdout.splitlines() if line != "child"]
    assert [e.lines for e in printed if e.stream == "stderr"] == [("5",)]
    # What a fork prints is written at once: it may end without notice.
    assert [e.lines for e in child if isinstance(e, wire.LinesPrinted)] == [("child",)]


def test_a_graph_that_cannot_be_counted_is_said_to_be_none() -> None:
    """Nothing can refer weakly to a number; with 0 calls, less would seem to be compiled before."""
    counter = GraphCounter()
    where = {"co_filename": "a.py", "co_firstlineno": 3, "co_name": "forward"}
    output = types.SimpleNamespace(co_fields=where)
    graph = types.SimpleNamespace(graph=types.SimpleNamespace(nodes=[]))
    counter._add_graph(7, output, graph)  # pyright: ignore[reportPrivateUsage]
    counter.forget_calls()
    assert counter.calls == [NOT_COUNTED]
    counter._add_graph(len, None, graph)  # pyright: ignore[reportPrivateUsage]
    assert counter.calls == [NOT_COUNTED] * 2


def test_an_order_or_a_sign_that_no_sampled_element_shows_is_another_value():
    """The norm is the same, and so is the largest: the weighted sum is not."""
    reader = ValueSampler(torch)
    value = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    swapped, negated = value.clone(), value.clone()
    swapped[[1, 2]] = value[[2, 1]]
    negated[1] *= -1
    (before,), _ = reader.read_leaves([("", value)], 1, 4)
    for other in (swapped, negated, value.roll(1)):
        (after,), _ = reader.read_leaves([("", other)], 1, 4)
        assert find_difference(before, after)[0] is not None
    (rounded,), _ = reader.read_leaves([("", value * (1 + 1e-6))], 1, 4)
    assert find_difference(before, rounded)[0] is None


def test_what_names_of_the_program_hold_is_read_at_the_end(monkeypatch):
    """And numbers, but for times."""
    held = {"y": torch.ones(3), "rows": [torch.zeros(2)], "losses": [0.5, 1.5], "step": 4}
    times = {"now": time.time(), "took_s": 1.5, "mark": time.perf_counter()}
    main = types.SimpleNamespace(__file__="a.py", **held, **times)
    monkeypatch.setitem(sys.modules, "__main__", main)
    with watched(trial=PLAN) as events:
        compiled(Model())(torch.ones(3, 2))
    read = [state for state in events.of(wire.StateRead) if state.module == wire.MAIN]
    assert [value.path for state in read for value in state.answers] == [
        *("y", "rows[0]", "losses[0]", "losses[1]", "step")
    ]


def test_only_what_a_graph_has_overwritten_is_left_out(monkeypatch):
    """Any other fault of reading is told, and no verdict is clean."""
    reader, values = ValueSampler(torch), [("", torch.ones(2))]
    messages = iter(
        ["accessing tensor that has been overwritten by a subsequent run.", "no memory"]
    )

    def fail(*_args):
        raise RuntimeError(next(messages))

    monkeypatch.setattr(reader, "_read_tensor", fail)
    (sample,), complete = reader.read_leaves(values, 1, 4)
    assert (sample.kind, complete) == ("other", False)
    with pytest.raises(RuntimeError, match="no memory"):
        reader.read_leaves(values, 1, 4)
