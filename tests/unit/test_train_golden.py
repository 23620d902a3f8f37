"""Output of trainers as their own format strings write it, read.

Each file was made by executing the print or log expressions of the project's source, which
docs/project/accuracy.md names, with figures chosen here: 0.25 s a step, and a slow first one.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from compilediag.extensions.train_logs.patterns import load_built_in
from compilediag.extensions.train_logs.read import Reader, read_train_log
from compilediag.extensions.train_logs.receipt_parts import (
    compute_rate,
    compute_step_s,
    count_warmup_lines,
)
from compilediag.timeline.recorded import TrainLog

DATA = Path(__file__).parents[1] / "data" / "train_logs"


class Said(NamedTuple):
    """What a log says."""

    trainer: str
    clock: str
    lines: int
    ended: int
    loss: float | None
    step_s: float
    finished: bool = False
    peaks: dict[str, float] | None = None
    rates: dict[str, float] | None = None


GIB, MIB = 2**30, 2**20
SAID = {
    "litgpt_pretrain": Said("litgpt", "trainer", 16, 61, 2.36, 0.25),
    "litgpt_finetune": Said("litgpt", "trainer", 64, 64, 2.36, 0.25, finished=True),
    "torchtune": Said(
        "torchtune",
        "bar",
        0,
        80,
        1.7,
        2.0,
        peaks={"allocated_peak_bytes": 11.5 * GIB, "reserved_peak_bytes": 14.25 * GIB},
    ),
    "deepspeed": Said(
        "deepspeed",
        "timestamps",
        30,
        291,
        None,
        0.25,
        peaks={"allocated_peak_bytes": 2.5 * GIB},
        rates={"samples_per_s": 128},
    ),
    "deepspeed_pipeline": Said(
        "deepspeed-pipeline", "trainer", 30, 300, 1.5, 0.25, rates={"samples_per_s": 128}
    ),
    "timm": Said(
        "timm", "trainer", 21, 900, 4.9, 0.25, finished=True, rates={"samples_per_s": 1024}
    ),
    "mmengine_epoch": Said(
        "mmengine", "trainer", 15, 790, 1.605, 0.25, peaks={"allocated_peak_bytes": 1234 * MIB}
    ),
    "mmengine_iter": Said(
        "mmengine", "trainer", 40, 2000, 1.0, 0.25, peaks={"allocated_peak_bytes": 1234 * MIB}
    ),
    "detectron2": Said(
        "detectron2",
        "trainer",
        20,
        381,
        1.601,
        0.25,
        finished=True,
        peaks={"allocated_peak_bytes": 1234 * MIB},
    ),
    "nemo": Said("nemo", "trainer", 25, 250, 1.5, 0.25, rates={"samples_per_step": 8}),
}


def log_of(name: str) -> TrainLog:
    return read_train_log([(DATA / f"{name}.log").read_bytes()], load_built_in())


@pytest.mark.parametrize("name", SAID)
def test_what_a_log_says(name: str) -> None:
    """Steps, seconds, loss, rates and peaks; nothing unread, nothing twice. In a folder it is known
    by its first bytes; a bar alone is not, which torchtune's lines are beside."""
    assert Reader(load_built_in()).has_steps((DATA / f"{name}.log").read_bytes()[: 1 << 16]) is True
    said, log = SAID[name], log_of(name)
    warmup = count_warmup_lines(log, None)
    assert (log.trainer, log.clock, log.ended_steps) == (said.trainer, said.clock, said.ended)
    assert (log.finished, log.last.get("loss")) == (said.finished, said.loss)
    assert compute_step_s(log, warmup) == pytest.approx(said.step_s, rel=0.03)
    assert (log.counts["unread"], log.counts["repeated"], log.ending) == (0, 0, None)
    assert log.peaks == (said.peaks or {})
    for rate, value in (said.rates or {}).items():
        assert compute_rate(log, rate, warmup) == pytest.approx(value, rel=0.03)
    if said.lines:
        assert log.step_lines == said.lines


def test_a_library_below_a_trainer() -> None:
    """DeepSpeed's timer prints more lines than the trainer above it, whose own are read."""
    above = "".join(f"iter {n}: loss 2.5, time 250.00ms, mfu 12.50%\n" for n in range(0, 300, 100))
    both = above.encode() + (DATA / "deepspeed.log").read_bytes()
    log = read_train_log([both], load_built_in())
    assert (log.trainer, log.step_lines) == ("nanogpt", 3)
    assert log.notes[-1] == "other step lines are not in the figures: deepspeed"
