"""How a run ended, as its output tells it."""

import pytest

from compilediag.extensions.train_logs.ending import TAIL_LINES, EndingReader
from compilediag.extensions.train_logs.patterns import load_built_in
from compilediag.extensions.train_logs.read import read_train_log
from compilediag.timeline.recorded import LoggedEnding

STEP = "iter {}: loss 2.3113, time 120.00ms, mfu 12.50%\n"
STEPS = "".join(STEP.format(number) for number in range(6))

OUT_OF_MEMORY = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/user/train.py", line 20, in <module>
[rank3]:     main()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""

TORCHRUN = """E0813 06:19:49.809000 161210 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 3 (pid: 161617) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-21_15:43:03
  rank      : 3 (local_rank: 3)
  exitcode  : {code} (pid: 14750)
  error_file: <N/A>
  traceback : {told}
"""  # noqa: E501


def ending(text: str) -> LoggedEnding | None:
    """As the reader of the whole output concludes."""
    return read_train_log([text.encode()], load_built_in()).ending


def test_the_exception_of_a_rank_and_not_what_followed_from_it() -> None:
    """Another rank may tell a step after it; torchrun's own exception names the code."""
    told = TORCHRUN.format(code=1, told="To enable traceback see: https://pytorch.org")
    found = ending(STEPS + OUT_OF_MEMORY + STEP.format(6) + told)
    assert found == LoggedEnding(
        "failed",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. (in rank3)",
        1,
    )


def test_a_rank_that_was_killed() -> None:
    """No exception tells of it, only torchrun does."""
    told = TORCHRUN.format(code=-9, told="Signal 9 (SIGKILL) received by PID 14750")
    found = ending(STEPS + told)
    assert (found.status, found.exit_code) == ("killed", 137)
    assert "SIGKILL" in found.reason


CHAINED = (
    "Traceback (most recent call last):\n  File \"t.py\", line 3\nKeyError: 'a'\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "t.py", line 5\nRuntimeError: no key a'
)
IN_A_BOX = (
    "╭────── Traceback (most recent call last) ──────╮\n│ /home/user/train.py:261 in <module> │\n"
    "│ ❱ 261 trainer.train()                             │\n╰──────────────╯\n"
    "OutOfMemoryError: CUDA out of memory."
)
INTERRUPTED = '^CTraceback (most recent call last):\n  File "t.py", line 3\nKeyboardInterrupt'
CRASHED = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7 (most recent call first):"
TIME_LIMIT = (
    "slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2022-06-17T15:13 DUE TO TIME LIMIT ***"
)
BAR = "\rEpoch 0:  45%|####      | {}/44 [00:{:02}<00:12,  2.00it/s, v_num=0]"
# tqdm leaves the cursor behind its bar, where the traceback begins.
BEHIND_A_BAR = "".join(BAR.format(n, n) for n in range(44)) + (
    'Traceback (most recent call last):\n  File "t.py", line 3\nRuntimeError: CUDA error'
)
WITH_OTHERS = (
    'Traceback (most recent call last):\n  File "t.py", line 3\nINFO: saved\nworker 3 done\n'
    "ValueError: x"
)
BY_THE_SHELL = "run.sh: line 3:  4242 Killed                  python train.py"
BY_TORCHRUN = "torch.distributed.elastic.SignalException: Process 7 got signal: 15"


@pytest.mark.parametrize(
    ("text", "status", "code", "reason"),
    [
        (TIME_LIMIT, "killed", None, "DUE TO TIME LIMIT"),
        (BY_THE_SHELL, "killed", 137, "4242 Killed"),
        (BY_TORCHRUN, "killed", 143, "got signal: 15"),
        ("Killed", "killed", 137, "Killed"),
        ("Segmentation fault (core dumped)", "killed", 139, "Segmentation fault"),
        (CRASHED, "failed", None, "Fatal Python error"),
        (INTERRUPTED, "interrupted", None, "KeyboardInterrupt"),
        (CHAINED, "failed", None, "RuntimeError: no key a"),
        (IN_A_BOX, "failed", None, "OutOfMemoryError: CUDA out of memory."),
        (BEHIND_A_BAR, "failed", None, "RuntimeError: CUDA error"),
        (WITH_OTHERS, "failed", None, "ValueError: x"),
    ],
)
def test_other_bad_endings(text: str, status: str, code: int | None, reason: str) -> None:
    """The scheduler, the shell, the interpreter, the user, and exceptions: one upon the other,
    behind a bar, with lines of other processes inside."""
    found = ending(STEPS + text + "\n")
    assert (found.status, found.exit_code) == (status, code)
    assert reason in found.reason


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "t.py", line 3\nValueError: again\n' + STEPS,
        "the agent Killed 5 monsters\n",
        "saving checkpoint to out\n",
        "WARNING: out of memory was close\n",
        "Terminated early\n",
    ],
)
def test_what_is_no_bad_ending(text: str) -> None:
    """An exception that was caught, and words that only sound like an end."""
    assert ending(STEPS + text) is None


def test_the_tail_is_bounded() -> None:
    """Whatever is printed after the last step."""
    reader = EndingReader()
    for number in range(9_000):
        reader.add_line(f"{number:05d} " + "x" * 3000)
    tail = reader.get_tail().split("\n")
    assert (len(tail), tail[-1][:6]) == (TAIL_LINES, "08999 ")
    assert max(map(len, tail)) <= 2048
    assert reader.find_ending() is None
