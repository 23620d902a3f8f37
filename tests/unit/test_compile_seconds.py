"""Where compile seconds go: phases without those within them, their names, their sum."""

import json
import threading

import pytest
from built_receipt import built, compiled, ended, started, torch_seen
from screens import screen
from trace_lines import line

from compilediag.diagnosis.figures.compile_costs import OTHER, PHASES, classify_phase
from compilediag.readers.torch_trace.read import parse_trace
from compilediag.views.compiles import LABELS, show_compile_time
from compilediag.views.style import RenderOptions
from compilediag_harness.torch_internals.torch_compiles import PhaseTimes
from compilediag_harness.wire import Compiled, Location

MS = 1_000_000


def replay(times: PhaseTimes, *events: tuple[str, str, int]) -> None:
    """What began and ended, at which millisecond."""
    for what, name, at in events:
        (times.begin_phase if what == "began" else times.end_phase)(name, at * MS)


FRAME = "entire_frame_compile"


@pytest.mark.parametrize(
    ("events", "phases"),
    [
        pytest.param(
            [
                ("began", FRAME, 0),
                ("began", "build_guards", 2),
                ("began", "gc", 3),
                ("ended", "gc", 4),
                ("ended", "build_guards", 7),
                ("began", "gc", 8),
                ("ended", "gc", 9),
                ("ended", FRAME, 10),
            ],
            {FRAME: 0.004, "build_guards": 0.004, "gc": 0.002},
            id="the sum is the outermost phase's time",
        ),
        pytest.param(
            # An export, or a kernel that is tuned when it runs.
            [
                ("began", "tuned", 0),
                ("ended", "tuned", 9),
                ("began", FRAME, 10),
                ("ended", FRAME, 12),
            ],
            {FRAME: 0.002},
            id="what has no row",
        ),
        pytest.param(
            [("ended", "gc", 5), ("began", FRAME, 0), ("began", "tracing", 1), ("ended", FRAME, 4)],
            {FRAME: 0.004},
            id="begun before anybody looked, and ended with what it was in",
        ),
    ],
)
def test_a_phase_has_not_what_was_within_it(events, phases) -> None:
    times = PhaseTimes()
    replay(times, *events)
    assert dict(times.take() or ()) == phases
    assert times.take() == ()


def test_what_is_open_around_a_compile_is_no_part_of_it() -> None:
    """torch writes the row before the outermost phase ends; the next compile has not its rest."""
    times = PhaseTimes()
    replay(times, ("began", "dynamo", 0), ("began", FRAME, 1), ("ended", FRAME, 3))
    assert times.take() == ((FRAME, 0.002),)
    times.end_phase("dynamo", 9 * MS)
    assert times.take() == ()


def test_each_thread_has_its_own() -> None:
    """Two threads compile at once."""
    times, found = PhaseTimes(), list[object]()

    def other() -> None:
        times.begin_phase("gc", 0)
        times.end_phase("gc", MS)
        found.append(times.take())

    times.begin_phase("entire_frame_compile", 0)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    times.end_phase("entire_frame_compile", 2 * MS)
    assert found == [(("gc", 0.001),)]
    assert times.take() == (("entire_frame_compile", 0.002),)


def _timing(ph: str, name: str, at_us: float, of: int = 0) -> bytes:
    payload = b'{\n"name": "%s",\n"ts": %.1f,\n"ph": "%s"\n}' % (name.encode(), at_us, ph.encode())
    return line(b'{"chromium_event": {}, "frame_id": %d, "frame_compile_id": 0}' % of, payload)


def _row_in_trace(compile_id: str, start_us: int, end_us: int) -> bytes:
    row = {
        "compile_id": compile_id,
        "start_time_us": start_us,
        "end_time_us": end_us,
        "has_guarded_code": True,
        "recompile_reason": None,
        "dynamo_compile_time_before_restart_us": 500_000,
    }
    return line(json.dumps({"compilation_metrics": row}).encode())


def _rows_of(*records: bytes) -> list[Compiled]:
    events = [event for journal in parse_trace(records, "x.log") for event in journal.events]
    return [event for event in events if isinstance(event, Compiled)]


def test_a_trace_has_the_same_phases() -> None:
    """Begin and end of each, in microseconds; instants take no time."""
    rows = _rows_of(
        _timing("B", "dynamo", 0),
        _timing("B", "entire_frame_compile", 1e6),
        _timing("B", "gc", 2e6),
        _timing("i", "fx_graph_cache_miss", 2.2e6),
        _timing("E", "gc", 2.5e6),
        _timing("E", "entire_frame_compile", 4e6),
        _row_in_trace("0/0", 1_000_000, 4_000_000),
        _timing("E", "dynamo", 5e6),
    )
    assert [(row.phases, row.restarted_s) for row in rows] == [
        ((("entire_frame_compile", 2.5), ("gc", 0.5)), 0.5)
    ]


def test_two_threads_in_one_trace() -> None:
    """Their records lie among each other: the compile keeps them apart."""
    rows = _rows_of(
        _timing("B", "entire_frame_compile", 0, 0),
        _timing("B", "entire_frame_compile", 1e6, 1),
        _timing("E", "entire_frame_compile", 3e6, 0),
        _row_in_trace("0/0", 0, 3_000_000),
        _timing("E", "entire_frame_compile", 5e6, 1),
        _row_in_trace("1/0", 1_000_000, 5_000_000),
    )
    assert [row.phases for row in rows] == [
        (("entire_frame_compile", 3.0),),
        (("entire_frame_compile", 4.0),),
    ]


def test_a_timing_that_is_none_of_torchs() -> None:
    """It is counted as lost."""
    damaged = line(b'{"chromium_event": {}, "frame_id": 0, "frame_compile_id": 0}', b"{}")
    (journal,) = parse_trace([damaged, _row_in_trace("0/0", 0, 9)], "x.log")
    assert journal.lost == {"bad_json": 1}


def test_where_torch_times_nothing() -> None:
    """Null, not zero."""
    assert [row.phases for row in _rows_of(_row_in_trace("0/0", 0, 9))] == [None]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("entire_frame_compile", "dynamo"),
        ("_compile.compile_inner", "dynamo"),
        ("compile_attempt_1", "dynamo"),
        ("build_guards", "guards"),
        ("backend_compile", "backend"),
        ("create_aot_dispatcher_function", "aot_autograd"),
        ("aot_trace_joint_graph", "aot_autograd"),
        ("_recursive_joint_graph_passes", "graph_passes"),
        ("pass.post_grad_passes.stable_sort", "graph_passes"),
        ("min_cut_rematerialization_partition", "graph_passes"),
        ("fx_codegen_and_compile", "lowering"),
        ("GraphLowering.run", "lowering"),
        ("GraphLowering.codegen", "code_generation"),
        ("Scheduler.codegen", "code_generation"),
        ("PythonWrapperCodegen.generate", "code_generation"),
        ("compile_file", "kernel_builds"),
        ("async_compile.wait", "kernel_builds"),
        ("CachingAutotuner.benchmark_all_configs", "autotuning"),
        ("mm_template_precompiling", "autotuning"),  # torch's own column for it, too
        ("inductor_codecache_torch_key", "caches"),
        ("AOTAutogradCache.inductor_load", "caches"),
        ("pgo.get_remote_code_state", "caches"),
        ("gc", "garbage_collection"),
        ("something_of_a_later_torch", OTHER),
    ],
)
def test_names(name: str, phase: str) -> None:
    """What torch calls its parts, and what we call them."""
    assert classify_phase(name) == phase


def test_every_phase_has_a_label() -> None:
    assert set(PHASES) == set(LABELS)


def test_the_receipt_and_the_screen() -> None:
    """Phases add up to the total; a backward without a name is its forward's."""
    phases = (("entire_frame_compile", 1.0), ("compile_file", 2.5))
    nameless = Location("", 0, "")
    builds = (("compile_file", 1.0),)
    forward = compiled("0/0", 1.0, 0, 4.0, phases=phases, restarted_s=0.5)
    backward = compiled("0/0", 1.0, 0, 1.0, phases=builds, forward=False, frame=nameless)
    receipt = built([started(), torch_seen(), forward, backward, ended()])
    seconds = receipt.compile.seconds
    assert (seconds.attempts, seconds.total) == (2, pytest.approx(5.0))
    assert seconds.by_phase == pytest.approx({"dynamo": 1.0, "kernel_builds": 3.5, "other": 0.5})
    assert seconds.restarted == pytest.approx(0.5)
    assert [(item.attempts, item.frame.function) for item in seconds.frames] == [(2, "forward")]
    text = screen(show_compile_time, receipt, RenderOptions(width=100))
    assert "5.0 s in 2 compiles" in text
    assert "building kernels (C++, Triton)" in text
    assert "0.50 s of it (10 %) in attempts that Dynamo began again" in text


def test_one_compile_without_phases_leaves_all_out() -> None:
    """An older record: half of the seconds would look like all."""
    timed = compiled("0/0", 1.0, 0, 4.0, phases=(("gc", 1.0),))
    receipt = built([started(), torch_seen(), timed, compiled("0/1", 1.0, 0, 4.0), ended()])
    assert receipt.compile.seconds is None
    text = screen(show_compile_time, receipt, RenderOptions(width=100))
    assert "the phases of compiles were not seen" in text
