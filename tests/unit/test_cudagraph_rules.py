"""CUDA graphs from events to receipt, gate and findings; torch's texts as torch writes them."""

from typing import Any

import pytest
from timelines import FILE, attempt, process, timeline

from compilediag.compare.gate.limits import get_count, parse_limits
from compilediag.compare.run_baseline import build_run_baseline
from compilediag.diagnosis.figures.devices import build_cudagraph_section
from compilediag.rules import cudagraphs as rules
from compilediag.rules.diagnose import ALL_RULES
from compilediag.timeline.devices import CudagraphRun, parse_skip_reason
from compilediag.timeline.invocations import Calls, ShapeCount
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness import wire

GPU = process(facts={"gpus": [{"name": "H100"}]})
CPU = process(facts={"gpus": []})
MUTATED = (
    "skipping cudagraphs due to mutated inputs (2 instances). Found from : \n"
    f'   File "{FILE}", line 14, in forward\n    self.total.add_(x)\n'
)
OFF = "disabling cudagraphs due to incompatible op aten.x"
LIMIT = (
    "skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on cudagraph "
    "node 1 due to cudagraph managed tensor data pointer changed."
)


def recorded(reason: str = "first", compile_id: str = "0/0", **more: Any) -> wire.CudagraphRecorded:
    """A recording of half a second."""
    graph = {"mode": "forward", "tree": 0, "function": 0, "sizes": ("[8, 4]",), "seconds": 0.5}
    when = {"t": 1.0, "step": 1, "epoch": 0, "thread": 1, "moved": (), "moved_at": ()}
    told = {"compile_id": compile_id, "reason": reason, **more}
    return wire.CudagraphRecorded(**{**graph, **when, **told})


def ran(
    recordings: int = 1, replays: int = 0, compile_id: str = "0/0", **more: Any
) -> wire.CudagraphsRan:
    return wire.CudagraphsRan(2.0, (compile_id,), (recordings,), (replays,), (1,), **more)


def run_of(*events: wire.Event) -> CudagraphRun:
    (run,) = fold([events]).cudagraphs
    return run


def seen(*events: wire.Event, **more: Any) -> Timeline:
    """A run on a machine with a device."""
    run = fold([events])
    known = {"cudagraphs": run.cudagraphs, "fixed_shapes": run.fixed_shapes}
    return timeline([attempt()], **{"processes": (GPU,), **known, **more})


def warning(text: str, step: int = 1) -> wire.WarningSeen:
    return wire.WarningSeen(1.0, step, "0/0", "torch._inductor.cudagraph_utils.__cudagraphs", text)


# --- folding ---


def test_batches_are_added_up() -> None:
    """By compile; the recordings reported one by one are part of the counts, not more of them."""
    run = run_of(recorded(), ran(1, 3), ran(0, 4), ran(2, 1, "1/0", skips=5, pool_bytes=7))
    assert (run.recordings, run.replays, run.warmups) == (3, 8, 3)
    assert run.reasons == {"first": 1, "not told": 2}
    assert (run.skips, run.pool_bytes) == (5, 7)


def test_a_killed_process_has_what_it_told() -> None:
    """Its last batch is missing: recordings that were reported one by one still count."""
    run = run_of(recorded(), recorded("size"), ran(1, 3))
    assert (run.recordings, run.replays, run.skips) == (2, 3, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MUTATED, "mutated inputs (N instances)"),
        (LIMIT, "re-recording limit"),
        ("skipping cudagraphs due to cpu device (arg3_1)", "cpu device (argN_N)"),
        (f"skipping cudagraphs due to {OFF}", OFF),
        ("CUDAGraph supports dynamic shapes by recording a new graph for each size.", None),
    ],
)
def test_reasons_are_torch_s(text: str, reason: str | None) -> None:
    """Equal reasons are equal, whatever they are numbered with; another warning has none."""
    assert parse_skip_reason(text) == reason


# --- the receipt and the gate ---


def test_not_applicable_without_a_device() -> None:
    """On a CPU torch leaves out every graph: that is no number of this run."""
    section = build_cudagraph_section(seen(ran(0, 0, skips=9), processes=(CPU,)))
    assert (section.applicable, section.recordings, section.skips) == (False, None, None)


def test_the_section_tells_counts_and_reasons() -> None:
    """Everything that was reported, of the lead process; a warning that is no skip is none."""
    events = (recorded(), recorded("size", sizes=("[9, 4]",)), ran(2, 5, skips=1, live_graphs=2))
    run = seen(*events, warnings=(warning(MUTATED), warning("something else")))
    section = build_cudagraph_section(run)
    assert section.applicable is True
    assert (section.recordings, section.replays, section.warmups) == (2, 5, 1)
    assert section.recordings_by_reason == {"first": 1, "size": 1}
    assert section.skips_by_reason == {"mutated inputs (N instances)": 1}
    assert (section.distinct_shapes, section.live_graphs, section.threads) == (2, 2, 1)


def test_a_device_and_no_graph_is_known_to_be_none() -> None:
    """The trees were never imported and the process ended in order: zero. Killed: not known."""
    assert build_cudagraph_section(seen()).recordings == 0
    killed = process(facts={"gpus": [{}]}, ended=False)
    assert build_cudagraph_section(seen(processes=(killed,))).recordings is None


def test_what_cannot_be_watched_is_null() -> None:
    """A torch whose trees we do not know: no number, and never zero."""
    section = build_cudagraph_section(seen(ran(0, 0, lost="unknown trees")))
    assert (section.applicable, section.recordings, section.replays) == (True, None, None)


def test_padding_in_graphs_is_told_of_one_callable() -> None:
    """Of 8 rows that ran in graphs 6 were real. Where two callables ran in graphs no sum is made:
    rows of one may cost a thousand times those of the other. Without a call in a graph, nothing."""

    def padded(number: int, in_graphs: int) -> wire.FixedShapeUsed:
        place = wire.Location(FILE, 4, "score")
        calls = (((3,),), ((4,),), (5,))
        return wire.FixedShapeUsed(
            1.0, number, place, ("rows",), ((4,),), *calls, in_graphs=(in_graphs,)
        )

    def waste(*events: wire.Event) -> float | None:
        return build_cudagraph_section(seen(ran(2, 5), *events)).padding_waste_fraction

    assert waste(padded(0, 2)) == 0.25
    assert waste(padded(0, 2), padded(1, 0)) == 0.25
    assert waste(padded(0, 2), padded(1, 2)) is None
    assert waste(padded(0, 0)) is None
    assert waste() is None


def test_the_gate_counts_recordings_and_replays() -> None:
    """`--fail-on 'recordings > 1'` and `'replays < 4'` are held against what was counted; without a
    device both are none, and where graphs could not be watched nothing is known."""
    from gate_receipts import receipt
    from msgspec.structs import replace

    limits = parse_limits("recordings > 1, replays < 4")

    def counted(told: Timeline) -> list[int | None]:
        made = replace(receipt(), cudagraph=build_cudagraph_section(told))
        return [get_count(made, build_run_baseline(made), limit.name) for limit in limits]

    assert counted(seen(recorded(), ran(2, 3))) == [2, 3]
    assert [limit.is_broken_by(count) for limit, count in zip(limits, (2, 3), strict=True)] == [
        True,
        True,
    ]
    assert counted(seen(ran(0, 0), processes=(CPU,))) == [0, 0]
    assert counted(seen(ran(0, 0, lost="unknown trees"))) == [None, None]


# --- the rules ---


def test_a_skip_has_its_reason_and_place() -> None:
    """CD401 with torch's reason and the user's line, once for equal reasons."""
    run = seen(ran(0), warnings=(warning(MUTATED), warning(MUTATED, 4), warning(LIMIT, 9)))
    mutated, limit = rules.find_skipped_cudagraphs(run)
    assert (mutated.rule, mutated.count, mutated.steps) == ("CD401", 2, (1, 4))
    assert (mutated.location.line, mutated.confidence) == (14, "text")
    assert limit.location is None


def test_no_skip_is_no_proof() -> None:
    """Graphs were requested and none was recorded, without a word: CD401. Not where graphs were
    recorded, nobody requested them, or nothing could be watched."""
    asked = {"compile_requests": [{"mode": "reduce-overhead"}], "gpus": [{}]}
    with_mode = {"processes": (process(facts=asked),)}
    (silent,) = rules.find_skipped_cudagraphs(
        seen(wire.CudagraphsRan(2.0, (), (), (), ()), **with_mode)
    )
    assert "none was recorded" in silent.title
    for run in (
        seen(ran(1), **with_mode),
        seen(wire.CudagraphsRan(2.0, (), (), (), ())),
        seen(wire.CudagraphsRan(2.0, (), (), (), (), lost="unknown trees"), **with_mode),
    ):
        assert list(rules.find_skipped_cudagraphs(run)) == []


def test_nothing_is_said_on_a_cpu() -> None:
    """A skip on a machine without a device is no defect."""
    run = timeline([attempt()], processes=(CPU,), warnings=(warning(MUTATED),))
    every = [item for rule in ALL_RULES for item in rule(run)]
    assert [item for item in every if item.rule.startswith("CD40")] == []


def test_an_overwritten_output_ends_the_run() -> None:
    """CD404 from torch's error, with the line of the program."""
    failure = (
        "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
        f'subsequent run. Stack trace: File "{FILE}", line 21, in evaluate\n    use(out)'
    )
    ended = process(facts={"gpus": [{}]}, failure=failure)
    (found,) = rules.find_overwritten_outputs(timeline([attempt()], processes=(ended,)))
    assert (found.rule, found.severity) == ("CD404", "error")
    assert found.location.line == 21


def test_sizes_of_static_compiles_are_sizes_too() -> None:
    """With dynamic=False every size is a compile and a first recording: CD403 counts them all, at
    the function that was compiled."""
    many = [
        recorded("first", f"0/{number}", sizes=(f"[{number}, 4]",), function=number)
        for number in range(1, 7)
    ]
    (found,) = rules.find_many_sizes(seen(*many, ran(6)))
    assert (found.rule, found.count, found.cost_s) == ("CD403", 6, 3.0)
    assert found.location.file == FILE


def test_too_many_sizes_come_with_the_plan() -> None:
    """What the function was called with, how often, and the buckets that would do."""
    many = [recorded("size", sizes=(f"[{rows}, 4]",), function=rows) for rows in range(60, 66)]
    shapes = tuple(ShapeCount(f"[{rows}, 4]", 3, rows, 4 * rows) for rows in range(60, 66))
    place = attempt().frame
    calls = Calls(0, place, 18, shapes, (), (), tensors=("x",))
    (found,) = rules.find_many_sizes(seen(*many, ran(6), invocations=(calls,)))
    assert (found.evidence["sizes"], found.evidence["calls"]) == (list(range(60, 66)), [3] * 6)
    assert found.evidence["buckets"] == [65]
    assert found.fix.summary == (
        "pad to 65 (4% padding) with compilediag.FixedShape: compilediag plan"
    )


def test_a_frame_recorded_once_a_partition_has_one_size() -> None:
    """Six graphs that are the first of one compile are its partitions, whatever tensors they take;
    at four more sizes of the call there are thirty graphs, and five sizes."""
    parts = [recorded("first", function=number, sizes=(f"[8, {number}]",)) for number in range(6)]
    assert list(rules.find_many_sizes(seen(*parts, ran(6)))) == []
    more = [
        recorded("size", function=rows * 6 + number, sizes=(f"[{rows}, {number}]",))
        for rows in (9, 10, 11, 12)
        for number in range(6)
    ]
    (found,) = rules.find_many_sizes(seen(*parts, *more, ran(30)))
    assert (found.title, found.count) == ("5 sizes, and CUDA graphs for each", 30)
