"""Output of trainers as their own format strings write it, read.

Each file was made by executing the print or log expressions of the project's source, which
docs/howto/trainlog.md names, with figures chosen here: 0.25 s a step, and a slow first one.
"""

from __future__ import annotations

from pathlib import Path

from compilediag.extensions.train_logs.patterns import built_in, patterns_in
from compilediag.extensions.train_logs.read import train_log_of

DATA = Path(__file__).parents[1] / "data" / "train_logs"


GIB, MIB = 2**30, 2**20


def test_a_library_below_a_trainer() -> None:
    """DeepSpeed's timer prints more lines than the trainer above it, whose own are read."""
    above = "".join(f"iter {n}: loss 2.5, time 250.00ms, mfu 12.50%\n" for n in range(0, 300, 100))
    both = above.encode() + (DATA / "deepspeed.log").read_bytes()
    log = train_log_of([both], built_in())
    assert log is not None
    assert (log.trainer, log.step_lines) == ("nanogpt", 3)
    assert log.notes[-1] == "other step lines are not in the figures: deepspeed"


def test_steps_that_are_numbered_within_an_epoch() -> None:
    """Step 0 of the next epoch is no step that was told before."""
    line = "Train: {} [   {}/2 ( 50%)]  Loss: 2.0 (2.0)  Time: 0.5s, 8.00/s  (0.5s, 8.00/s)\n"
    text = "".join(line.format(epoch, step) for epoch in range(4) for step in range(2))
    log = train_log_of([text.encode()], built_in())
    assert log is not None
    assert (log.ended_steps, log.step_lines, log.counts["repeated"]) == (8, 8, 0)


def test_a_step_that_is_no_whole_number() -> None:
    """A pattern file may take any figure for it: none ends the reading."""
    mine = '[[line]]\nmarker = "took"\n[line.fields]\nstep = "step <number>"'
    text = "step 1.5 took\nstep nan took\nstep inf took\nstep 2e0 took\n"
    log = train_log_of([text.encode()], patterns_in(mine, "mine.toml"))
    assert log is not None
    assert [number for number in log.numbers if number == number] == [1, 2]
