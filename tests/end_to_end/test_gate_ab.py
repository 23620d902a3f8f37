"""Timings of two commands: no false alarms in simulated noise, and what would have been found."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compilediag.errors import UsageError
from compilediag.runs.tools.ab import measure


def test_the_order_of_the_runs(tmp_path: Path) -> None:
    """A B, B A, A B: and the first pair is not counted."""
    log = tmp_path / "log"
    a, b = measure(f"printf A >> {log}", f"printf B >> {log}", 3)
    assert (len(a), len(b)) == (3, 3)
    assert log.read_text() == "ABBAABBA"
    assert all(item.wall_s > 0 for item in (*a, *b))


def test_children_count(tmp_path: Path) -> None:
    """CPU seconds are those of the command and of what it waited for: at least what a child of the
    command counted itself."""
    code = "import time; sum(range(3_000_000)); print(time.process_time(), file=open('cpu', 'w'))"
    _, b = measure("true", f'cd {tmp_path}; {sys.executable} -c "{code}"; true', 1)
    assert b[0].cpu_s > 0.9 * float((tmp_path / "cpu").read_text())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo first >&2; echo 'no such file' >&2; exit 7", "exit code 7 in the warm-up"),
        ("kill -9 $$", "signal 9 in the warm-up"),
    ],
)
def test_a_command_that_fails(line: str, said: str) -> None:
    """Its exit code and its last words; nothing is compared."""
    with pytest.raises(UsageError, match=said) as caught:
        measure("true", line, 3)
    assert "command B" in str(caught.value)
    if "echo" in line:
        assert str(caught.value).endswith(": no such file")


def test_it_can_fail_later(tmp_path: Path) -> None:
    """The round is reported."""
    once = f"test ! -e {tmp_path}/x || exit 4; touch {tmp_path}/x"
    with pytest.raises(UsageError, match=r"command A, .* exit code 4 in round 1"):
        measure(once, "true", 3)


def test_ctrl_c_lets_a_command_save_its_work(tmp_path: Path) -> None:
    """One Ctrl-C is passed on to the command that runs, which takes the time it needs."""
    (tmp_path / "save.py").write_text(
        "import time\n"
        "try:\n"
        "    open('ready', 'w')\n"
        "    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1)\n"
        "    open('saved', 'w')\n"
    )
    line = f"exec {sys.executable} save.py"
    command = [sys.executable, "-m", "compilediag", "gate", "--ab", line, line]
    child = subprocess.Popen(command, cwd=tmp_path)
    while not (tmp_path / "ready").exists():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert child.wait() == 130
    assert (tmp_path / "saved").exists()


def test_an_ignored_ctrl_c_stays_ignored_in_the_commands() -> None:
    """As of a job in the background of a script: exec keeps what is ignored, and no handler."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        measure("kill -INT $$", "true", 1)
    finally:
        signal.signal(signal.SIGINT, before)
