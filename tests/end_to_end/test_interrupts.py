"""Ctrl-C: it reaches the target once, and the target takes its time."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from command_line import captured

COMPILING = """
import os, signal, torch

def backend(graph, inputs):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7):
        pass
    return graph.forward

torch.compile(lambda x: x * 2, backend=backend)(torch.ones(3))
"""
SAVE = """
def save():
    with open("checkpoint", "w") as file:
        for part in range(10):
            file.write("x")
            file.flush()
            time.sleep(0.1)
    print("saved", flush=True)

def wait():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""

IN_EXCEPT = """
try:
    wait()
except KeyboardInterrupt:
    save()
    sys.exit(7)
"""
IN_FINALLY = """
try:
    wait()
finally:
    save()
"""
AT_EXIT = """
atexit.register(save)
wait()
"""
IN_HANDLER = """
def handler(*_):
    save()
    sys.exit(9)
signal.signal(signal.SIGINT, handler)
signal.signal(signal.SIGTERM, handler)
wait()
"""
COUNTING = """
received = []
signal.signal(signal.SIGINT, lambda number, _: received.append(number))
signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
signal.signal(signal.SIGHUP, lambda number, _: received.append(number))
print("ready", flush=True)
while not received:
    time.sleep(0.01)
time.sleep(1)
print(len(received), flush=True)
"""


def written(body: str) -> str:
    imports = "import atexit, os, signal, sys, time\n"
    Path("x.py").write_text(imports + SAVE + textwrap.dedent(body))
    return "x.py"


def started(*words: str) -> subprocess.Popen[bytes]:
    """Python in a process group of its own; returns when it has printed "ready"."""
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def run(*words: str) -> subprocess.Popen[bytes]:
    return started("-m", "compilediag", "run", "--quiet", "-o", "out", *words)


def send(process: subprocess.Popen[bytes], signum: int, *, group: bool) -> None:
    """To the whole group, as a terminal does it, or to the supervisor alone."""
    (os.killpg if group else os.kill)(process.pid, signum)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    out, _ = process.communicate()
    code = process.returncode
    return (128 - code if code < 0 else code), out


def receipt() -> Any:
    return json.loads(Path("out/receipt.json").read_text())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("body", "signum", "group"),
    [
        (IN_EXCEPT, signal.SIGINT, True),
        (IN_EXCEPT, signal.SIGINT, False),
        (IN_FINALLY, signal.SIGINT, True),
        (AT_EXIT, signal.SIGINT, True),
        (IN_HANDLER, signal.SIGINT, True),
        (IN_HANDLER, signal.SIGTERM, False),
    ],
    ids=["except", "except, alone", "finally", "atexit", "handler", "SIGTERM, alone"],
)
def test_a_save_is_never_cut_short(body: str, signum: int, group: bool) -> None:
    """A save that takes many times the grace is whole, and the exit code is that without us."""
    plain = started(written(body))
    send(plain, signum, group=group)
    expected = ended(plain)
    assert expected[1] == b"saved\n"
    Path("checkpoint").unlink()
    ours = run("--grace", "0.2", written(body))
    send(ours, signum, group=group)
    assert ended(ours) == expected
    assert Path("checkpoint").read_text() == "x" * 10
    if signum == signal.SIGINT:
        assert (receipt()["status"], receipt()["failure"]["reason"]) == ("interrupted", "Ctrl-C")


@pytest.mark.parametrize("group", [True, False], ids=["group", "alone"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_target_once(signum: int, group: bool) -> None:
    """Whoever it was sent to: not twice, and not never."""
    ours = run(written(COUNTING))
    send(ours, signum, group=group)
    assert ended(ours) == (0, b"1\n")


RAISED = """
import torch
received = 0
for limit_s in (60, 1):
    try:
        if limit_s == 60:
            print("ready", flush=True)  # in here: the signal may come at once
        time.sleep(limit_s)
    except KeyboardInterrupt:
        received += 1
print(received, flush=True)
"""


def test_with_torch_it_is_raised_once() -> None:
    """Where it came is written down then, which has no part in what Python does with it."""
    ours = run(written(RAISED))
    send(ours, signal.SIGINT, group=True)
    assert ended(ours) == (0, b"1\n")


FORKED = """
import torch
waits, goes_on = os.pipe()
child = os.fork()
if not child:
    if sys.argv[1] == "ignore":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.read(waits, 1)
    print("ready", flush=True)  # the parent is in its `try` by now
    time.sleep(1)
    os._exit(3)
try:
    os.write(goes_on, b".")
    # WNOWAIT: an interrupt just before the system call is raised after it, with the child gone
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
except KeyboardInterrupt:
    pass
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_an_interrupt_of_the_first_compile_is_no_fallback() -> None:
    """Nothing ran eager in its place: the run ended."""
    Path("x.py").write_text(COMPILING)
    done = captured(sys.executable, "-m", "compilediag", "run", "--quiet", "-o", "out", "x.py")
    seen = receipt()
    assert (done.returncode, seen["status"]) == (130, "interrupted")
    assert (seen["compile"]["frames"], seen["compile"]["eager_fallbacks"]) == (1, 0)
    assert [finding["rule"] for finding in seen["findings"]] == ["CD901"]


@pytest.mark.parametrize("action", ["ignore", "default"])
def test_a_forked_child_ends_as_without_us(action: str) -> None:
    """By the interrupt, or not: its action is what it was."""
    plain = started(written(FORKED), action)
    send(plain, signal.SIGINT, group=True)
    expected = ended(plain)
    ours = run(written(FORKED), action)
    send(ours, signal.SIGINT, group=True)
    assert ended(ours) == expected


def test_a_target_in_another_group_receives_it_too() -> None:
    """The terminal does not reach a target that left our group: it is passed on."""
    ours = run(written("os.setpgid(0, 0)" + COUNTING))
    send(ours, signal.SIGINT, group=True)
    assert ended(ours) == (0, b"1\n")


IGNORING = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_one_interrupt_of_a_target_that_ignores_it_changes_nothing() -> None:
    """It goes on, as without us, and ends by itself."""
    ours = run("--grace", "0.1", written(IGNORING))
    send(ours, signal.SIGINT, group=True)
    with pytest.raises(subprocess.TimeoutExpired):
        ours.wait(1)
    Path("go").touch()
    assert ended(ours)[0] == 0


def test_a_second_interrupt_ends_it_by_force() -> None:
    """SIGTERM when the grace is nearly over; the receipt has the reason."""
    ours = run("--grace", "0.1", written(IGNORING))
    send(ours, signal.SIGINT, group=True)
    with pytest.raises(subprocess.TimeoutExpired):
        ours.wait(1)
    send(ours, signal.SIGINT, group=True)
    assert ended(ours)[0] in (143, 137)  # KILL follows at once
    told = receipt()
    assert told["status"] == "interrupted"
    reason = told["failure"]["reason"]
    assert reason.startswith("Ctrl-C twice; the target had not ended and was sent SIGTERM")
