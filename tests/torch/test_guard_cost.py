"""Guards, warm calls and memory of real compiles; and the advice on guards, followed as it says.

What it saves is counted: guards that torch evaluates before a call. Nothing is timed here.
"""

import re
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn

from compilediag.rules import costs as guard_cost
from compilediag.runs.watch import watch
from compilediag.timeline.timeline import Timeline
from compilediag_harness.base.session import Session
from compilediag_harness.collectors import guards_in_use
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import WarmCallsTimed

config = torch._dynamo.config
TAGS = "use_recursive_dict_tags_for_guards"


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)
        self.scale = 2

    def forward(self, x: Any) -> Any:
        return x + self.scale * self.linear(self.norm(x))


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = [number % 7 for number in range(100)]

    def forward(self, x: Any) -> Any:
        return x * sum(self.weights)


class Total(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = sum(number % 7 for number in range(100))

    def forward(self, x: Any) -> Any:
        return x * self.total


def call(module: nn.Module, times: int = 1, **arguments: Any) -> None:
    compiled = torch.compile(module, backend="eager", **arguments)
    for _ in range(times):
        compiled(torch.ones(2, 4))


def evaluated(module: nn.Module, **arguments: Any) -> int:
    """Guards that a call evaluates."""
    torch._dynamo.reset()
    with watch() as seen:
        call(module, **arguments)
    found = sum(item.evaluated or 0 for item in seen.timeline.guard_sets)
    assert found
    return found


def diff_guards(module: nn.Module) -> int:
    """Those that `skip_guard_eval_unsafe` leaves."""
    (entry,) = torch_guards.get_cache_entries(type(module).forward.__code__)
    root = SimpleNamespace(root=entry.guard_manager.diff_guard_root)
    return torch_guards.count_evaluated(root, 0)[0].total()


def seen_of(program: Any) -> Timeline:
    with watch() as seen:
        program()
    return seen.timeline


def test_guards_are_evaluated_and_counted_by_kind_and_line() -> None:
    """As torch holds them; evaluating them leaves nothing behind."""
    timeline = seen_of(lambda: call(Table(), 3))
    (found,) = timeline.guard_sets
    (entry,) = torch_guards.get_cache_entries(Table.forward.__code__)
    leaves = [leaf for leaf in torch_guards.iterate_leaves(entry, {}) if leaf.check is not None]
    assert found.evaluated >= len(leaves)
    assert found.counts[found.kinds.index("EQUALS_MATCH")] >= 100
    assert found.eval_us > 0
    assert timeline.counts.recompiles == 0
    if Version(torch.__version__) < Version("2.9"):  # notes lines for its own log of guards alone
        assert found.lines == ()
        return
    line, count = found.lines[0], found.line_counts[0]
    assert (line.file, line.function) == (__file__, "forward")
    assert "sum(self.weights)" in Path(__file__).read_text().splitlines()[line.line - 1]
    assert count >= 100


def test_guards_that_do_not_hold_have_no_time() -> None:
    """They would end at the first that is false."""
    call(Total())
    (entry,) = torch_guards.get_cache_entries(Total.forward.__code__)
    scope = {"self": nn.Identity(), "x": torch.ones(2, 4)}
    assert torch_guards.time_guards(entry.guard_manager, scope, 5, 10**9) == []
    assert torch_guards.time_guards(None, scope, 5, 10**9) == []
    assert torch_guards.count_evaluated(None, 5) is None


def test_graphs_of_warm_calls_are_counted() -> None:
    """Of three calls the first compiles. The graph of the frame runs once in each."""
    timeline = seen_of(lambda: call(Tree(), 3))
    (found,) = timeline.warm_calls
    assert found.calls == 2
    assert found.function.function == "Tree.forward"
    (attempt,) = timeline.compiles
    assert found.runs == ((attempt.frame, 2),)


def test_a_signal_handler_under_our_lock_may_call_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, ran = list[Any](), list[Any]()
    timed = guards_in_use.WarmCalls(Session(events.append), lambda: 0)
    model, other = (torch.compile(Total(), backend="eager") for _ in range(2))

    def handle_signal(original: Any, given: Any) -> Any:
        if not ran:
            ran.append(None)
            ran.append(other(torch.ones(2, 4)))
        return original(given)

    def use() -> None:
        model(torch.ones(2, 4))
        timed.finish()

    owner: Any = guards_in_use.source_locations
    monkeypatch.setattr(owner, "get_location", partial(handle_signal, owner.get_location))
    timed.install()
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(20)
    timed.uninstall()
    assert not thread.is_alive()
    assert len(ran) == 2
    assert [type(event) for event in events] == [WarmCallsTimed]


def test_computed_once_it_is_one_guard() -> None:
    """Advice of CD621, and the page's table."""
    assert evaluated(Table()) - evaluated(Total()) >= 99


def test_unsafe_filter_leaves_few_guards() -> None:
    """Advice of CD621."""
    skip = getattr(torch.compiler, "skip_guard_on_all_nn_modules_unsafe", None)
    if skip is None:
        pytest.skip("this torch has no such filter")
    assert evaluated(Tree(), options={"guard_filter_fn": skip}) < evaluated(Tree()) / 4


def test_unsafe_stance_leaves_few_guards() -> None:
    """Advice of CD621: after warm-up nothing compiles again, and few guards tell entries apart."""
    tree = Tree()
    every = evaluated(tree)
    compiled = torch.compile(tree, backend="eager")
    compiled(torch.ones(2, 4))
    before = len(torch._dynamo.utils.get_compilation_metrics())
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
        compiled(torch.ones(2, 4))
    assert len(torch._dynamo.utils.get_compilation_metrics()) == before
    assert diff_guards(tree) < every / 4


def test_modules_that_did_not_change_are_skipped() -> None:
    """Advice of CD621: torch finds modules whose dicts' tags stand for all guards below."""
    if not hasattr(config, TAGS):
        pytest.skip("this torch has no such setting")
    roots: list[int] = []
    for wanted in (False, True):
        torch._dynamo.reset()
        with config.patch({TAGS: wanted}):
            call(Tree())
            (entry,) = torch_guards.get_cache_entries(Tree.forward.__code__)
            managers = [entry.guard_manager.root]
            for manager in managers:
                managers += manager.get_child_managers()
            roots.append(sum(manager.is_tag_safe_root() for manager in managers))
    assert roots[0] == 0
    assert roots[1] > 0


def test_the_ways_of_the_advice_are_tested_here() -> None:
    """A new way needs a test."""
    texts = (guard_cost._COMPUTE_ONCE, guard_cost._DICT_TAGS, guard_cost._UNSAFE)
    named = {name for text in texts for name in re.findall(r"\w*guard\w*", text)}
    assert named == {
        TAGS,
        "skip_guard_eval_unsafe",
        "guard_filter_fn",
        "skip_guard_on_all_nn_modules_unsafe",
    }
