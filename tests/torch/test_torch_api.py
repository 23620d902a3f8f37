"""The contract between the harness's torch_*.py and torch: run on every supported version.

Each test uses torch itself as the witness: what a hook tells is compared with torch's metrics,
its counters or its own printed text.
"""

import _thread
import functools
import gc
import signal
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo.utils as dynamo_utils
import torch.export._trace
from torch.utils import _pytree

from compilediag_harness.torch_internals import (
    torch_api,
    torch_calls,
    torch_compiles,
    torch_guards,
    torch_names,
    torch_open_calls,
)

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    # 2.7 warns about its own use of a deprecated name on the first compile.
    pytest.mark.filterwarnings("ignore"),
]


@contextmanager
def listening(remove):
    """Until the block ends; None says that this torch has nothing to listen to."""
    assert remove is not None
    try:
        yield
    finally:
        remove()


def compiled(function, **options):
    """`function` compiled with the cheapest backend."""
    return torch.compile(function, backend="eager", **options)


def test_every_private_name_exists_on_this_torch():
    """A missing name is how a new torch release announces itself."""
    missing = [(name, lost) for name, ok, lost in torch_names.probe() if not ok]
    assert missing == []


def test_metrics_rows_are_all_seen_beyond_the_64_that_torch_keeps():
    """torch forgets rows beyond 64; the listener has seen each one once, in order."""
    seen: list[str] = []

    def listener(row):
        seen.append(str(row.compile_id))

    assert torch_compiles.watch_metrics_rows(listener)
    functions = []
    for n in range(70):
        namespace: dict = {}
        # A real file name: 2.7 wraps functions of "<string>" into one shared frame.
        exec(compile(f"def f(x):\n    return x + {n}\n", __file__, "exec"), namespace)
        functions.append(compiled(namespace["f"]))
    try:
        for function in functions:
            function(torch.ones(2))
    finally:
        torch_compiles.forget_metrics_rows(listener)
    assert len(seen) == 70
    assert len(dynamo_utils.get_compilation_metrics()) == 64
    assert seen[-64:] == [str(row.compile_id) for row in dynamo_utils.get_compilation_metrics()]


def test_metrics_rows_survive_a_change_of_the_limit():
    """`set_compilation_metrics_limit` replaces torch's list; asking again repairs that."""
    seen: list[object] = []
    torch_compiles.watch_metrics_rows(seen.append)
    dynamo_utils.set_compilation_metrics_limit(64)
    torch_compiles.watch_metrics_rows(seen.append)
    try:
        compiled(lambda x: x + 1)(torch.ones(2))
    finally:
        torch_compiles.forget_metrics_rows(seen.append)
    assert len(seen) == 1


def test_forgetting_leaves_torch_a_plain_list():
    """Nothing of ours stays in torch after the last listener went."""
    listener = [].append
    torch_compiles.watch_metrics_rows(listener)
    torch_compiles.forget_metrics_rows(listener)
    assert type(dynamo_utils._compilation_metrics).__module__ == "collections"


def test_the_question_why_is_heard_once_per_recompile_with_torchs_reasons():
    """One question per recompile, with the live frame and the reasons torch prints."""
    heard = []
    remove = torch_guards.watch_recompile_reasons(
        lambda entries, frame, reasons: heard.append(
            (len(entries), frame.f_code.co_name, dict(frame.f_locals), reasons)
        )
    )

    def scale(x, n):
        return x * n

    function = compiled(scale, dynamic=False)
    with listening(remove):
        for n in (2, 3, 4):
            function(torch.ones(2), n)
    assert [(count, name) for count, name, _, _ in heard] == [(1, "scale"), (2, "scale")]
    assert heard[0][2]["n"] == 3
    assert "n == 2" in heard[0][3][0]
    rows = [row for row in dynamo_utils.get_compilation_metrics() if row.co_name == "scale"]
    assert rows[-1].recompile_reason == heard[-1][3][0]


def test_leaves_of_an_entry_can_be_called_and_the_false_one_is_found():
    """Every leaf is callable with the value its source names; only the changed value's is false."""

    def scale(x, n):
        return x * n

    compiled(scale, dynamic=False)(torch.ones(2), 2)
    entry = torch_guards.get_cache_entries(scale.__code__)[0]
    scope = torch_guards.build_scope(entry, {"x": torch.ones(2), "n": 3})
    false = [
        leaf
        for leaf in torch_guards.iterate_leaves(entry, {})
        if leaf.check is not None
        and leaf.source not in ("L", "G", "")
        and not leaf.check(eval(leaf.source, dict(scope)))
    ]
    assert [leaf.source for leaf in false] == ["L['n']"]
    assert "L['n'] == 2" in false[0].parts[0]


def test_shape_conditions_are_among_the_leaves_or_in_torchs_reason():
    """A dynamic size has its conditions as leaves of kind SHAPE (2.13+) or as a lambda leaf."""

    def double(x):
        return x * 2

    function = compiled(double, dynamic=True)
    function(torch.ones(4))
    entry = torch_guards.get_cache_entries(double.__code__)[0]
    texts = [part for leaf in torch_guards.iterate_leaves(entry, {}) for part in leaf.parts]
    assert any("size()[0]" in text for text in texts)


def test_guards_built_tells_code_scope_and_user_lines():
    """Each compile tells its code object, its locals and guards that know the user's line."""
    built = []
    remove = torch_guards.watch_guard_builds(
        lambda code, compile_id, scope, guards, _: built.append((code, compile_id, scope, guards))
    )

    def scale(x, n):
        return x * n

    with listening(remove):
        compiled(scale)(torch.ones(2), 2)
    code, compile_id, scope, guards = built[0]
    assert (code, compile_id) == (scale.__code__, "0/0")
    assert set(scope) == {"x", "n"}
    assert {torch_guards.get_guard_kind(guard) for guard in guards} >= {"TENSOR_MATCH"}


def test_compile_start_reset_and_calls_are_told():
    """Starts come before rows, resets after they happened, calls once per outermost call."""
    starts, resets, calls = [], [], []
    undo = [
        torch_compiles.watch_compile_starts(lambda trigger, compile_id: starts.append(trigger)),
        torch_compiles.watch_resets(lambda: resets.append(1)),
        torch_calls.watch_outermost_calls(calls.append),
    ]
    inner = compiled(lambda x: x + 1)

    def outer(x):
        torch._dynamo.graph_break()
        return inner(x) * 2

    function = compiled(outer)
    try:
        for _ in range(3):
            function(torch.ones(2))
        torch._dynamo.reset()
    finally:
        for remove in undo:
            remove()
    assert "DYNAMO" in starts
    assert resets == [1]
    assert len(calls) == 3
    assert len(set(calls)) == 1


def test_totals_match_torchs_counters():
    """The totals are torch's own."""
    before = torch_compiles.read_totals()
    compiled(lambda x: x - 1)(torch.ones(2))
    after = torch_compiles.read_totals()
    assert after["unique_graphs"] - before["unique_graphs"] == 1
    assert after["frames_ok"] - before["frames_ok"] == 1


def test_the_recompile_limit_is_read_live():
    """The limit in force now, not the one at import."""
    with torch._dynamo.config.patch(recompile_limit=3):
        assert torch_compiles.get_recompile_limit() == 3
    assert torch_compiles.get_recompile_limit() == 8


def test_the_arguments_of_torch_compile_are_told():
    """Backend, mode and flags as they were asked for; nothing is compiled for it."""
    asked = []
    with listening(torch_compiles.watch_compile_requests(asked.append)):
        torch.compile(lambda x: x, backend="eager", fullgraph=True, dynamic=False)
        torch.compile(lambda x: x)
        torch.compile(lambda x: x, mode="reduce-overhead")
        torch.compile(lambda x: x, mode="max-autotune-no-cudagraphs")
    assert [(r["backend"], r["mode"], r["fullgraph"], r["dynamic"]) for r in asked] == [
        ("eager", None, True, False),
        ("inductor", "default", False, None),
        ("inductor", "reduce-overhead", False, None),
        ("inductor", "max-autotune-no-cudagraphs", False, None),
    ]
    assert asked[2]["cudagraphs"] is True


def test_the_end_of_a_compiled_call_is_told_however_it_ends():
    """Each outermost call has one end, when it returns and when it raises."""
    told: list[str] = []
    remove = torch_calls.watch_outermost_calls(
        lambda key: told.append("begin"), lambda key: told.append("end")
    )

    @torch._dynamo.disable
    def work(fail):
        told.append("work")
        if fail:
            raise KeyError("mine")

    def function(x, fail):
        work(fail)
        return x + 1

    compiled_function = compiled(function)
    with listening(remove):
        compiled_function(torch.ones(2), False)
        with pytest.raises(KeyError, match="mine"):
            compiled_function(torch.ones(2), True)
    assert told == ["begin", "work", "end"] * 2


@pytest.mark.parametrize("raiser", ["listener", "torch", "disabled"])
def test_a_call_that_does_not_begin_is_not_open(raiser, monkeypatch):
    """`--steps N` ends the program there; torch refuses a stance."""
    told = []

    def begin(key):
        if raiser == "listener":
            raise SystemExit

    def end(*_):
        told.append(torch_open_calls.is_in_compiled_call())

    if raiser != "listener":
        stance = SimpleNamespace(stance="none", backend=None, skip_guard_eval_unsafe=False)
        monkeypatch.setattr(torch._dynamo.eval_frame, "_stance", stance)
    call = torch.compiler.disable(lambda x: x) if raiser == "disabled" else compiled(lambda x: x)
    argument = torch.ones(2)
    gone = weakref.ref(argument)
    remove = torch_calls.watch_outermost_calls(begin, end)
    with listening(remove), listening(torch_calls.watch_disabled_calls(end)):
        with pytest.raises((SystemExit, RuntimeError)):
            call(argument)
        open_calls = list(torch_open_calls.this_thread.open)
    del argument
    gc.collect()
    assert (open_calls, gone()) == ([], None)
    assert told == [False] or raiser == "disabled"


def test_calls_of_disabled_functions_are_told_with_their_function():
    """From compiled code and outside it, nested ones too, innermost first."""
    told = []

    def listen(function, began, ended):
        told.append((function.__name__, ended >= began))

    @torch.compiler.disable
    def inner():
        pass

    @torch.compiler.disable
    def outer():
        inner()

    def function(x):
        outer()
        return x + 1

    with listening(torch_calls.watch_disabled_calls(listen)):
        compiled(function)(torch.ones(2))
        from_compiled_code, told = told, []
        outer()
    # 2.15 sets no callback for a function that is called from a disabled one, or from plain code.
    silent = "callback" in torch.compiler.disable(print).__code__.co_varnames
    expected = [("outer", True)] if silent else [("inner", True), ("outer", True)]
    assert [row for row in from_compiled_code if row[0] in ("inner", "outer")] == expected
    outside = [row for row in told if row[0] in ("inner", "outer")]
    assert outside == ([] if silent else expected)


def test_runs_of_the_autograd_engine_are_told_in_pairs():
    """`backward` and `torch.autograd.grad`, when they return and when they raise; what `begin`
    answers comes back. torch is left as it was."""
    variable = torch.autograd.Variable
    before = variable._execution_engine
    told = []
    try:
        torch_api.wrap_backward(torch, lambda: len(told), told.append)
        assert variable._execution_engine is not before
        assert isinstance(variable._execution_engine, torch._C._ImperativeEngine)
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        torch.autograd.grad((x * 2).sum(), x)
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(2).sum().backward()
    finally:
        variable._execution_engine = before
    assert told == [0, 1, 2]
    assert x.grad.tolist() == [2.0, 2.0]


def test_ctrl_c_in_a_run_of_the_autograd_engine_reaches_the_program():
    """It is handled when the engine has returned: not in what tells that it has."""
    variable = torch.autograd.Variable
    before = variable._execution_engine
    interrupt = functools.partial(_thread.interrupt_main, signal.SIGINT)
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: variable._execution_engine.queue_callback(interrupt))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    told = []
    try:
        torch_api.wrap_backward(torch, lambda: 7, told.append)
        with pytest.raises(KeyboardInterrupt):
            y.sum().backward()
    finally:
        variable._execution_engine = before
        signal.signal(signal.SIGINT, handler)
    assert told == [7]


class Exported(torch.nn.Module):
    def forward(self, x):
        return x.relu()


@pytest.mark.parametrize("strict", [True, False])
def test_exports_are_announced_and_their_rows_recognised(strict):
    """A row that torch makes while it exports says so nowhere; what is at work does."""
    begun: list[None] = []
    exporting: list[bool] = []

    def listener(row):
        exporting.append(torch_compiles.is_exporting())

    remove = torch_compiles.watch_exports(lambda: begun.append(None))
    assert remove is not None
    assert torch_compiles.watch_metrics_rows(listener)
    try:
        torch.export.export(Exported(), (torch.ones(2),), strict=strict)
        announced = len(begun)
        compiled(lambda x: x + 1)(torch.ones(2))
    finally:
        torch_compiles.forget_metrics_rows(listener)
        remove()
    assert announced > 0
    assert exporting == [True, False][0 if strict else 1 :]
    assert len(begun) == announced
    torch.export.export(Exported(), (torch.ones(2),), strict=strict)
    assert len(begun) == announced


def test_an_export_that_fails_has_no_frame_of_ours_in_its_traceback():
    """What the user reads is what torch alone would print."""
    with listening(torch_compiles.watch_exports(lambda: None)):
        with pytest.raises(Exception) as raised:
            torch.export.export(Exported(), (3,), strict=False)
    assert not [entry for entry in raised.traceback if "compilediag_harness" in str(entry.path)]


def test_registered_containers_are_taken_apart_as_torch_does():
    """The same members, and a container of the same class from them."""
    result = torch.randn(3, 2).sort(0)
    members = torch_api.get_members(result)
    assert members.names == ("0", "1")
    assert all(map(torch.equal, members.values, _pytree.tree_leaves(result)))
    again = torch_api.rebuild_container(result, list(members.values), members.context)
    assert type(again) is type(result)
    assert torch_api.is_registered(type(result))
    assert not torch_api.is_registered(torch.Tensor)


def test_conditions_on_sizes_come_with_the_traced_line():
    """torch's own guards are the witness: the size that it makes a constant, at the user's line."""
    seen: list[tuple[str, object]] = []
    added, fixed = torch_compiles.watch_conditions(
        lambda env, condition: seen.append(("added", condition)),
        lambda env, sources: seen.append(("fixed", sources)),
    )

    def helper(x):
        return x.reshape(4, 2, 2)

    def function(x):
        if x.size(0) < 10:
            return helper(x)
        return x

    x = torch.ones(4, 4)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    with listening(added), listening(fixed):
        compiled(function)(x)
    (_, below), (_, fixing), (_, sources) = seen
    assert [kind for kind, _ in seen] == ["added", "added", "fixed"]
    assert sources == ("L['x'].size()[0]",)
    assert [source for _, source in fixing.sizes] == ["L['x'].size()[0]"]
    assert [each.name for each in below.traced] == ["function"]
    assert [each.name for each in fixing.traced] == ["function", "helper"]
    calls = [code.co_name for code, _ in fixing.frames]
    assert "run_node" in calls
    assert "_reshape_view_helper" in calls[: calls.index("run_node")]
    assert "inner" in [code.co_name for code, _ in below.frames][:2]
    compiled(lambda x: x + 1)(torch.ones(3, 3))
    assert len(seen) == 3
