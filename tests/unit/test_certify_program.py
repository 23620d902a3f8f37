"""The points "program" and "exercised": each holds, fails where it can, and is undecided."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compilediag.certify.calls import compare_calls
from compilediag.certify.change import Change, ChangedFile, compare_sources
from compilediag.certify.points import ExecutedState, JudgedPoint
from compilediag.certify.program import (
    check_exercised,
    check_program,
    is_traced,
    leave_out_unloaded,
)
from compilediag.receipt.schema.receipt import Failure
from compilediag_harness.wire import (
    FaultOccurred,
    LinesRun,
    RecordingStarted,
    SourcesLoaded,
    WatchedLines,
)
from tests.support.built_receipt import built
from tests.support.certified_states import FILE, calls, state, varied
from tests.support.timelines import process

OLD, NEW = b"x = 1\n", b"x = 2\n"
CHANGE = compare_sources({FILE: OLD, "/p/same.py": OLD}, {FILE: NEW, "/p/same.py": OLD})


def loaded(text: bytes, file: str = FILE) -> dict[str, Any]:
    digest = compare_sources({}, {file: text}).after[file]
    return {"loaded": (SourcesLoaded(0.0, (file,), (digest,)),)}


BEFORE, AFTER = state(calls(1.0), **loaded(OLD)), state(calls(1.0), **loaded(NEW))


def judge(before: ExecutedState, after: ExecutedState, change: Change = CHANGE) -> JudgedPoint:
    found = compare_calls(before.timeline, after.timeline)
    return check_program(before, after, change, found)


def with_run(**fields: Any) -> ExecutedState:
    """The new state, with other facts of its run."""
    receipt = built()
    run = msgspec.structs.replace(receipt.header.run, **fields)
    header = msgspec.structs.replace(receipt.header, run=run)
    return replace(AFTER, receipt=msgspec.structs.replace(receipt, header=header))


def with_environment(**fields: Any) -> ExecutedState:
    receipt = built()
    environment = msgspec.structs.replace(receipt.environment, **fields)
    return replace(AFTER, receipt=msgspec.structs.replace(receipt, environment=environment))


def with_flags(**fields: Any) -> ExecutedState:
    receipt = built()
    lane = receipt.header.configuration
    flags = msgspec.structs.replace(lane.numerics_flags, **fields)
    lane = msgspec.structs.replace(lane, numerics_flags=flags)
    header = msgspec.structs.replace(receipt.header, configuration=lane)
    return replace(AFTER, receipt=msgspec.structs.replace(receipt, header=header))


TRACEBACK = """\
Unsupported: no

  File "/p/lib/train.py", line 3, in <module>
    step(x)
  File "/v/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 9, in wrapper
    raise Unsupported
Unsupported: no
from user code:
   File "/p/lib/model.py", line 12, in forward
    return x.item()

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


def test_the_same_program() -> None:
    point = judge(BEFORE, AFTER)
    assert (point.outcome, point.sentence) == ("holds", "both end alike: 3 steps, 1 process")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (with_run(exit_code=3), "exit code"),
        (state(calls(1.0), steps=2, **loaded(NEW)), "steps 3 → 2"),
        (
            state(calls(1.0), processes=(process(), process(1)), **loaded(NEW)),
            "processes with torch 1 → 2",
        ),
        (with_flags(matmul_precision="medium"), "another precision: matmul_precision"),
        (replace(AFTER, problem="it hung"), "does not end well: it hung"),
        (
            replace(
                AFTER,
                problem="Unsupported: no",
                receipt=msgspec.structs.replace(
                    built(), failure=Failure(reason=TRACEBACK, log_tail=None)
                ),
            ),
            "does not end well: .../lib/model.py:12: Unsupported: no",
        ),
    ],
)
def test_another_end_fails(after: ExecutedState, words: str) -> None:
    point = judge(BEFORE, after)
    assert point.outcome == "fails"
    assert words in point.sentence


SOURCES = {
    "the text of the other state": loaded(OLD),
    "a copy": loaded(NEW, "/v/site-packages/user/app.py"),
    "another edit": loaded(b"x = 1\n\n", "/p/same.py"),
}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (state(calls(1.0), **SOURCES["the text of the other state"]), "with another text"),
        (state(calls(1.0), **SOURCES["a copy"]), "which the change does not touch"),
        (state(calls(1.0), **SOURCES["another edit"]), "with another text"),
        (state(calls(1.0), recordings=(), **loaded(NEW)), "no process was recorded"),
        (state(calls(1.0), recordings=(RecordingStarted(0.0, 6),), **loaded(NEW)), "other seeds"),
        (
            state(calls(1.0), processes=(process(ended=False),), **loaded(NEW)),
            "before its end could be recorded",
        ),
        (state(calls(1.0), processes=(process(records_dropped=2),), **loaded(NEW)), "not whole"),
        (
            state(
                calls(1.0),
                faults=(FaultOccurred(0.0, "recording: a call", "x\nE: y"),),
                **loaded(NEW),
            ),
            "a fault of compilediag's own in the recording (a call): E: y",
        ),
        (with_environment(torch="1.0"), "another environment: torch"),
        (with_run(argv_redacted=("b.py",)), "other arguments"),
    ],
)
def test_what_cannot_be_compared_is_undecided(after: ExecutedState, words: str) -> None:
    point = judge(BEFORE, after)
    assert point.outcome == "undecided"
    assert words in point.sentence


def test_a_source_that_belongs_to_neither_state_is_the_same_in_both_executions() -> None:
    def with_library(old: bytes, new: bytes) -> JudgedPoint:
        known = [loaded(text, "/other/library.py")["loaded"] for text in (old, new)]
        first, second = (
            replace(made, timeline=replace(made.timeline, loaded=(*made.timeline.loaded, *more)))
            for made, more in zip((BEFORE, AFTER), known, strict=True)
        )
        return judge(first, second)

    assert with_library(OLD, OLD).outcome == "holds"
    point = with_library(OLD, NEW)
    assert point.outcome == "undecided"
    assert point.sentence.startswith("/other/library.py has changed")


RAN: dict[str, Any] = {"lines_run": (LinesRun(0.0, FILE, (1,), ()),)}


@pytest.mark.parametrize("old", [True, False])
def test_a_file_that_ran_was_imported_by_both_states(old: bool) -> None:
    ran = state(calls(1.0), **loaded(NEW), **RAN), state(calls(1.0), **RAN)
    assert judge(BEFORE, ran[0]).outcome == "holds"
    read = (state(calls(1.0)), ran[0]) if old else (BEFORE, ran[1])
    assert judge(*read).outcome == "undecided"


@pytest.mark.parametrize(
    ("path", "command", "outcome"),
    [
        ("/p/test_a.py", "pytest", "undecided"),
        ("/p/conftest.py", "pytest", "undecided"),
        ("/p/a.py", "pytest", "holds"),
        ("/p/test_a.py", "train.py", "holds"),
    ],
)
def test_a_test_file_of_one_state_is_undecided(path: str, command: str, outcome: str) -> None:
    before, after = (
        replace(made, receipt=with_run(argv_redacted=(command, "-q")).receipt)
        for made in (BEFORE, AFTER)
    )
    change = replace(CHANGE, after={**CHANGE.after, path: "0"})
    assert judge(before, after, change).outcome == outcome


def test_a_base_that_fails_is_undecided() -> None:
    assert judge(replace(BEFORE, problem="exit code 1"), AFTER).outcome == "undecided"


def test_steps_that_calls_mark_move_with_what_is_compiled() -> None:
    def stepped(count: int, *values: float) -> ExecutedState:
        made = state(calls(*values), steps=count, **loaded(OLD if count == 3 else NEW))
        steps = tuple(replace(step, source="call") for step in made.timeline.steps)
        return replace(made, timeline=replace(made.timeline, steps=steps))

    assert judge(stepped(3, 1.0, 1.0), stepped(2, 1.0)).outcome == "holds"
    assert judge(stepped(3, 1.0), stepped(2, 1.0)).outcome == "fails"


# --- exercised ------------------------------------------------------------------------------------


def run(*lines: int, in_graph: tuple[int, ...] = (), file: str = FILE) -> ExecutedState:
    return state(lines_run=(LinesRun(0.0, file, lines, in_graph),))


LINES = Change((ChangedFile(FILE, (3, 4, 9), ((11, 12),)),), {}, {})


def test_every_changed_line_ran() -> None:
    point = check_exercised(state(), run(3, 4, 9, 12, in_graph=(3, 4)), LINES)
    assert (point.outcome, point.sentence) == (
        "holds",
        ("3 changed lines ran, 2 in graphs, 1 with this run's values alone"),
    )


def test_lines_that_did_not_run_are_named() -> None:
    point = check_exercised(state(), run(3, 12), LINES)
    assert point.outcome == "undecided"
    assert point.sentence == (
        "proved for what ran: 1 of 3 changed lines; not run (--also could): app.py:4, 9"
    )


def test_beside_what_was_removed_something_has_to_run() -> None:
    point = check_exercised(state(), run(3, 4, 9), LINES)
    assert point.outcome == "undecided"
    assert "removed at app.py:11" in point.sentence


def test_what_never_ran_and_is_gone_is_not_decided() -> None:
    """It is where calls ran it that were made again, and gave the same."""
    change = replace(LINES, files=(replace(LINES.files[0], branches=((6, 7),)),))
    assert change.watched_before == (WatchedLines(FILE, (6, 7)),)
    new = run(3, 4, 9, 12)
    point = check_exercised(run(6), new, change)
    assert point.outcome == "undecided"
    assert point.sentence == (
        "never run, so not compared (--also could): the branch at app.py:7 of the old state"
    )
    recorded = check_exercised(replace(state(), is_watched=False), new, change)
    assert recorded.outcome == "undecided"
    assert "of the old state may never have run: no execution of it has looked" in recorded.sentence
    assert check_exercised(run(6, 7), new, change).outcome == "holds"
    assert check_exercised(run(), new, change).outcome == "holds"  # nobody calls the function
    made = varied("size 4 → 1", lines=(WatchedLines(FILE, (7,)),))
    assert check_exercised(run(6), new, change, ([made], [])).outcome == "holds"
    assert check_exercised(run(6), new, change, ([], [made])).outcome == "undecided"


def test_the_way_past_an_if_that_is_gone_has_to_have_been_taken() -> None:
    change = replace(LINES, files=(replace(LINES.files[0], branches=((6, -7), (6, 8))),))
    point = check_exercised(run(6, 8), run(3, 4, 9, 12), change)
    assert "never run, so not compared (--also could): the branch at app.py:7 not" in point.sentence
    assert check_exercised(run(6, 8, -7), run(3, 4, 9, 12), change).outcome == "holds"


def test_a_changed_line_may_run_in_a_call_that_was_made_again() -> None:
    made = varied("size 4 → 1", lines=(WatchedLines(FILE, (9,)),))
    assert check_exercised(state(), run(3, 4, 12), LINES, ([], [made])).outcome == "holds"


def test_lines_of_all_processes_count() -> None:
    made = run(3, 4)
    other = LinesRun(0.0, FILE, (9, 11), (), process=1)
    timeline = replace(made.timeline, lines_run=(*made.timeline.lines_run, other))
    assert check_exercised(state(), replace(made, timeline=timeline), LINES).outcome == "holds"


@pytest.mark.parametrize(
    ("new", "in_graph", "is_whole"),
    [
        (b"y = 2\nself.fused = True\n", (1,), True),
        (b"y = 2\nself.fused = True\n", (2,), False),
        (b"y = 2\nself.fused = False\n", (1, 2), False),
        (b"y = 2\n", (1,), False),
        (b"y = 2\nself.fused = True\ndef f():\n    global g\n    g = 1\n", (1, 2, 3, 4, 5), False),
    ],
    ids=["in a graph", "not in one", "another write", "a write removed", "a global"],
)
def test_a_change_is_traced_whole(new: bytes, in_graph: tuple[int, ...], is_whole: bool) -> None:
    """Where it tells other code nothing: that could do eager what left the graphs."""
    change = compare_sources({FILE: b"y = 1\nself.fused = True\n"}, {FILE: new})
    assert is_traced(run(1, 2, in_graph=in_graph), change) == is_whole
    assert not is_traced(run(1, 2, in_graph=in_graph), replace(change, others=("--env A=1",)))


def test_a_new_file_that_nothing_loads_is_no_part_of_the_change() -> None:
    """Another program, written beside this one."""
    change = compare_sources({FILE: OLD}, {FILE: NEW, "/p/check.py": b"import train\n"})
    left = leave_out_unloaded(change, state(**loaded(NEW)))
    assert [its.file for its in left.files] == [FILE]
    for after in (state(**loaded(b"", "/p/check.py")), run(1, file="/p/check.py")):
        assert leave_out_unloaded(change, after).files == change.files
    changed = compare_sources({FILE: OLD}, {FILE: NEW})
    assert leave_out_unloaded(changed, state()).files == changed.files


def test_where_nothing_differs_nothing_was_exercised() -> None:
    assert check_exercised(state(), state(), Change((), {}, {})).outcome == "undecided"


def test_a_change_without_a_line_of_python() -> None:
    point = check_exercised(state(), state(), Change((), {}, {}, ("A=1",)))
    assert (point.outcome, point.sentence) == ("holds", "no line of Python changed: A=1")


def test_both_may_end_alike_with_an_error() -> None:
    states = [replace(one, problem="ValueError: no") for one in (BEFORE, AFTER)]
    point = judge(*states)
    assert (point.outcome, "both end alike, with ValueError: no" in point.sentence) == (
        "holds",
        True,
    )
    assert judge(BEFORE, replace(AFTER, problem="ValueError: no")).outcome == "fails"
    nothing = msgspec.structs.replace(AFTER.receipt.compile, compiles=0)
    early = [
        replace(one, receipt=msgspec.structs.replace(one.receipt, compile=nothing))
        for one in states
    ]
    point = judge(*early)
    assert point.outcome == "undecided"
    assert point.sentence == "both states end before anything is compiled: ValueError: no"
    assert "before anything is compiled" not in judge(states[0], early[1]).sentence
