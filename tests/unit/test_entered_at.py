"""Where the program entered what was compiled: joined to compiles, breaks and findings."""

import json
from dataclasses import replace

import pytest
from built_receipt import compiled
from timelines import FILE, PACKAGE_FILE, TORCH_FILE
from trace_lines import line

from compilediag.diagnosis.findings import make_call_record, make_place
from compilediag.readers.torch_trace.read import parse_trace
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import fold
from compilediag_harness import wire

CALL = wire.UserCall(FILE, 36, "main", "model(x, batch)", (("x", "x"), ("index", "batch")))
OTHER = wire.UserCall(FILE, 50, "evaluate", "model(x)")
WHERE = wire.Location(PACKAGE_FILE, 10, "forward")


def row(compile_id: str, call: wire.UserCall | None, reason: str | None = None) -> wire.Compiled:
    thread = "" if call is not None else "thread pool_0 (thread.py:83 in _worker)"
    facts = {"recompile_reason": reason, "entered_at": call, "entered_from": thread}
    return compiled(compile_id, 1.0, 0, 0.5, frame=WHERE, **facts)


def question(compile_id: str) -> wire.Recompiled:
    text = f"L['n'] == 2  # if n:  # {PACKAGE_FILE}:12 in forward"
    return wire.Recompiled(0.9, 0, compile_id, 0, WHERE, (f"0/0: {text}",), (), 0.0)


def test_a_recompile_has_the_call_of_its_row() -> None:
    """Each compile its own; the finding that of the first recompile with its cause."""
    events: list[wire.Event] = [row("0/0", OTHER), question("0/1"), row("0/1", CALL, "n")]
    timeline = fold([events])
    assert [item.entered_at for item in timeline.compiles] == [OTHER, CALL]
    assert [item.entered_at for item in timeline.recompiles] == [CALL]
    (finding,) = (item for item in diagnose(timeline).findings if item.rule == "CD107")
    assert finding.location == make_place(wire.Location(PACKAGE_FILE, 12, "forward"))
    assert finding.entered_at == make_call_record(CALL)


def test_a_compile_that_did_not_end() -> None:
    """It has no row: its start has the call."""
    started = wire.CompileStarted(0.95, 0, "DYNAMO", "0/1", 0, WHERE, CALL)
    timeline = fold([[row("0/0", OTHER), question("0/1"), started]])
    assert timeline.recompiles[0].entered_at == CALL


def test_a_break_has_the_call_of_its_compile() -> None:
    """Also where torch reports it at a restart of the compile, and none of another process."""
    text = f"Graph break in user code at {PACKAGE_FILE}:14\nReason: item\n"
    broke = wire.GraphBroke(0.5, 0, "0/0_1", 0, text)
    timeline = fold([[row("0/0", OTHER)], [broke, row("0/0", CALL)]])
    assert [item.entered_at for item in timeline.breaks] == [CALL]
    (finding,) = (item for item in diagnose(timeline).findings if item.rule.startswith("CD2"))
    assert finding.entered_at == make_call_record(CALL)


def test_frames() -> None:
    """At the limit the call that runs eager; a skipped frame its own."""
    limited = replace(
        row("0/1", CALL, "n"), guarded=False, fail_type="RecompileLimitExceeded", graph_ops=None
    )
    skipped = wire.FrameSkipped(2.0, 0, wire.Location(PACKAGE_FILE, 90, "other"), "why", CALL)
    timeline = fold([[row("0/0", OTHER), question("0/1"), limited, skipped]])
    assert [frame.entered_at for frame in timeline.frames] == [CALL]
    assert [item.entered_at for item in timeline.skipped] == [CALL]
    found = {item.rule: item.entered_at for item in diagnose(timeline).findings}
    assert found["CD904"] == found["CD152"] == make_call_record(CALL)


def test_a_thread_without_such_a_call() -> None:
    """What the thread is takes its place."""
    timeline = fold([[row("0/0", OTHER), question("0/1"), row("0/1", None, "n")]])
    (finding,) = (item for item in diagnose(timeline).findings if item.rule == "CD107")
    assert finding.entered_at is None
    assert finding.entered_from == "thread pool_0 (thread.py:83 in _worker)"


# --- from a trace ----------------------------------------------------------------------------

EVAL_FRAME = "/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py"
THREAD = "/usr/lib/python3.11/concurrent/futures/thread.py"
FILES = [FILE, EVAL_FRAME, TORCH_FILE, PACKAGE_FILE, "<frozen runpy>", "<string>", THREAD]

Stack = list[tuple[int, int, str, str]]


def entered(stack: Stack) -> tuple[wire.UserCall | None, str]:
    """Of the one compile of a trace that began below these calls."""
    strings = [json.dumps({"str": [name, at]}) for at, name in enumerate(FILES)]
    entries = [
        {"line": number, "name": name, "filename": file, "loc": text}
        for file, number, name, text in stack
    ]
    entries.append({"line": 10, "name": "forward", "filename": 3})
    ids = {"frame_id": 0, "frame_compile_id": 0}
    start = json.dumps({"dynamo_start": {"stack": entries}, **ids, "attempt": 0})
    metrics = {"compile_id": "0/0", "co_filename": PACKAGE_FILE, "has_guarded_code": True}
    end = json.dumps({"compilation_metrics": {**metrics, "recompile_reason": None}, **ids})
    data = b"".join(line(each.encode()) for each in (*strings, start, end))
    (journal,) = parse_trace([data], "trace")
    (found,) = [event for event in journal.events if isinstance(event, wire.Compiled)]
    return found.entered_at, found.entered_from


MODULE: Stack = [(1, 511, "__call__", "return super()"), (2, 1789, "_call_impl", "forward_call")]


TOP, IN_MAIN = (0, 60, "<module>", "main()"), (0, 36, "main", "model(x)")
FOUND = wire.UserCall(FILE, 36, "main", "model(x)")
INSTALLED = wire.UserCall(PACKAGE_FILE, 7, "<module>", "model(x)")
RUNPY: Stack = [(4, 198, "_run_module_as_main", ""), (4, 88, "_run_code", "")]


@pytest.mark.parametrize(
    ("stack", "call"),
    [
        # Of a module: the user's call above it; a library's between them does not count.
        ([TOP, IN_MAIN, *MODULE], FOUND),
        ([TOP, IN_MAIN, (3, 5, "run", "self.model(x)"), *MODULE], FOUND),
        ([TOP, (0, 36, "torch_dynamo_resume_in_main_at_30", "model(x)"), *MODULE], FOUND),
        # Of a function torch leaves the call out: none is better than the one above it.
        ([], None),
        ([TOP], None),
        # `python -m`: the file that ran is the program's.
        ([*RUNPY, (3, 7, "<module>", "model(x)"), *MODULE], INSTALLED),
        ([(3, 8, "main", "model(x)"), *MODULE], None),
    ],
)
def test_the_call_in_a_trace(stack: Stack, call: wire.UserCall | None) -> None:
    assert entered(stack)[0] == call


def test_trace_of_a_thread() -> None:
    """Of a pool, no call of which is the user's."""
    _, thread = entered([(6, 83, "_worker", "work_item.run()"), *MODULE])
    assert thread == "a thread (futures/thread.py:83 in _worker)"
