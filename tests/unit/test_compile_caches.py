"""Lookups of compile caches: torch's records read, counted, and judged."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from built_receipt import compiled, ended, started, torch_seen
from trace_lines import line

from compilediag.diagnosis.figures.key_difference import get_digest
from compilediag.diagnosis.findings import Finding
from compilediag.readers.torch_trace.read import parse_trace, read_trace
from compilediag.readers.torch_trace.scan import PAYLOAD_LIMIT
from compilediag.rules.caches import LARGE_OPS, LOST_CACHE_S, find_reason
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import (
    MAX_COMPONENTS,
    CacheFolderRead,
    CacheLookedUp,
    CacheWritten,
    Event,
    Lookups,
)

TRACES = Path(__file__).parents[1] / "data" / "traces_of_caches"
AUTOCAST = (
    "Unsupported call_function target <function _enter_autocast at 0x7f7ef2903920>. \n Function "
    "module: torch.amp.autocast_mode, \nFunction name: _enter_autocast"
)
FALSE = "esstihe2nyydk4mhzpvox3qkajyu5y5t23hk3fi2me7jn75xi3o"


def looked(cache: str, outcome: str, compile_id: str = "0/0", **more: Any) -> CacheLookedUp:
    return CacheLookedUp(1.0, 0, cache, outcome, compile_id, 0, **more)


def described(info: dict[str, Any]) -> tuple[Any, CacheLookedUp]:
    return Lookups().describe(looked("fx_graph", "miss"), info)


def findings(*own: Event, ops: int = 6, seconds: float = 1.0, **row: Any) -> list[Finding]:
    run = [started(), torch_seen(), *own, compiled("0/0", 2.0, 0, seconds, graph_ops=ops, **row)]
    found = diagnose(fold([[*run, ended()]])).findings
    return [item for item in found if item.rule.startswith("CD6")]


# --- torch's dictionary --------------------------------------------------------------------------


def test_what_torch_says_of_a_lookup() -> None:
    """Addresses are left out; settings stand apart from what is a graph's own."""
    settings, read = described(
        {
            "key": "f3w5opxen3i3f6rqexmnuz3vfd5zkkxfsu6sokdxxxnsk5ts6wxe",
            "cache_status_detailed": "full_miss",
            "time_saved_ns": 2_500_000_000,
            "components": [
                f"[{FALSE}] inductor_config[max_autotune]: False",
                "[mhuckhjjky7qkrmhqimycpqnfvs6] gm: GraphModule()\n\n def f(): 1",
                "[fdx5cz4ggwvfjsdb2m] fx_kwargs[get_decomp_fn]: <function table at 0x7ff711>",
                "no component",
                7,
            ],
        }
    )
    assert (read.status, read.saved_s) == ("full_miss", 2.5)
    assert dict(settings.components) == {"inductor_config[max_autotune]": "esstihe2 False"}
    assert dict(read.components) == {
        "gm": "mhuckhjj GraphModule() def f(): 1",
        "fx_kwargs[get_decomp_fn]": "fdx5cz4g <function table>",
    }
    assert [get_digest(value) for _, value in read.components] == ["mhuckhjj", "fdx5cz4g"]
    assert (settings.digest, len(read.settings)) == (read.settings, 8)


def test_the_reason_of_a_bypass_is_the_same_in_every_run() -> None:
    """torch prints where the function lies in memory."""
    other = AUTOCAST.replace("0x7f7ef2903920", "0x7f11ff7fb920")
    texts = (AUTOCAST, other)
    (reason,) = {described({"cache_bypass_reason": text})[1].reason for text in texts}
    assert "0x" not in reason


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"key": None, "components": None, "time_saved_ns": None},
        {"key": 3, "components": {"a": 1}, "time_saved_ms": "7", "cache_status_detailed": []},
        {"components": ["[x] : ", "[" * 9000, "", "[abcdefgh] a"], "time_saved_ns": -1},
    ],
)
def test_what_is_missing_or_of_another_type_is_empty(info: dict[str, Any]) -> None:
    """A version that does not record something gives null."""
    _, read = described(info)
    assert (read.key, read.saved_s, read.components, read.settings) == ("", None, (), "")


def test_a_key_of_many_parts_is_bounded() -> None:
    """Each tensor of a large model is one."""
    lines = [f"[{FALSE}] example_inputs[{index}]: x" for index in range(MAX_COMPONENTS + 5)]
    _, read = described({"components": lines})
    assert (len(read.components), read.components_left_out) == (MAX_COMPONENTS, 5)


# --- recorded traces -----------------------------------------------------------------------------


def lookups_of(events: tuple[Event, ...]) -> list[tuple[str, str, str]]:
    found = [item for item in events if isinstance(item, CacheLookedUp)]
    return [(item.cache, item.outcome, item.within) for item in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bypass", [("aot_autograd", "bypass", ""), ("fx_graph", "hit", "")]),
        ("warm", [("fx_graph", "hit", "aot_autograd"), ("aot_autograd", "hit", "")]),
        (
            "half",
            [
                ("aot_autograd", "miss", ""),
                ("fx_graph", "miss", ""),
                ("fx_graph", "miss", "aot_autograd"),
                ("aot_autograd", "miss", ""),
                ("fx_graph", "miss", ""),
            ],
        ),
    ],
)
def test_traces(name: str, expected: list[tuple[str, str, str]]) -> None:
    """Of torch 2.13.0: programs of the scenarios of the same faults."""
    (journal,) = read_trace(str(TRACES / f"{name}.log.gz"))
    assert not journal.lost
    assert lookups_of(journal.events) == expected
    rules = {item.rule for item in diagnose(fold([journal.events])).findings}
    assert rules & {"CD611", "CD614"} == {"bypass": {"CD611"}, "half": {"CD614"}}.get(name, set())


@pytest.mark.parametrize("version", ["2.7.1", "2.15.0"])
@pytest.mark.parametrize(("start", "outcome"), [("cold", "miss"), ("warm", "hit")])
def test_traces_of_other_versions(version: str, start: str, outcome: str) -> None:
    """Two models with a backward each, twice with one folder. torch counted four lookups of graphs
    and two of AOTAutograd in each start, all of them of one outcome."""
    (journal,) = read_trace(str(TRACES / f"{start}_{version}.log.gz"))
    assert not journal.lost
    found = Counter((cache, seen) for cache, seen, _ in lookups_of(journal.events))
    assert found == {("fx_graph", outcome): 4, ("aot_autograd", outcome): 2}
    assert [item for item in diagnose(fold([journal.events])).findings if item.rule > "CD6"] == []


def test_a_graph_that_is_too_long_for_one_record() -> None:
    """Its key and its outcome are known, and nothing counts as lost."""
    long = ["x" * PAYLOAD_LIMIT]
    info = {"cache_status_detailed": "full_miss", "key": "fabc", "components": long}
    meta = b'{"artifact": {"name": "fx_graph_cache_miss", "encoding": "json"}, "frame_id": 0, '
    text = line(meta + b'"frame_compile_id": 0}', json.dumps(info).encode())
    (journal,) = parse_trace([text], "trace.log")
    assert not journal.lost
    (found,) = [item for item in journal.events if isinstance(item, CacheLookedUp)]
    assert (found.key, found.status, found.compile_id) == ("fabc", "full_miss", "0/0")


# --- CD611 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (AUTOCAST, "autocast"),
        ("SAC context_fn does not have a cache_hash attribute. To enable", "checkpoint_policy"),
        ("Unsupported post grad custom pass", "custom_pass"),
        ("Unsupported call_function target autograd_function_apply. Function", "autograd_function"),
        ("Cannot cache a graph with freezing enabled", "freezing"),
        ("Skipping graph with frozen constants", "freezing"),
        ("FX graph cache is not enabled", "cache_off"),
        ("Can't cache HigherOrderOperator: cond", "operator"),
        ("Unsupported node op something", "unknown"),
    ],
)
def test_reasons(text: str, kind: str) -> None:
    """In torch's words."""
    assert find_reason(text).kind == kind


def test_a_bypass() -> None:
    """A note of a small graph, a warning of a large one; the seconds are those a hit would save."""
    reason = described({"cache_bypass_reason": AUTOCAST})[1].reason
    bypass = looked("aot_autograd", "bypass", reason=reason)
    graph = looked("fx_graph", "miss", key="f1")
    phases = (("aot_collect_metadata", 0.5), ("compile_file", 9.0), ("gc", 0.1))
    (small,) = findings(bypass, graph, phases=phases)
    assert (small.rule, small.severity, small.cost_s) == ("CD611", "info", 0.5)
    (large,) = findings(bypass, graph, ops=LARGE_OPS)
    assert (large.severity, large.cost_s) == ("warning", None)
    assert "traces" in large.title
    assert large.evidence["reasons"] == [reason]
    both = looked("fx_graph", "bypass", reason="Unsupported post grad custom pass")
    (whole,) = findings(both, ops=LARGE_OPS, phases=phases)
    assert (whole.cost_s, "compiles" in whole.title) == (9.5, True)


def test_what_a_setting_asks_for_is_no_warning() -> None:
    """However large the graph is."""
    off = looked("aot_autograd", "bypass", reason="FX graph cache is not enabled")
    (found,) = findings(off, ops=10 * LARGE_OPS)
    assert found.severity == "info"
    assert findings(looked("fx_graph", "disabled"), ops=10 * LARGE_OPS) == []


def test_each_reason_once() -> None:
    """Two that are not known are two."""
    texts = ("Unsupported node op a", "Unsupported node op b", "Unsupported node op a")
    found = findings(*(looked("aot_autograd", "bypass", reason=text) for text in texts))
    assert sorted(item.evidence["reasons"][0] for item in found) == sorted(set(texts))  # type: ignore[index]


# --- CD613, CD614 --------------------------------------------------------------------------------


def test_entries_that_were_not_written() -> None:
    """The folder's fault has a cure; what torch cannot serialize has none that is known."""
    folder = CacheFolderRead(0.9, "/cache", True, False, "ext4")
    full = CacheWritten(1.5, 0, "fx_graph", "0/0", 0, "OSError: [Errno 28] No space left on device")
    odd = CacheWritten(1.5, 0, "aot_autograd", "0/0", 0, "torch could not serialize the entry")
    fine = CacheWritten(1.5, 0, "fx_graph", "0/0", 0)
    found = findings(folder, full, odd, fine)
    assert [(item.rule, item.severity, item.evidence["kind"]) for item in found] == [
        ("CD613", "warning", "not_written"),
        ("CD613", "warning", "not_serialized"),
    ]
    assert "/cache" in found[0].fix.summary
    assert "TORCHINDUCTOR_CACHE_DIR" not in found[1].fix.summary
    assert findings(folder, fine) == []


@pytest.mark.parametrize(
    ("temporary", "filesystem", "seconds", "told"),
    [
        (True, "ext4", LOST_CACHE_S, True),
        (False, "overlay", LOST_CACHE_S, True),
        (False, "tmpfs", LOST_CACHE_S, True),
        (True, "tmpfs", LOST_CACHE_S - 1, False),
        (False, "ext4", 10 * LOST_CACHE_S, False),
        (False, "", 10 * LOST_CACHE_S, False),
    ],
)
def test_a_folder_that_does_not_last(temporary, filesystem, seconds, told) -> None:
    """A note, and only where much would be lost: it is where torch puts it for everybody."""
    folder = CacheFolderRead(0.9, "/tmp/torchinductor_me", False, temporary, filesystem)
    found = findings(folder, looked("fx_graph", "miss", key="f1"), seconds=seconds)
    assert [(item.rule, item.severity) for item in found] == [("CD613", "info")] * told


MISS, HIT = looked("aot_autograd", "miss", status="full_miss"), looked("fx_graph", "hit", key="f1")
AGAIN = looked("fx_graph", "miss", key="f1")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        # The entry without its graphs; the graphs without the entry; both missed; both hit.
        ((looked("aot_autograd", "miss", status="hit"), AGAIN), [("dangling", "warning")]),
        ((MISS, HIT), []),
        ((MISS, AGAIN), []),
        ((replace(HIT, within="aot_autograd"), looked("aot_autograd", "hit")), []),
    ],
)
def test_half_a_hit(events: tuple[Event, ...], told: list[tuple[str, str]]) -> None:
    found = findings(*events)
    assert {item.rule for item in found} <= {"CD614"}
    assert [(item.evidence["kind"], item.severity) for item in found] == told
