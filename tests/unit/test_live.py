"""The live line: its text, where it is drawn, and that it touches nothing else."""

import os
import pty
import re
from dataclasses import replace
from pathlib import Path

import pytest
from built_receipt import compiled, flag_guard, recompiled

from compilediag.runs.supervised.live_tail import FollowedRun, LiveView, describe_events
from compilediag.timeline.timeline import fold
from compilediag.views.live import Progress, format_screen_line
from compilediag_harness import wire
from compilediag_harness.base.journal import Journal

WHERE = wire.Location("/home/u/model.py", 22, "forward")
GUARD = wire.FalseGuard("capture", "EQUALS_MATCH", "capture == False", "False", "True")
AGAIN = wire.Recompiled(2.0, 4, "0/1", 0, WHERE, ("r",), (wire.EntryDiff("0/0", (GUARD,)),), 0.0)
DONE = wire.Compiled(
    3.0, 4, "0/1", 0, WHERE, True, True, 1.5, None, 1, 2, 1, "r", None, None
)  # fmt: skip


def test_the_line_has_step_rate_and_what_compiles_and_why() -> None:
    """A recompile in progress: function, line, the guard's two values, the seconds so far."""
    progress = Progress()
    progress.apply(wire.StepsEnded(1.0, 0, "optimizer", (0.5, 1.0), (0.5, 0.5)), 10.0)
    progress.apply(wire.CompileStarted(2.0, 4, "recompile", "0/1", 0), 11.0)
    assert progress.apply(AGAIN, 11.0) == ()
    assert progress.format_line(13.0) == (
        "step 2 · 2 steps/s · compiling forward model.py:22 again (capture False → True) 2 s"
    )
    assert progress.apply(DONE, 14.0) == (AGAIN, DONE)
    assert progress.format_line(14.0) == "step 2 · 2 steps/s · 1 recompile · compiles cost 1.5 s"


def test_a_compile_has_a_sentence_every_ten_seconds() -> None:
    """Where, why and how long; of a first compile the frame as torch has it when it begins; of a
    backward that is compiled later, that of its forward."""
    progress = Progress()
    progress.apply(wire.CompileStarted(2.0, 0, "DYNAMO", "0/0", 0, WHERE), 10.0)
    assert progress.list_long_compiles(19.9) == []
    assert progress.list_long_compiles(20.0) == [("0/0", 1, "compiling forward model.py:22 10 s")]
    assert progress.list_long_compiles(45.0) == [("0/0", 3, "compiling forward model.py:22 35 s")]
    progress.apply(replace(DONE, compile_id="0/0", recompile_reason=None), 46.0)
    progress.apply(wire.CompileStarted(50.0, 0, "LAZY_BACKWARD", "0/0", 0), 50.0)
    assert progress.list_long_compiles(60.0) == [("0/0", 1, "compiling forward model.py:22 10 s")]


def test_a_recompile_is_told_in_the_words_of_the_verdict() -> None:
    """Family, variable, values, line and seconds; values that are secret are not shown."""
    first, last = compiled("0/0", 2.25, 0, 1.0), compiled("0/1", 2.7, 3, 0.1875)
    (told,) = describe_events((first, recompiled("0/1", 2.6, 3), last), ())
    assert told.startswith("step 3: recompile: ")
    assert "`capture` changes: False → True · " in told
    assert "/model.py:21 in hook · " in told
    assert told.endswith(" · 0.19 s")
    asked = recompiled("0/1", 2.6, 3, flag_guard("'hunter22'", "'swordfish9'"))
    assert "swordfish9" in describe_events((first, asked, last), ())[0]
    assert "swordfish9" not in describe_events((first, asked, last), ("swordfish9",))[0]


def test_a_line_clears_what_it_is_written_over() -> None:
    """It begins at the left edge and ends the row; text of the target acts on nothing."""
    assert format_screen_line("a\x1b[2J\nb").startswith("\r\x1b[Kcompilediag · a")
    assert re.findall(r"[\x00-\x1f]", format_screen_line("a\x1b[2J\nb")) == ["\r", "\x1b", "\n"]


def test_recompiles_are_counted_as_a_receipt_counts_them() -> None:
    """None: a backward that repeats its forward's reason, a frame given up at a break in a loop."""
    events = [
        AGAIN,
        replace(DONE, recompile_reason=None),
        replace(DONE, compile_id="0/2"),
        replace(DONE, compile_id="0/2", forward=False),
        wire.GraphBroke(3.5, 4, "0/3", 0, "graph break in loop"),
        replace(DONE, compile_id="0/3", graph_ops=None),
    ]
    progress = Progress()
    for event in events:
        progress.apply(event, 0.0)
    assert progress.recompiles == fold([events]).counts.recompiles == 2


def opening() -> bytes:
    return wire.encode(wire.ProcessStarted(0.0, 1, 1, 1, None, None, (), "", "", "", ""))


def test_following_a_journal_that_grows(tmp_path: Path) -> None:
    """Only what was added is read, also when a look ends in the middle of a line."""
    journal = Journal(str(tmp_path), opening)
    view = FollowedRun(str(tmp_path))
    assert view.poll(0.0) == []
    assert view.describe() == "step 0"
    journal.write(AGAIN)
    whole = Path(journal.path).read_bytes()
    Path(journal.path).write_bytes(whole[:-10])
    assert view.poll(1.0) == []
    with open(journal.path, "ab") as file:
        file.write(whole[-10:])
    journal.write(DONE)
    assert view.poll(2.0) == [(AGAIN, DONE)]
    assert view.poll(3.0) == []
    journal.write(wire.StepsEnded(4.0, 0, "optimizer", (0.5, 1.0), (0.5, 0.5)))
    assert view.describe() == "step 2 · 2 steps/s · 1 recompile · compiles cost 1.5 s"
    journal.write(wire.RandomStateRead(5.0, ()))
    assert "over; calls with other inputs" in view.describe()
    journal.close()


def test_a_background_job_does_not_draw(tmp_path: Path) -> None:
    """A terminal that belongs to another group (here: to nothing) is left alone."""
    master, slave = pty.openpty()
    view = LiveView(str(tmp_path), slave)
    view.update()
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 100)
    os.close(master)
    os.close(slave)
