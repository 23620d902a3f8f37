"""The tool where what only Unix has is absent: taken away in a child, for want of a Windows."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import captured

RECEIPT = Path(__file__).parents[1] / "data" / "views" / "findings.json"

TAKEN_AWAY = """
import os, signal, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "O_CLOEXEC", "getuid", "killpg", "setsid"):
    delattr(os, name)
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL"):
    delattr(signal, name)
"""
SHOW = f"""
import sys
from compilediag.__main__ import main
sys.argv = ["compilediag", "show", {str(RECEIPT)!r}]
sys.exit(main())
"""
IMPORT = "import importlib; importlib.import_module('compilediag.commands.{}')"
WATCH = """
import compilediag as cd
with cd.watch() as seen:
    double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    double(torch.ones(2))
    double(torch.ones(3))
assert seen.receipt.verdict == "findings", seen.receipt.verdict
assert seen.receipt.compile.recompiles == 1
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return captured(sys.executable, "-c", program, timeout=300)


@pytest.mark.parametrize("command", ["show", "gate"])
def test_a_command_loads(command: str) -> None:
    """Its module needs nothing that was taken away."""
    done = run(TAKEN_AWAY + IMPORT.format(command))
    assert done.returncode == 0, done.stderr


def test_show_draws_a_receipt() -> None:
    """From the file to the screen."""
    done = run(TAKEN_AWAY + SHOW)
    assert done.returncode == 0, done.stderr
    assert "CD102" in done.stdout


def test_watch_counts_a_recompile() -> None:
    """torch itself is loaded before: on this system it needs what is taken away."""
    done = run("import torch\n" + TAKEN_AWAY + WATCH)
    assert done.returncode == 0, done.stderr
