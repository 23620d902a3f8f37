"""Lookups of torch's compile caches, held against torch's own counts, and the advice about them."""

import functools
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rule_pages import run_code_of
from torch._dynamo import utils
from torch._functorch import config as functorch_config
from torch._inductor import codecache, config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.utils import checkpoint as checkpoints

from compilediag.runs.watch import watch
from compilediag_harness.torch_internals import torch_caches
from compilediag_harness.wire import CacheLookedUp

pytestmark = pytest.mark.filterwarnings("ignore")
"""torch warns of itself while inductor is imported."""

PAGES = Path(__file__).parents[2] / "docs" / "rules"

WEIGHT = torch.arange(64.0).reshape(8, 8) / 64


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty caches, and nothing compiled by another test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    forget()
    utils.counters.clear()
    yield tmp_path
    forget()


def forget(empty: Path | None = None) -> None:
    """As at the start of another process, optionally without what is in the caches."""
    torch._dynamo.reset()
    if empty is not None:
        shutil.rmtree(empty)


def project(rows: Any) -> Any:
    """A product of matrices: inductor calls torch for it, and no C++ compiler."""
    return rows @ WEIGHT


def lookups(watched: Any) -> list[CacheLookedUp]:
    return [item for part in watched.timeline.caches for item in part.lookups]


def answers(watched: Any) -> Counter[tuple[str, str]]:
    return Counter((item.cache, item.outcome) for item in lookups(watched))


def compile_once(rows: Any = None) -> Any:
    with watch() as watched:
        torch.compile(project)(torch.ones(4, 8) if rows is None else rows)
    return watched


def test_a_cold_and_a_warm_start() -> None:
    """As torch counts them itself; what an entry refers to is no saving of its own."""
    cold = compile_once()
    assert answers(cold) == {("aot_autograd", "miss"): 1, ("fx_graph", "miss"): 1}
    assert utils.counters["inductor"]["fxgraph_cache_miss"] == 1
    forget()
    warm = compile_once()
    assert answers(warm) == {("aot_autograd", "hit"): 1, ("fx_graph", "hit"): 1}
    assert utils.counters["inductor"]["fxgraph_cache_hit"] == 1
    assert utils.counters["aot_autograd"]["autograd_cache_hit"] == 1
    keys = [{item.cache: item.key for item in lookups(each)} for each in (cold, warm)]
    assert keys[0] == keys[1]
    assert all(keys[0].values())
    graph = next(item for item in lookups(warm) if item.cache == "fx_graph")
    assert graph.within == "aot_autograd"
    assert graph.saved_s is not None
    assert graph.compile_id == "0/0"
    assert not warm.findings


def test_what_a_key_is_made_of() -> None:
    """Another size changes the inputs and the graph's code does not tell; settings are shared."""
    one = compile_once()
    forget()
    other = compile_once(torch.ones(5, 8))
    parts = [
        part.get_components(item)
        for watched in (one, other)
        for part in watched.timeline.caches
        for item in part.lookups
        if item.cache == "fx_graph"
    ]
    differing = {name for name in parts[0] if parts[0][name] != parts[1].get(name)}
    assert any(name.startswith("example_inputs[") for name in differing)
    assert all(name.startswith(("example_inputs[", "gm")) for name in differing), differing
    assert parts[0]["inductor_config[max_autotune]"].endswith(" False")


def test_a_folder_that_is_deleted_in_the_middle(folder: Path) -> None:
    """Nothing raises, and what was lost is a miss."""
    with watch() as watched:
        torch.compile(project)(torch.ones(4, 8))
        forget()
        shutil.rmtree(folder)
        torch.compile(project)(torch.ones(4, 8))
    assert answers(watched) == {("aot_autograd", "miss"): 2, ("fx_graph", "miss"): 2}
    assert not watched.findings


def test_nothing_is_left_in_torch() -> None:
    """Every function is what it was before."""
    compile_once()  # so that all modules are imported
    owners: list[tuple[Any, str]] = [
        (utils.ChromiumEventLogger, "log_instant_event"),
        (utils.ChromiumEventLogger, "log_event_start"),
        (utils.ChromiumEventLogger, "log_event_end"),
        (codecache.FxGraphCache, "load_with_key"),
        (codecache.FxGraphCache, "_save_graph"),
        (codecache.FxGraphCache, "_write_to_local_cache"),
        (sys.modules[torch_caches.AOT_CACHE].AOTAutogradCache, "save"),
    ]
    owners = [(owner, name) for owner, name in owners if name in vars(owner)]
    assert len(owners) == 7
    before = [vars(owner)[name] for owner, name in owners]
    with watch():
        assert [vars(owner)[name] for owner, name in owners] != before
    assert [vars(owner)[name] for owner, name in owners] == before


def test_where_the_caches_lie(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made by looking; a folder that is not there yet is judged by the one it is in."""
    missing = folder / "not" / "yet"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(missing))
    found = torch_caches.read_cache_folder(0.0)
    assert (found.folder, found.configured, found.writable) == (str(missing), True, True)
    assert not missing.exists()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert torch_caches.read_cache_folder(0.0) is None


# --- advice ------------------------------------------------------------------------------------


def _autocast_inside() -> Any:
    def inside(rows: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            return project(rows)

    return torch.compile(inside)(torch.ones(4, 8))


def _autocast_around() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        return torch.compile(project)(torch.ones(4, 8))


def _policy(_context: Any, _operator: Any, *_args: Any, **_kwargs: Any) -> Any:
    return checkpoints.CheckpointPolicy.PREFER_RECOMPUTE


def _checkpointed(context_fn: Any) -> Any:
    weight = WEIGHT.clone().requires_grad_()

    def step(rows: Any) -> Any:
        return checkpoints.checkpoint(
            lambda x: x @ weight, rows, use_reentrant=False, context_fn=context_fn
        )

    torch.compile(step)(torch.ones(4, 8)).backward(torch.ones(4, 8))
    return weight.grad


def _contexts() -> Any:
    return functools.partial(checkpoints.create_selective_checkpoint_contexts, _policy)


def _hashed_contexts() -> Any:
    found = _contexts()
    found.cache_hash = "recompute everything"
    return found


def _nothing(_graph: Any) -> None:
    """A pass without a uuid."""


def _with_pass(custom: Any) -> Any:
    with config.patch(post_grad_custom_post_pass=custom):
        return torch.compile(project)(torch.ones(4, 8))


def _hashed_pass() -> Any:
    class Pass(CustomGraphPass):
        """Changes nothing."""

        def __call__(self, graph: Any) -> None:
            pass

        def uuid(self) -> Any:
            return get_hash_for_files((__file__,))

    return Pass()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Any) -> Any:
        return rows @ WEIGHT

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad @ WEIGHT.T


def _own_function() -> Any:
    rows = torch.ones(4, 8, requires_grad=True)
    torch.compile(_Product.apply)(rows).backward(torch.ones(4, 8))
    return rows.grad


def _own_function_allowed() -> Any:
    with functorch_config.patch(autograd_cache_allow_custom_autograd_functions=True):
        return _own_function()


SINCE_2_8 = ("checkpoint_policy", "autograd_function")
"""What can be cached at all only from then on."""

CACHES_MORE = hasattr(functorch_config, "autograd_cache_allow_custom_autograd_functions")

ADVICE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "autocast": (_autocast_inside, _autocast_around),
    "checkpoint_policy": (
        lambda: _checkpointed(_contexts()),
        lambda: _checkpointed(_hashed_contexts()),
    ),
    "custom_pass": (lambda: _with_pass(_nothing), lambda: _with_pass(_hashed_pass())),
    "autograd_function": (_own_function, _own_function_allowed),
}


@pytest.mark.parametrize("kind", ADVICE)
def test_advice_for_a_bypass_followed_literally(kind: str, folder: Path) -> None:
    """torch counts the bypass before, and none after; the results are the same."""
    before, after = ADVICE[kind]
    if kind in SINCE_2_8 and not CACHES_MORE:
        pytest.skip("torch 2.7 cannot cache it in any way")
    with watch() as watched:
        wrong = before()
    counted = utils.counters["aot_autograd"]["autograd_cache_bypass"]
    if not counted:
        pytest.skip("this torch caches it")
    assert [(item.rule, item.evidence["kind"]) for item in watched.findings] == [("CD611", kind)]
    forget(folder)
    utils.counters.clear()
    with watch() as watched:
        right = after()
    assert utils.counters["aot_autograd"]["autograd_cache_bypass"] == 0
    assert [item.rule for item in watched.findings] == []
    torch.testing.assert_close(right, wrong)


@pytest.mark.parametrize("code", ["CD611", "CD613", "CD614"])
def test_code_of_the_page(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bad code gives the finding, the good code does not."""
    for heading in ("Bad", "Good"):
        forget()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / heading))
        utils.counters.clear()
        with watch() as watched:
            run_code_of(code, heading, tmp_path, monkeypatch)
        if code == "CD611" and heading == "Bad":
            if not utils.counters["aot_autograd"]["autograd_cache_bypass"]:
                pytest.skip("this torch caches the bad code")
        assert [item.rule for item in watched.findings] == ([code] if heading == "Bad" else [])
