"""The live line: what it says, where it is drawn, and that it touches nothing else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compilediag.views.live import RESTORE_TITLE, SAVE_TITLE

TARGET = """
import os, sys
from compilediag_harness.wire import StepsEnded
from compilediag_harness import process
process.current.journal.write(StepsEnded(1.0, 0, "optimizer", (0.5, 1.0), (0.5, 0.5)))
sys.stderr.write("half a line")
sys.stderr.flush()
input()
print(" and its end", [os.isatty(fd) for fd in (0, 1, 2)], sys.argv)
"""

IN_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def on_a_terminal(folder: Path, wait_for: bytes, *words: str) -> tuple[bytes, int]:
    """Runs Python on a terminal of its own; sends a newline when `wait_for` was shown."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", IN_THE_TERMINAL, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
        start_new_session=True,
    )
    os.close(slave)
    shown, told = b"", False
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # how Linux tells that the other side is closed
            break
        if not piece:
            break
        shown += piece
        if not told and re.search(wait_for, shown):
            told = True
            os.write(master, b"\n")
    os.close(master)
    return shown, child.wait()


def test_a_terminal_shows_the_line_and_is_left_as_it_was(tmp_path: Path) -> None:
    """On a real pseudo-terminal: the title is saved, tells step and rate while the target waits
    in the middle of a line, and is restored; without the title's bytes, the terminal has got
    exactly what a plain run gives it."""
    (tmp_path / "x.py").write_text(TARGET)
    shown, code = on_a_terminal(
        tmp_path, rb"step 2 .{1,9}2 steps/s", "-m", "compilediag", "run", "--live", "x.py", "-a"
    )
    assert code == 0
    titled = re.compile(rb"\x1b\]2;[^\x07\x1b]*\x07|\x1b\[2[23];2t")
    escapes = titled.findall(shown)
    assert escapes[0] == SAVE_TITLE.encode()
    assert escapes[-1] == RESTORE_TITLE.encode()
    rest = titled.sub(b"", shown)
    # The newline of `input` is echoed by the terminal.
    expected = b"half a line\r\n and its end [True, True, True] ['x.py', '-a']\r\n"
    assert rest.startswith(expected)
    assert b"\x1b" not in rest


@pytest.mark.parametrize("flag", ["--no-live", "--quiet"])
def test_a_terminal_that_wants_no_live_line(flag: str, tmp_path: Path) -> None:
    """Neither flag leaves a single escape on the terminal."""
    (tmp_path / "x.py").write_text(TARGET)
    shown, code = on_a_terminal(tmp_path, rb"half a line", "-m", "compilediag", "run", flag, "x.py")
    assert code == 0
    assert b"\x1b" not in shown


ASSEMBLING = """
from compilediag.runs.supervised.assembly_progress import AssemblyProgress
with AssemblyProgress(silent_s=0.0) as progress:
    progress.stage("explaining 7 recompiles")
    input()
print("over")
"""


def test_a_receipt_that_takes_long_is_drawn_in_place_and_gone_at_its_end(tmp_path: Path) -> None:
    """On a real pseudo-terminal, where the line is erased before the verdict comes."""
    (tmp_path / "x.py").write_text(ASSEMBLING)
    shown, code = on_a_terminal(tmp_path, b"explaining 7 recompiles", "x.py")
    assert code == 0
    drawn, erased, rest = shown.rpartition(b"\x1b[2K")
    assert b"explaining 7 recompiles" in drawn
    assert erased
    assert rest.strip().endswith(b"over")
    assert b"explaining" not in rest
