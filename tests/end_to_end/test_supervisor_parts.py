"""The parts of the supervisor that need no child: target, timetable, environment, ending."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from compilediag.errors import UsageError
from compilediag.runs.supervised.child import PASSED_ON, start, supervise
from compilediag.runs.supervised.signals import GroupWitness, SignalInbox

# --- the timetable ---------------------------------------------------------------------------


def test_supervising_by_an_injected_clock() -> None:
    """A child that ignores INT and TERM is killed when the clock says so, however slow the day."""
    code = (
        "import signal; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; print(1, flush=True)"
    )
    moments = iter([0.0, 0.1, *(float(n) for n in range(1, 2000))])
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code}\nwhile True: signal.pause()"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout, SignalInbox() as inbox, GroupWitness(PASSED_ON) as witness:
        child.stdout.readline()
        inbox.wait = Mock(side_effect=[[signal.SIGINT], [signal.SIGINT], *[[]] * 2000])
        ended = supervise(
            child, inbox, witness, started=0.0, grace_s=3.0, clock=lambda: next(moments)
        )
    assert (ended.returncode, ended.exit_code, ended.interrupts) == (-9, 137, 2)
    assert ended.sent == (signal.SIGTERM, signal.SIGKILL)


def test_a_program_the_system_refuses_is_a_usage_error(tmp_path: Path) -> None:
    """A script without an interpreter line: the system's words, nothing started."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be started: Exec format error"):
        start([str(broken)], os.environ)
