"""What trainers print, read: every shape, many ranks, and bytes that are no line at all."""

import random
from pathlib import Path

import pytest

from compilediag.extensions.train_logs.patterns import load_built_in, split_rank
from compilediag.extensions.train_logs.read import LINE_LIMIT, Reader, read_train_log
from compilediag.extensions.train_logs.receipt_parts import (
    compute_rate,
    compute_step_s,
    count_warmup_lines,
)
from compilediag.readers.lines import split_lines
from compilediag.timeline.recorded import TrainLog

DATA = Path(__file__).parents[1] / "data" / "train_logs"


def read(text: str | bytes, piece: int = 1 << 16) -> TrainLog:
    """What the reader makes of a text, given to it in pieces."""
    raw = text.encode() if isinstance(text, str) else text
    return read_train_log(
        [raw[at : at + piece] for at in range(0, len(raw), piece)], load_built_in()
    )


def step_s(log: TrainLog) -> float | None:
    """Steady seconds of a step."""
    return compute_step_s(log, count_warmup_lines(log, None))


def rate(log: TrainLog, name: str) -> float | None:
    """A steady rate."""
    return compute_rate(log, name, count_warmup_lines(log, None))


def nanogpt(*numbers: int, loss: str = "2.3113", ms: str = "120.00") -> str:
    """Lines of nanoGPT."""
    lines = (f"iter {number}: loss {loss}, time {ms}ms, mfu 12.50%\n" for number in numbers)
    return "".join(lines)


def titan(second: int, number: int, rank: str = "", tps: str = "5,593") -> str:
    """A line of torchtitan, in its colours."""
    return (
        f"{rank}[titan] 2025-06-16 22:31:{second:02},250 - root - INFO - "
        f"\x1b[31mstep: {number:2}  \x1b[32mloss:  6.0388  \x1b[38;2;180;60;0mgrad_norm:  1.2500  "
        f"\x1b[36mmemory: 49.50GiB(52.28%)  \x1b[34mtps: {tps}  \x1b[36mtflops: 1,323.92  "
        f"\x1b[35mmfu: 32.75%\x1b[39m\n"
    )


def megatron(number: int, ms: float, tail: str = "") -> str:
    """A line of Megatron-LM, of the rank that torchrun calls default7."""
    return (
        f"[default7]: [2025-05-27 15:23:07] iteration {number:8d}/   24000 | consumed samples: "
        f"{number * 1024:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU "
        f"(TFLOP/s/GPU): 40.4 | learning rate: 1.500000E-06 | global batch size:  1024 | lm loss: "
        f"1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | "
        f"number of nan iterations:   0 |{tail}\n"
    )


def maxtext(number: int, seconds: str) -> str:
    """A line of MaxText."""
    return (
        f"I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: {number}, "
        f"seconds: {seconds}, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, "
        "total_weights: 196608, loss: 10.374, lm_loss: 10.000, perplexity: 433463.719\n"
    )


def test_nanogpt() -> None:
    """The time of one iteration in ten: the steps between them ended too, and are not timed."""
    log = read(nanogpt(0, ms="9000.00") + nanogpt(*range(10, 100, 10)))
    assert (log.trainer, log.clock, log.step_lines, log.ended_steps) == (
        "nanogpt", "trainer", 10, 91,
    )  # fmt: skip
    assert (step_s(log), rate(log, "mfu"), log.last["loss"]) == (0.12, 0.125, 2.3113)
    assert log.finished is False


@pytest.mark.parametrize(
    ("percent", "ms", "mfu", "seconds"),
    [
        ("12.3", "120.00", 0.123, 0.12),
        ("1.10", "119.98", 0.011, 0.11998),
        ("7.0", "0.7", 0.07, 7e-4),
    ],
)
def test_figures_are_scaled_as_decimals(percent: str, ms: str, mfu: float, seconds: float) -> None:
    """12.3 % is 0.123: in binary, 12.3 * 0.01 is 0.12300000000000001."""
    line = f"iter {{}}: loss 3.1, time {ms}ms, mfu {percent}%\n"
    log = read("".join(line.format(number) for number in range(9)))
    assert (rate(log, "mfu"), step_s(log)) == (mfu, seconds)


def test_figures_that_are_no_numbers() -> None:
    """nanoGPT prints -100 % before it knows its utilization, and torchtitan N/A where the peak of
    the device is not known; the lines are of steps all the same."""
    for lines in (
        nanogpt(*range(9)).replace("12.50%", "-100.00%"),
        "".join(titan(n, n).replace("32.75%", "N/A") for n in range(9)),
    ):
        log = read(lines)
        assert (log.step_lines, rate(log, "mfu")) == (9, None)


def test_nanochat() -> None:
    """Thousands with commas, and an evaluation that is no step."""
    line = (
        "step {:05d} (1.00%) | loss: 3.211111 | lrm: 1.00 | dt: 250.00ms | tok/sec: 523,000 | "
        "mfu: 45.10 | total time: 1.20m\n"
    )
    log = read("".join(line.format(n) for n in range(8)) + "step 00008 | Validation bpb: 0.9\n")
    assert (log.trainer, log.step_lines, log.ended_steps) == ("nanochat", 8, 8)
    assert (step_s(log), rate(log, "tokens_per_s")) == (0.25, 523_000)
    assert rate(log, "mfu") == pytest.approx(0.451)


def test_megatron() -> None:
    """The mean of the hundred iterations before each line: all of them are timed."""
    memory = "[Rank 6] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 84019.5 | reserved: 1.0 | max reserved: 84732.0\n"  # noqa: E501
    log = read(
        megatron(100, 271607) + memory + "".join(megatron(n * 100, 4000) for n in range(2, 8))
    )
    assert (log.trainer, log.rank, log.ended_steps) == ("megatron", "default7", 700)
    assert (step_s(log), rate(log, "samples_per_step")) == (4.0, 1024)
    assert (rate(log, "tflops_per_s_per_device"), log.last["grad_norm"]) == (40.4, 5.96)
    assert log.peaks["reserved_peak_bytes"] == 84732 * 2**20
    assert log.notes == ("step times are means over 100 steps each, as the trainer printed them",)


def test_megatron_leaves_a_loss_out_that_is_nan() -> None:
    """It counts such iterations instead."""
    lines = [megatron(number * 10, 100) for number in range(1, 5)]
    lines[2] = lines[2].replace("nan iterations:   0", "nan iterations:   1")
    assert read("".join(lines)).losses_not_finite == 1


def test_megatron_that_prints_no_loss_at_all() -> None:
    """When each is NaN there is none on the line: the norm of the gradients tells."""
    lines = [megatron(n * 10, 100).replace("lm loss: 1.192634E+01 | ", "") for n in range(1, 5)]
    log = read("".join(lines).replace("grad norm: 5.960", "grad norm: nan"))
    assert (log.losses, log.counts["grad_norms_not_finite"]) == (0, 4)
    assert log.notes[1] == "4 lines: the norm of the gradients was not finite"


OLD_MEGATRON = (
    " iteration {:8d}/50000 | consumed samples: 5632 | elapsed time per iteration (s): 52.50 | "
    "gloabl batch size:  512 | lm loss:  1.376514E+01 | samples per second: 9.710 | "
    "TFLOPs: 167.52 |\n"
)


@pytest.mark.parametrize(
    ("line", "seconds", "rates"),
    [
        (OLD_MEGATRON, 52.5, {"samples_per_s": 9.71, "samples_per_step": 512}),
        (
            "completed step: {}, seconds: 2.167, TFLOP/s: 36.722, loss: 2.191\n",
            2.167,
            {"tflops_per_s_per_device": 36.722, "tokens_per_s_per_device": None},
        ),
    ],
    ids=["megatron", "maxtext"],
)
def test_older_formats(line: str, seconds: float, rates: dict[str, float | None]) -> None:
    """Megatron had a slip of the pen, seconds for milliseconds, and fields in other order; MaxText
    had no tokens, and another name for its rate."""
    log = read("".join(line.format(number) for number in range(11, 16)))
    assert step_s(log) == seconds
    assert {name: rate(log, name) for name in rates} == rates


def test_torchtitan() -> None:
    """Colours, commas, and no time of a step but that between two lines."""
    log = read("".join(titan(10 * n, 10 * n + 1) for n in range(6)))
    assert (log.trainer, log.clock, log.ended_steps) == ("torchtitan", "timestamps", 51)
    assert (step_s(log), rate(log, "tokens_per_s_per_device")) == (1.0, 5593)
    assert rate(log, "tflops_per_s_per_device") == 1323.92
    assert log.peaks == {"reserved_peak_bytes": 49.5 * 2**30}


def test_torchtitan_validates() -> None:
    """That line has the rate of tokens as well, and is no step."""
    line = "[titan] 2025-06-16 22:31:04,970 - root - INFO - validate step:  2  loss:  7.1  memory:  9.46GiB(64.99%)  tps: 7,282\n"  # noqa: E501
    log = read(titan(1, 1) + line + titan(2, 2))
    assert (log.step_lines, log.counts["unread"]) == (2, 0)


def test_maxtext_lies_in_its_early_steps() -> None:
    """Step 1 was only handed over and step 2 waited for it: neither counts."""
    early = maxtext(0, "44.923") + maxtext(1, "0.319") + maxtext(2, "106.800")
    log = read(early + "".join(maxtext(number, "5.667") for number in range(3, 12)))
    assert (count_warmup_lines(log, None), step_s(log)) == (3, 5.667)
    assert (log.last["loss"], rate(log, "tokens_per_s_per_device")) == (10.374, 8672.758)


def test_recorded_hugging_face() -> None:
    """Version 5: quoted values, a bar for training and others for evaluations."""
    log = read((DATA / "huggingface_5.23.log").read_bytes())
    assert (log.trainer, log.losses, log.last["loss"]) == ("huggingface", 8, 1.289)
    assert (log.ended_steps, log.finished, log.whole["steps_per_s"]) == (40, True, 419.7)
    assert step_s(log) is None  # it took a tenth of a second, and bars tell whole ones


def test_an_older_hugging_face() -> None:
    """Without quotes, and with a run that was long enough for its bar to tell time."""
    lines = ["\r  0%|          | 0/200 [00:00<?, ?it/s]"]
    logged = (
        "\r     \r{'loss': 0.2645, 'grad_norm': 2.687, 'learning_rate': 6.8e-06, 'epoch': 2.1}\n"
    )
    for number in range(10, 201, 10):
        elapsed = f"{number // 30:02}:{number * 2 % 60:02}"
        bar = f"\r 50%|#####     | {number}/200 [{elapsed}<00:41,  2.00s/it]"
        lines += [bar, logged, bar]
        if number == 100:
            lines += [f"\r 9%|#    | {done}/90 [00:00<00:01, 30.00it/s]" for done in range(91)]
    log = read("".join(lines))
    assert (log.clock, log.ended_steps, step_s(log), log.last["loss"]) == ("bar", 200, 2.0, 0.2645)


def test_recorded_lightning() -> None:
    """A bar an epoch, whose rate is the mean; the bars of validations are not steps."""
    log = read((DATA / "lightning_2.6.log").read_bytes())
    assert (log.trainer, log.clock, log.ended_steps, log.finished) == (
        "lightning", "bar", 60, True,
    )  # fmt: skip
    assert step_s(log) == pytest.approx(1 / 18.63, rel=0.05)
    assert log.last["loss"] == 0.0323


def test_ranks_of_one_log() -> None:
    """The lowest rank that tells as much as the others is told, and the others are named."""
    ranks = [f"[rank{number}]:" for number in (2, 0, 1)]
    lines = [titan(n, n, rank, f"{5000 + int(rank[5])}") for n in range(8) for rank in ranks]
    log = read("".join(lines))
    assert (log.rank, log.step_lines, log.ended_steps) == ("rank0", 8, 8)
    assert rate(log, "tokens_per_s_per_device") == 5000
    assert log.notes[1].endswith("torchtitan in rank1, torchtitan in rank2")


def test_ranks_without_a_name() -> None:
    """Each step is one step, however many ranks print it."""
    log = read("".join(titan(n, n) * 8 for n in range(6)))
    assert (log.ended_steps, log.counts["repeated"], step_s(log)) == (6, 42, 1.0)


def test_a_run_that_began_again() -> None:
    """From a checkpoint: the steps of both attempts ended."""
    log = read(nanogpt(*range(0, 300, 10)) + nanogpt(*range(150, 400, 10)))
    assert (log.ended_steps, log.step_lines) == (291 + 241, 55)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[rank12]:text", "rank12"),
        ("[default0]: text", "default0"),
        ("[1,3]<stdout>:text", "3"),
        ("7: text", "7"),
        ("text", None),
        ("[titan] text", None),
        ("2024-01-01 12:00:00 text", None),
    ],
)
def test_names_of_ranks(line: str, name: str | None) -> None:
    """torchrun, mpirun and srun; a timestamp is none."""
    assert split_rank(line)[0] == name


def test_a_megabyte_without_a_newline() -> None:
    """It is cut and counted; the lines around it are read."""
    log = read(nanogpt(1, 2, 3) + "x" * 1_000_000 + "\n" + nanogpt(4, 5), piece=4096)
    assert (log.ended_steps, log.counts["cut"], log.counts["lines"]) == (5, 1, 6)


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_lines_do_not_depend_on_the_pieces(piece: int) -> None:
    """However the file is read: carriage returns, empty lines, an end without a newline."""
    raw = b"a\r\nb\r" + b"c" * (LINE_LIMIT + 5) + b"\n\nd"
    pieces = [raw[at : at + piece] for at in range(0, len(raw), piece)]
    found = [line for line in split_lines(pieces, LINE_LIMIT, carriage_returns=True) if line.raw]
    assert [(line.raw, line.cut) for line in found] == [
        (b"a", False), (b"b", False), (b"c" * LINE_LIMIT, True), (b"d", False),
    ]  # fmt: skip
    assert [line.ended for line in found] == [True, True, True, False]


def test_bytes_that_are_no_text() -> None:
    """Beside them the lines are read."""
    log = read(b"\xff\xfe\0" * 9 + b"\n" + nanogpt(1, 2).encode() + b"iter 3: loss \xff\n")
    assert (log.step_lines, log.counts["unread"]) == (2, 1)


def test_text_without_a_step() -> None:
    """It is no output of a trainer."""
    assert read_train_log([b"epoch 1 of iter\nloss 2.0, tps: none\n"], load_built_in()) is None
    assert Reader(load_built_in()).has_steps(b"iter 1: loss 2.0\nnothing\n") is False
    assert Reader(load_built_in()).has_steps(nanogpt(1, 2).encode()) is True


def test_damaged_lines_raise_nothing() -> None:
    """Bytes dropped, moved and repeated in lines of every trainer."""
    source = random.Random(7)
    whole = (
        nanogpt(*range(9)) + titan(1, 1) * 3 + megatron(100, 4.0) * 3 + maxtext(1, "2.0") * 3
    ).encode()
    whole += (DATA / "lightning_2.6.log").read_bytes()[:4000]
    for _ in range(25):
        raw = bytearray(whole)
        for _ in range(source.randint(1, 40)):
            at = source.randrange(len(raw))
            raw[at : at + source.randint(0, 30)] = source.randbytes(source.randint(0, 4))
        read_train_log([bytes(raw)], load_built_in())
