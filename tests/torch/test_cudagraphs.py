"""CUDA graphs, watched where torch's own trees decide, with only CUDA itself replaced."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

trees: Any = pytest.importorskip("torch._inductor.cudagraph_trees")

from cudagraph_stubs import Model, trees_without_cuda  # noqa: E402 - it needs torch
from timelines import attempt, process, timeline  # noqa: E402

from compilediag.diagnosis.findings import Finding  # noqa: E402
from compilediag.rules import cudagraphs as rules  # noqa: E402
from compilediag.timeline.devices import CudagraphRun  # noqa: E402
from compilediag.timeline.timeline import fold  # noqa: E402
from compilediag_harness.base.session import Session  # noqa: E402
from compilediag_harness.collectors.cudagraphs import MAX_RECORDED, CudagraphCollector  # noqa: E402
from compilediag_harness.shapes import shape_log  # noqa: E402
from compilediag_harness.shapes.fixed_shape import FixedShape  # noqa: E402
from compilediag_harness.torch_internals import torch_cudagraphs  # noqa: E402
from compilediag_harness.wire import CudagraphRecorded, Event, FaultOccurred  # noqa: E402


class Watched:
    """A session that has been told what the trees did."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.session = Session(self.events.append)
        self.collector = CudagraphCollector(self.session)

    def run(self) -> CudagraphRun:
        """Everything so far, folded; the counts are told as at the end of a process."""
        self.collector.finish()
        assert not [event for event in self.events if isinstance(event, FaultOccurred)]
        (run,) = fold([self.events]).cudagraphs
        return run

    def findings(self, rule: Callable[[Any], Any]) -> list[Finding]:
        """What a rule says of it, on a machine with a device."""
        run = self.run()
        gpu = process(facts={"gpus": [{"name": "H100"}]})
        return list(rule(timeline([attempt()], cudagraphs=(run,), processes=(gpu,))))


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Trees that run without CUDA, and who watches them."""
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the stand-in for a recorded graph fits torch 2.13")
    seen = Watched()
    with trees_without_cuda():
        yield seen
    seen.collector.uninstall()


def weights(number: int) -> list[Any]:
    """So many tensors, each at an address of its own."""
    return [torch.ones(2, 2) for _ in range(number)]


def recorded_by_torch() -> int:
    """Recordings by torch's own list of timings."""
    timings: Any = torch._dynamo.utils.compilation_time_metrics
    return len(timings.get("CUDAGraphNode.record", []))


def test_recordings_are_counted_and_never_log_lines(watched: Watched) -> None:
    """Thirty weights in turn, twice: every second look finds its graph among thirty. The recordings
    are those of torch's own list, and no replay is one."""
    before = recorded_by_torch()
    model, moving = Model("7/0"), weights(30)
    for weight in (moving[0], *moving, *moving):
        model(weight)
    run = watched.run()
    assert run.recordings == len(run.recorded) == recorded_by_torch() - before == 30
    assert list(run.counts) == ["7/0"]
    assert run.reasons == {"first": 1, "static_address": 29}
    assert (run.warmups, run.replays) == (1, 30)
    assert run.live_graphs == 30
    (churn,) = watched.findings(rules.find_rerecordings)
    assert (churn.rule, churn.count, churn.variable) == ("CD405", 29, "primals_0")
    assert churn.evidence["replays"] == 30


def test_outputs_that_stay_alive(watched: Watched) -> None:
    """torch's second check: outputs of earlier graphs live on that were dead when it recorded."""
    model, (weight,) = Model(), weights(1)
    model(weight), model(weight)
    (graph,) = (node for nodes in trees.get_manager(0).roots.values() for node in nodes)
    graph.alive = False
    model(weight)
    assert watched.run().reasons == {"first": 1, "outputs_alive": 1}
    (again,) = watched.findings(rules.find_rerecordings)
    assert "still in use" in again.title


def test_every_dynamic_size_is_a_graph(watched: Watched) -> None:
    """Six sizes of one compiled function: six warm-ups, six graphs, and CD403 with the sizes."""
    model = Model("3/1", static=())
    for size in (2, 3, 4, 5, 6, 7) * 3:
        model(size, torch.ones(size, 4))
    run = watched.run()
    assert run.reasons == {"first": 1, "size": 5}
    assert (run.warmups, run.replays, run.distinct_sizes) == (6, 6, 6)
    (many,) = watched.findings(rules.find_many_sizes)
    assert (many.rule, many.count) == ("CD403", 6)
    assert many.evidence["graph_sizes"][0] == "[2] [2, 4]"  # pyright: ignore[reportIndexIssue]
    assert "compilediag plan" in many.fix.summary


def test_padding_of_calls_that_ran_in_graphs(watched: Watched) -> None:
    """Batches of 3, 5, 3, 3 and 5 rows run at 4, of which there is a graph, and at 8, of which the
    first run only warms up: of the 4 + 4 + 4 + 8 rows that ran in graphs, 14 were real."""
    model = Model(static=())
    fixed = FixedShape(lambda x: model(len(x), x)[0], {"x": 0}, [4, 8], out_dims={"": 0})
    with torch.no_grad():
        fixed(torch.ones(3, 4)), fixed(torch.ones(3, 4))
    assert watched.run().recordings == 1
    shape_log.sinks.install(watched.session)
    try:
        with torch.no_grad():
            for rows in (3, 5, 3, 3, 5):
                fixed(torch.ones(rows, 4))
        shape_log.sinks.finish(watched.session)
    finally:
        shape_log.sinks.uninstall(watched.session)
    (item,) = fold([watched.events]).fixed_shapes
    assert [(its.calls, its.graph_calls) for its in item.sizes] == [(3, 3), (2, 1)]
    assert item.graph_padding == 1 - 14 / 20


def test_another_thread_has_a_tree_of_its_own(watched: Watched) -> None:
    """A size that another thread meets first is recorded in a second tree; one that the first
    thread has recorded is replayed from there."""
    model = Model(static=())

    def evaluate(size: int) -> None:
        for _ in range(3):
            model(size, torch.ones(size, 4))

    evaluate(2)
    other = threading.Thread(target=lambda: (evaluate(5), evaluate(2)))
    other.start()
    other.join()
    run = watched.run()
    assert run.reasons == {"first": 1, "thread": 1}
    assert len({item.tree for item in run.recorded}) == 2
    assert len({item.thread for item in run.recorded}) == 2
    assert run.replays == 1 + 1 + 3


@pytest.mark.usefixtures("watched")
def test_nothing_is_watched_after_the_end() -> None:
    """Without a listener torch has its own methods back, and a second listener is told all the same
    as the first."""
    before = trees.CUDAGraphTreeManager.execute_node
    first, second = Watched(), Watched()
    with trees_without_cuda():
        model, (weight,) = Model(), weights(1)
        for _ in range(4):
            model(weight)
        first.collector.uninstall()
        model(weight)
        second.collector.uninstall()
        assert trees.CUDAGraphTreeManager.execute_node is before
        model(weight)
    assert (first.run().replays, second.run().replays) == (2, 3)


def test_the_model_s_own_exception_is_no_recording(watched: Watched) -> None:
    """A recording that fails is the program's to see, and is not counted."""
    model, (weight,) = Model(), weights(1)
    model(weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees.CUDAGraphNode, "run_first_inputs", raising)
        with pytest.raises(RuntimeError, match="capture failed"):
            model(weight)
    run = watched.run()
    assert (run.recordings, run.warmups) == (0, 1)


def raising(*_: Any) -> None:
    raise RuntimeError("capture failed")


def test_a_fault_of_ours_reaches_nobody(watched: Watched) -> None:
    """Where we cannot read what torch has, the model runs on and the fault is told."""
    model, (weight,) = Model(), weights(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_cudagraphs, "get_tree", raising)
        for _ in range(3):
            model(weight)
    assert [event.where for event in watched.events if isinstance(event, FaultOccurred)] == [
        "CUDA graph"
    ]


def test_a_node_of_another_torch_is_a_fault(watched: Watched) -> None:
    """What we read of it is not there: its replay raises nothing."""
    torch_cudagraphs._report_replay(object(), object(), [])  # pyright: ignore[reportPrivateUsage]
    assert [event.where for event in watched.events if isinstance(event, FaultOccurred)] == [
        "CUDA graph"
    ]


def test_skips_are_counted_until_torch_forgets(watched: Watched) -> None:
    """torch's own count from the attaching on; after a reset, which clears it, it is not known."""
    torch._inductor.cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs")
    assert watched.run().skips == 1
    watched.session.epoch += 1
    assert watched.run().skips is None


def test_recordings_beyond_the_limit_are_only_counted(watched: Watched) -> None:
    """A program that records for ever fills no journal; the count stays exact."""
    watched.collector._left = 2  # pyright: ignore[reportPrivateUsage]
    assert MAX_RECORDED > 2
    model, moving = Model(), weights(4)
    for weight in (moving[0], *moving):
        model(weight)
    run = watched.run()
    assert len([event for event in watched.events if isinstance(event, CudagraphRecorded)]) == 2
    assert (run.recordings, run.reasons) == (4, {"first": 1, "static_address": 1, "not told": 2})


def test_totals_are_those_of_the_exit(watched: Watched) -> None:
    """torch's finalizers give the graphs up at exit, before the process writes its last record."""
    model, moving = Model(), weights(3)
    for weight in (moving[0], *moving):
        model(weight)
    watched.collector._read_at_exit()  # pyright: ignore[reportPrivateUsage]
    torch_cudagraphs.managers.clear()
    assert watched.run().live_graphs == 3


def test_a_stack_out_of_a_cache_names_no_line_of_another_program() -> None:
    """Only lines of loaded files that are as they were; what is between them stays."""
    frame = sys._getframe()
    file, line = frame.f_code.co_filename, frame.f_lineno - 1
    real = f'File "{file}", line {line}, in f\n    frame = sys._getframe()'
    assert torch_cudagraphs.drop_stale_lines(f"due to x:\n   {real}\n") == f"due to x:\n   {real}\n"
    for stale in (real.replace(f"line {line}", "line 1"), real.replace("test_", "other_")):
        assert torch_cudagraphs.drop_stale_lines(f"due to x:\n   {stale}\n") == "due to x:\n   \n"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="records real CUDA graphs")
def test_counts_on_a_device() -> None:
    """With a real device: one recording a compiled graph, and the replays that the calls make."""
    seen = Watched()
    try:
        linear = torch.nn.Linear(8, 8).cuda()
        compiled = torch.compile(linear, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(6):
                compiled(torch.ones(4, 8, device="cuda"))
        run = seen.run()
        assert (run.recordings, run.warmups, run.replays) == (1, 1, 4)
        assert run.pool_bytes
    finally:
        seen.collector.uninstall()
