"""The collectors against live torch: what they tell is compared with torch's own metrics."""

import logging
import logging.config
import sys
import types
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo.convert_frame as convert_frame
import torch._dynamo.guards as guards
import torch._dynamo.utils as dynamo_utils
from foreign_library import installed
from torch._inductor import cudagraph_utils
from torch.nn.modules import container

from compilediag.rules.limits import find_armed_guards
from compilediag.timeline.timeline import fold
from compilediag_harness import attach
from compilediag_harness.base.session import Session
from compilediag_harness.collectors import compiles, false_guards, recompiles
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import torch_guards, torch_logs
from compilediag_harness.wire import (
    Compiled,
    EvidenceLost,
    FaultOccurred,
    FrameSkipped,
    GraphBroke,
    HazardsChecked,
    Recompiled,
    WarningSeen,
    encode,
)

pytestmark = [pytest.mark.filterwarnings("ignore")]


class Seen(list):
    """The events of one observation, with the metrics rows torch kept of it."""

    rows: list

    def of(self, kind):
        """The events of one kind."""
        return [event for event in self if isinstance(event, kind)]


@contextmanager
def observed(sink=None):
    """Installs the collectors around a block; yields the events, complete after the block."""
    torch._dynamo.reset()
    dynamo_utils.clear_compilation_metrics()
    events = Seen()
    session = Session(sink or events.append)
    attach.install(session)
    try:
        yield events
        attach.finish(session)
    finally:
        attach.uninstall(session)
        events.rows = dynamo_utils.get_compilation_metrics()
        torch._dynamo.reset()


def compiled(function, **options):
    """`function` compiled with the cheapest backend."""
    return torch.compile(function, backend="eager", **options)


def test_rows_and_recompiles_match_torchs_metrics():
    """Same ids, same flags, same reasons as torch's own rows, forward and backward."""
    layer = torch.nn.Linear(3, 3)

    def step(x, n):
        return (layer(x) * n).sum()

    function = torch.compile(step, backend="aot_eager", dynamic=False)
    with observed() as seen:
        for n in (1, 2, 3):
            function(torch.ones(2, 3), n).backward()
    events = seen.of(Compiled)
    assert [(e.compile_id, e.guarded) for e in events] == [
        (row.compile_id, bool(row.has_guarded_code)) for row in seen.rows
    ]
    assert [e.recompile_reason for e in events] == [row.recompile_reason for row in seen.rows]
    timeline = fold([seen])
    asked = [row for row in seen.rows if row.recompile_reason and row.has_guarded_code]
    assert len(timeline.counted_recompiles) == len(asked) == 2
    assert {c.kind for c in timeline.compiles if not c.forward} <= {"backward"}


@contextmanager
def raised_limit(at=10_000):
    """A program that allows a frame many cache entries."""
    with torch._dynamo.config.patch(recompile_limit=at, accumulated_recompile_limit=at):
        yield


def scaled(x, name):
    return x * len(name)


def test_a_record_does_not_grow_with_the_cache_entries_of_its_frame():
    """The nearest eight are recorded and the others counted, in the journal and in the text log:
    twice as many recompiles are twice as many bytes."""
    with raised_limit(), observed() as seen:
        function = compiled(scaled, dynamic=False)
        for n in range(33):
            function(torch.ones(2), f"{n:04}")
    records = seen.of(Recompiled)
    assert [len(item.entries) for item in records] == [min(n, 8) for n in range(1, 33)]
    assert [item.entries_left_out for item in records] == [max(0, n - 8) for n in range(1, 33)]
    sizes = [len(encode(item)) for item in records]
    assert max(sizes[16:]) <= 1.05 * max(sizes[8:16])


def test_after_many_recompiles_fewer_entries_are_recorded(monkeypatch):
    """Each repeats others by then; the nearest are still among them."""
    monkeypatch.setattr(recompiles, "_MANY_RECOMPILES", 4)
    with raised_limit(), observed() as seen:
        function = compiled(scaled, dynamic=False)
        for n in range(7):
            function(torch.ones(2), f"{n:04}")
    assert [len(item.entries) for item in seen.of(Recompiled)] == [1, 2, 3, 4, 2, 2]


def test_the_nearest_entry_is_found_among_all():
    """The oldest of twenty entries differs by one argument, the others by two."""

    def both(x, first, second):
        return x * len(first) * len(second)

    with raised_limit(), observed() as seen:
        function = compiled(both, dynamic=False)
        function(torch.ones(2), "near", "old")
        for n in range(20):
            function(torch.ones(2), f"{n}", f"{n}")
        function(torch.ones(2), "near", "new")
    event = seen.of(Recompiled)[-1]
    nearest = min(event.entries, key=lambda entry: len(entry.guards))
    assert (nearest.compile_id, len(event.entries), event.entries_left_out) == ("0/0", 8, 13)
    assert [(guard.source, guard.novel) for guard in nearest.guards] == [("L['second']", True)]
    other = next(entry for entry in event.entries if entry is not nearest)
    assert {guard.source: guard.novel for guard in other.guards} == {
        "L['first']": False,  # the entry 0/0 accepts it
        "L['second']": True,
    }


def test_a_flag_is_known_where_another_entry_was_compiled_with_it():
    """A filled dict is new to both entries, the flag's value only to one of them."""
    state = {}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.flag = False

        def forward(self, x):
            return (x + 1 if self.flag else x) + len(state)

    net = Net()
    with observed() as seen:
        function = compiled(net)
        function(torch.ones(2))
        net.flag = True
        function(torch.ones(2))
        state["seen"] = 1
        function(torch.ones(2))
    event = seen.of(Recompiled)[-1]
    novel = {guard.source: guard.novel for entry in event.entries for guard in entry.guards}
    flags = {known for source, known in novel.items() if source.endswith("flag")}
    dicts = {known for source, known in novel.items() if "state" in source}
    assert (flags, dicts) == ({False}, {True})


def test_thousands_of_false_guards_are_counted_and_the_flag_among_them_is_kept(monkeypatch):
    """All parameters changed alike, and one attribute changed too."""
    monkeypatch.setattr(false_guards, "MAX_OF_A_KIND", 3)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.ones(2) for _ in range(12))
            self.zeta = "off"

        def forward(self, x):
            for part in self.parts:
                x = x + part
            return x * len(self.zeta)

    net = Net()
    with observed() as seen:
        function = compiled(net)
        function(torch.ones(2))
        net.requires_grad_(False)
        net.zeta = "on"
        function(torch.ones(2))
    (entry,) = seen.of(Recompiled)[0].entries
    kinds = [guard.leaf for guard in entry.guards]
    assert kinds.count("TENSOR_MATCH") == 3
    assert any(guard.source.endswith("zeta") for guard in entry.guards)
    assert entry.left_out == 9


def test_a_guarded_text_of_a_megabyte_is_cut():
    """Its guard is one guard still: torch's printed text of it adds none."""
    for text in ("a", " ", "# "):
        with observed() as seen:
            function = compiled(scaled, dynamic=False)
            function(torch.ones(2), text * (1 << 20))
            function(torch.ones(2), text * (1 << 20) + "z")
        (event,) = seen.of(Recompiled)
        assert [guard.leaf for guard in event.entries[0].guards] == ["EQUALS_MATCH"]
        assert event.entries[0].guards[0].user.file == __file__
        assert len(encode(event)) < 20_000


def test_a_view_that_is_none_any_more_is_the_false_guard():
    """torch's reason is what a condition on the sizes of its base raised."""
    with observed() as seen:
        function = compiled(scaled, dynamic=True)
        function(torch.ones(3, 6)[:, :4], "a")
        function(torch.empty_strided((5, 4), (7, 1)).fill_(1), "a")
    (event,) = seen.of(Recompiled)
    assert event.reasons[0].endswith("'NoneType' object has no attribute 'size'")
    (entry,) = event.entries
    assert [(guard.source, guard.actual) for guard in entry.guards] == [
        ("L['x']._base", "NoneType")
    ]
    assert entry.unevaluated == 0


def branching(x):
    if x.max().item() > 0:
        return x + 1
    return x


def test_a_break_has_the_branch_that_the_number_decides():
    """The line and what is read, from the source of the function."""
    with observed() as seen:
        compiled(branching)(torch.ones(2))
    (event,) = seen.of(GraphBroke)
    begin = branching.__code__.co_firstlineno
    assert (event.branch.line, event.branch.text) == (begin + 1, "x.max()")


def written(function, *given):
    with observed() as seen:
        for values in given:
            function(values)
    return [guard.writers for event in seen.of(Recompiled) for guard in event.entries[0].guards]


def test_the_compiled_function_itself_is_a_writer():
    """Of a field of another object, which is absent or None until the first call."""

    class Config:
        kind = None

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.other = Config(), Config()

        def forward(self, x):
            if self.config.kind is None:
                self.config.kind = "float"
            return x + 1 if self.config.kind == "float" else x

    lines = {w for found in written(compiled(Net()), *[torch.ones(2)] * 2) for w in found}
    assert {(w.function, w.line - Net.forward.__code__.co_firstlineno) for w in lines} == {
        ("forward", 2)
    }


def test_what_rebinds_a_captured_name_is_a_writer():
    """It shares the cell with the compiled function."""
    capture = False

    def set_capture():
        nonlocal capture
        capture = True

    step = compiled(lambda x: x + 1 if capture else x - 1)
    found = written(lambda x: (step(x), set_capture()), *[torch.ones(2)] * 2)
    assert [[w.function.rpartition(".")[2] for w in each] for each in found] == [["set_capture"]]


def test_of_methods_of_a_package_the_inlined_one(tmp_path):
    """A counter that the compiled code advances; other methods that assign it never ran."""
    with installed(tmp_path) as library:
        found = written(compiled(library.Counted()), *[torch.ones(2)] * 3)
    names = {tuple(w.function for w in each) for each in found}
    assert names == {("Counted.forward",)}


def test_an_argument_of_the_next_call_is_no_hazard():
    """Between calls nobody knows it: its guards are not judged, however many it has."""

    class Scale(torch.nn.Module):
        def forward(self, x, factor):
            return x * factor

    function = compiled(module := Scale(), dynamic=True)
    with observed() as seen:
        function(torch.ones(4), torch.ones(4))
    checks = seen.of(HazardsChecked)
    assert checks, module
    assert [guard.source for event in checks for guard in event.guards] == []
    assert checks[-1].unevaluated > 2


@pytest.mark.parametrize("two", [True, False])
def test_what_another_entry_may_serve_is_not_armed(two):
    """Entries of another instance of a module, or of a value that comes back, are there still."""

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.causal = True

        def forward(self, x):
            return x + 1 if self.causal else x - 1

    modules = [Scale(), Scale()]
    with observed() as seen:
        steps.step()
        compiled(modules[0])(torch.ones(2))
        modules[two].causal = False
        compiled(modules[two])(torch.ones(2))
        modules[0].causal = True
        if two:
            compiled(modules[0])(torch.ones(2))
        steps.step()
    timeline = fold([seen])
    assert (len(timeline.recompiles), list(find_armed_guards(timeline))) == (1, [])


def test_a_dead_cache_entry_does_not_disarm_a_hazard(monkeypatch):
    """At the end of a process torch's entries have no guards left: the look before it stands."""

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    function = compiled(module := Counter())
    guards = SimpleNamespace(root=None, closure_vars={}, global_scope={})
    dead = SimpleNamespace(compile_id="0/0", guard_manager=guards)
    with observed() as seen:
        function(torch.ones(2))
        steps.step()
        monkeypatch.setattr(torch_guards, "get_cache_entries", lambda code: [dead])
    (hazards,) = fold([seen]).risk_checks
    assert hazards.guards, module


def test_after_a_reset_the_newest_compile_has_a_number_of_an_older_one():
    """torch begins again at 0/0."""

    def probe(): ...

    code, baselines = probe.__code__, Baselines(torch.Tensor, None)
    for number in ("0/0", "0/1", "0/0"):
        baselines.remember(code, number, {}, ())
    assert baselines.get_newest(code) is baselines.get_facts(code, "0/0")


def test_silenced_loggers_lose_nothing():
    """`dictConfig` disables existing loggers by default: a break is reported all the same."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    with observed() as seen:
        compiled(lambda x: x + 1)(torch.ones(2))
        logging.config.dictConfig({"version": 1})
        compiled(broken)(torch.ones(2))
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).disabled = False
    root.handlers[:], root.level = handlers, level
    assert (len(seen.of(GraphBroke)), seen.of(EvidenceLost)) == (1, [])


def test_a_failing_sink_never_reaches_the_users_compile():
    """Whatever happens to our records, the compile and its result are as without us."""

    def full(event):
        raise OSError("disk full")

    with observed(sink=full):
        result = compiled(lambda x: x + 1)(torch.ones(2))
    assert result.tolist() == [2.0, 2.0]


def fail(*_, **__):
    raise AttributeError("ours")


def test_a_fault_at_the_begin_of_a_compile_never_reaches_it(monkeypatch):
    with observed() as seen:
        monkeypatch.setattr(compiles.CompileCollector, "record_start", fail)
        result = compiled(lambda x: x + 1)(torch.ones(2))
    assert result.tolist() == [2.0, 2.0]
    assert [event.where for event in seen.of(FaultOccurred)] == ["compile start"]


def test_a_break_that_cannot_be_described_never_reaches_the_compile(monkeypatch):
    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    with observed() as seen:
        monkeypatch.setattr(torch_logs, "get_imported", fail)
        result = compiled(broken)(torch.ones(2))
        monkeypatch.undo()
    assert result.tolist() == [2.0, 2.0]
    assert [event.where for event in seen.of(FaultOccurred)] == ["torch's messages"]


@pytest.mark.parametrize(
    ("owner", "name", "known", "kind"),
    [
        (convert_frame, "add_skip_reason", ("why", sys._getframe()), FrameSkipped),
        (cudagraph_utils, "log_cudagraph_skip_and_bump_counter", ("skipping",), WarningSeen),
        (torch._dynamo.decorators, "_set_stance", (SimpleNamespace(stance="default"),), None),
    ],
)
def test_a_torch_that_passes_one_argument_more_is_followed(owner, name, known, kind, monkeypatch):
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: (args, kwargs))
    with observed() as seen:
        forwarded = getattr(owner, name)(*known, "later", later=1)
    assert forwarded == ((*known, "later"), {"later": 1})
    assert seen.of(FaultOccurred) == []
    assert kind is None or len(seen.of(kind)) == 1


def test_uninstalling_leaves_torch_as_it_was(capfd):
    """No wrapper, handler, artifact or list of ours stays, and nothing new goes to the terminal."""
    before = (
        convert_frame.get_and_maybe_log_recompilation_reasons,
        guards.CheckFunctionManager.__init__,
        torch._dynamo.reset,
    )
    with observed() as seen:
        compiled(lambda x: x + 1)(torch.ones(2))
    after = (
        convert_frame.get_and_maybe_log_recompilation_reasons,
        guards.CheckFunctionManager.__init__,
        torch._dynamo.reset,
    )
    assert after == before
    assert not torch._logging._internal.log_state.is_artifact_enabled("recompiles")
    capfd.readouterr()

    def scale(x, n):
        return x * n

    function = compiled(scale, dynamic=False)
    function(torch.ones(2), 1)
    function(torch.ones(2), 2)
    assert capfd.readouterr().err == ""
    assert seen.of(FaultOccurred) == []


def test_of_too_many_entries_those_used_last_are_examined(monkeypatch):
    """Then it is not known whether a value is new: nothing is claimed about it."""
    monkeypatch.setattr(recompiles, "_EXAMINED", 3)
    with raised_limit(), observed() as seen:
        function = compiled(scaled, dynamic=False)
        for n in range(6):
            function(torch.ones(2), f"{n:04}")
    records = seen.of(Recompiled)
    assert [len(item.entries) for item in records] == [1, 2, 3, 3, 3]
    assert [item.entries[0].guards[0].novel for item in records] == [True, True, True, None, None]
    assert [item.problem for item in records] == [None] * 5


def test_modules_of_torch_that_dynamo_runs_as_they_are():
    """Their forward is recorded, once a process; of other skipped frames of torch nothing is."""

    class Sequential(torch.nn.Sequential):
        forward = types.FunctionType(  # a code object that this process has not skipped yet
            container.Sequential.forward.__code__.replace(co_name="forward"),
            container.Sequential.forward.__globals__,
        )

    model = Sequential(torch.nn.ReLU())
    model.compile(backend="eager")
    with observed() as seen:
        model(torch.ones(2))
    skipped = [(event.frame.function, event.frame.file) for event in seen.of(FrameSkipped)]
    assert ("forward", container.__file__) in skipped
    assert {function for function, _ in skipped} == {"forward"}
    assert seen.rows == []


def test_of_a_shape_condition_it_is_not_known_whether_it_is_new():
    """Another entry accepts a size by a condition of its own."""

    def halves(x):
        return x * 2 if x.shape[0] > 8 else x * 3

    with observed() as seen:
        function = compiled(halves, dynamic=True)
        function(torch.ones(4))
        function(torch.ones(16))
        function(torch.ones(16, 2))
    guards = [
        guard for item in seen.of(Recompiled) for entry in item.entries for guard in entry.guards
    ]
    assert {guard.novel for guard in guards if guard.leaf == "SHAPE"} == {None}
    assert True in {guard.novel for guard in guards if guard.leaf == "TENSOR_MATCH"}


@pytest.mark.parametrize("kind", ["functions", "modules", "breaks"])
def test_twice_as_much_of_anything_is_twice_the_bytes(kind):
    """Functions of a program, modules of a model whose tensors all change, breaks of a function."""

    def program(n):
        if kind == "functions":
            made = [f"def f{at}(x):\n    return x + {at}\n" for at in range(n)]
        elif kind == "breaks":
            body = "".join("    x = x + 1\n    torch._dynamo.graph_break()\n" for _ in range(n))
            made = [f"def f0(x):\n{body}    return x\n"]
        else:
            made = ["def f0(x):\n    for part in parts:\n        x = part + x\n    return x\n"]
        parts = torch.nn.ParameterList(torch.ones(2) for _ in range(n))
        names = {"torch": torch, "parts": parts}
        file = f"{__file__}.{kind}{n}"
        exec(compile("".join(made), file, "exec"), names)
        with observed() as seen:
            for name in [name for name in names if name[:1] == "f"]:
                function = compiled(names[name])
                function(torch.ones(2))
                function(torch.ones(2).double())
            parts.requires_grad_(False)
            function(torch.ones(2))
        return sum(len(encode(event)) for event in seen)

    first, second, third = (program(n) for n in (6, 12, 18))
    assert third - second <= 1.2 * (second - first) + 200


def test_a_dict_of_another_size_is_found_beside_another_false_guard():
    """torch checks the size of a dict it goes through in no leaf, and prints the first guard."""

    def walk(x, mode, table):
        for key in table:
            x = x + len(key)
        return x * len(mode)

    with observed() as seen:
        function = compiled(walk)
        function(torch.ones(2), "a", {"k": 1})
        function(torch.ones(2), "bb", {"k": 1, "l": 2})
    (entry,) = seen.of(Recompiled)[-1].entries
    found = {(guard.source, guard.leaf, guard.expected, guard.actual) for guard in entry.guards}
    assert ("L['table']", "DICT_LENGTH", "1 key", "2 keys") in found
    assert "L['mode']" in {guard.source for guard in entry.guards}


def test_a_list_that_becomes_a_tuple_is_a_matter_of_types():
    """Both hold as many items."""
    with observed() as seen:
        function = compiled(lambda x, pair: x + pair[0] + pair[1])
        x = torch.ones(2)
        function(x, [x, x])
        function(x, (x, x))
    ((guard,),) = [entry.guards for entry in seen.of(Recompiled)[-1].entries]
    named = "list" if "type=" in guard.text else None  # not in torch 2.7
    assert (guard.source, guard.expected, guard.actual) == ("L['pair']", named, "tuple")


def test_everything_that_differs_about_a_tensor_is_found():
    """torch names the dtype only; a stride that follows from the size is no difference."""
    with observed() as seen:
        function = compiled(lambda x: x + 1)
        function(torch.ones(4, 3))
        function(torch.ones(4, 5, dtype=torch.float64, requires_grad=True))
        function(torch.ones(3, 4).t())
    events = seen.of(Recompiled)
    first = {entry.compile_id: entry for entry in events[0].entries}["0/0"]
    assert [(guard.expected, guard.actual) for guard in first.guards] == [
        ("torch.float32", "torch.float64"),
        ("requires_grad=False", "requires_grad=True"),
        ("[4, 3]", "[4, 5]"),
    ]
    last = {entry.compile_id: entry for entry in events[1].entries}["0/0"]
    assert [guard.actual for guard in last.guards] == ["stride [1, 4]"]


def test_what_torch_passes_on_goes_by_the_parameter_of_the_module():
    """`inner(*args)` is torch's; the module's own forward calls its first argument `input`."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with observed() as seen:
        function = torch.compile(net, backend="eager", dynamic=False)
        function(torch.ones(2, 2))
        function(torch.ones(3, 2))
    guards = seen.of(Recompiled)[-1].entries[0].guards
    facts = {guard.source: guard.facts for guard in guards}
    if "L['args'][0]" in facts:  # since torch 2.8 the frame is that of its wrapper
        assert facts["L['args'][0]"].parameter == "input"


def test_of_two_arguments_that_were_one_tensor_the_one_that_is_none_now():
    """A language model called with its inputs as targets, and without any to generate: torch
    guards that both are one tensor, and prints nothing of the None."""

    def loss(x, targets=None):
        return x.sum() if targets is None else (x * targets).sum()

    model, x = compiled(loss), torch.ones(3)
    with observed() as seen:
        model(x, x)
        model(x)
    (guards,) = [event.entries[0].guards for event in seen.of(Recompiled)]
    found = {(guard.source, guard.expected, guard.actual) for guard in guards}
    assert found == {("L['targets']", "torch.Tensor", "NoneType")}
