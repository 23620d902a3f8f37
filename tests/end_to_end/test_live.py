"""The live line: what it says, where it is drawn, and that it touches nothing else."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

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
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
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


BAR = """
import sys
import torch
from tqdm import tqdm
torch._dynamo.config.recompile_limit = 3
f = torch.compile(lambda x, scale: x * scale, backend="eager", dynamic=False)
for step in tqdm(range(40), mininterval=0, file=sys.stderr):
    f(torch.ones(2), float(step // 10))
    if step == 38:
        sys.stdin.readline()
"""

TOKENS = re.compile(r"\x1b\[K|\r|\n|\x1b\[A|[^\r\n\x1b]+")


def screen_of(shown: bytes) -> list[str]:
    """The rows of a terminal after it was sent this."""
    text = shown.decode()
    rows, row, column = [""], 0, 0
    assert "".join(TOKENS.findall(text)) == text, "no other escape is understood here"
    for token in TOKENS.findall(text):
        if token == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif token == "\x1b[A":
            row -= 1
        elif token == "\x1b[K":
            rows[row] = rows[row][:column]
        elif token != "\r":
            padded = rows[row].ljust(column)
            rows[row] = padded[:column] + token + padded[column + len(token) :]
            column += len(token)
        column = 0 if token == "\r" else column
    return [item.rstrip() for item in rows]


def test_lines_stand_above_a_progress_bar(tmp_path: Path) -> None:
    """Two recompiles and the limit, in the words of the verdict, each a whole row; the bar is whole
    below them, and no part of it is left between them."""
    (tmp_path / "x.py").write_text(BAR)
    shown, code = on_a_terminal(
        tmp_path, b"hit the recompile limit [(]", "-m", "compilediag", "run", "--live", "x.py"
    )
    assert code == 0
    rows = screen_of(shown)
    lines = [row for row in rows if "compilediag ·" in row]
    assert len(lines) == 3
    change = "compilediag · step {}: recompile: `scale` changes from call to call: {} · x.py:6 "
    assert lines[0].startswith(change.format(10, "0.0 → 1.0"))
    assert lines[1].startswith(change.format(20, "0.0 → 1.0 → 2.0"))
    assert lines[2].startswith("compilediag · step 30: ")
    assert "hit the recompile limit (3): eager since step 30" in lines[2]
    (bar,) = [row for row in rows if "| 40/40 [" in row]
    assert bar.startswith("100%|")
    assert rows.index(bar) > rows.index(lines[1])
    assert b"\x1b]2;" not in shown


@pytest.mark.parametrize("flag", ["--no-live", "--quiet"])
def test_a_terminal_that_wants_no_live_line(flag: str, tmp_path: Path) -> None:
    """Neither flag leaves a single escape on the terminal."""
    (tmp_path / "x.py").write_text(TARGET)
    shown, code = on_a_terminal(tmp_path, rb"half a line", "-m", "compilediag", "run", flag, "x.py")
    assert code == 0
    assert b"\x1b" not in shown


ASSEMBLING = """
from compilediag.runs.work_progress import WorkProgress
with WorkProgress(silent_s=0.0) as progress:
    progress.set_stage("explaining 7 recompiles")
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
