"""`trainlog`: how fast the output of trainers is read, and that the worst of it takes linear time.

The lines are those of each trainer, and the noise between them. The worst case is text that makes
every search begin again and again; twice as much of it must take about twice as long.
"""

import time
from collections.abc import Iterator

from bench import Bench, Benchmark, Row

LINES = 100_000
GOAL_PER_S = 100_000
LINEAR = 2.5
"""Twice as many bytes may take so many times as long; quadratic time would be four times."""

NANOGPT = "iter {}: loss 2.3113, time 119.98ms, mfu 12.34%\n"
HUGGINGFACE = "{{'loss': 0.2645, 'grad_norm': 2.687, 'learning_rate': 6.8e-06, 'epoch': {}.13}}\n"
LIGHTNING = (
    "\rEpoch 3:  45%|████▌     | {}/900000 [10:10<00:12,  2.00it/s, v_num=0, train_loss=1.20]"
)
MEGATRON = (
    "[default7]: [2025-05-27 15:23:07] iteration {:8d}/   50000 | consumed samples:    5120000 | "
    "elapsed time per iteration (ms): 271.1 | throughput per GPU (TFLOP/s/GPU): 40.4 | learning "
    "rate: 1.5E-06 | global batch size:  1024 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad "
    "norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
TORCHTITAN = (
    "[rank0]:[titan] 2025-06-16 22:31:04,970 - root - INFO - \x1b[31mstep: {}  "
    "\x1b[32mloss:  6.0388  \x1b[38;2;180;60;0mgrad_norm:  1.2000  "
    "\x1b[36mmemory: 49.66GiB(52.28%)  \x1b[34mtps: 5,593  "
    "\x1b[36mtflops: 323.92  \x1b[35mmfu: 32.75%\x1b[39m\n"
)
MAXTEXT = (
    "I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: {}, "
    "seconds: 10.228, TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, "
    "total_weights: 1572864, loss: 12.980\n"
)
NOISE = "2025-05-27 15:23:07 INFO some.module: file {} of the data set is read, and all is well\n"

EVERY = {
    "nanoGPT": NANOGPT,
    "Hugging Face": HUGGINGFACE,
    "Lightning, drawn bars": LIGHTNING,
    "Megatron": MEGATRON,
    "torchtitan, in colours": TORCHTITAN,
    "MaxText": MAXTEXT,
    "other output": NOISE,
}

WORST = {
    "labels without figures": "| lm loss: | loss: , loss: iter iter  tps: step: completed step: ",
    "digits": "9",
    "digits and commas": "tps: 1,111,111,111.",
    "blanks": "loss:                                  ",
    "the beginnings of bars": "100%|######| 1/2 [",
    "escapes": "\x1b[31m\x1b[",
    "carriage returns": "\r\r\rx",
    "names of ranks": "[rank1",
}


def reading(_: Bench) -> Iterator[Row]:
    """Lines by the second, of each trainer; then seconds by the byte, of what is worst."""
    for name, line in EVERY.items():
        raw = "".join(line.format(number) for number in range(LINES)).encode()
        per_s = LINES / _cpu_s(raw)
        holds = "holds" if per_s >= GOAL_PER_S else "fails"
        yield Row(
            f"trainlog, {name}",
            f"{LINES:,} lines, {len(raw) / 1e6:.0f} MB",
            f"{per_s:,.0f} lines/s, {len(raw) / LINES * per_s / 1e6:.0f} MB/s",
            f"≥ {GOAL_PER_S:,} lines/s",
            holds,
        )
    for name, text in WORST.items():
        yield _growth(name, text)


def _growth(name: str, text: str) -> Row:
    """A megabyte and two of a text, with and without newlines; the worse of both."""
    found: list[tuple[float, float]] = []
    for line in (text * (1 + 16_000 // len(text)) + "\n", text):
        once = (line * (1 + 1_000_000 // len(line))).encode()[:1_000_000]
        first, twice = _cpu_s(once), _cpu_s(once * 2)
        found.append((twice / first, first))
    ratio, seconds = max(found)
    return Row(
        f"trainlog, worst case: {name}",
        f"{seconds * 1000:.0f} ms for 1 MB",
        f"{ratio:.2f} × for twice as much",
        f"≤ {LINEAR:g} ×",
        "holds" if ratio <= LINEAR else "fails",
    )


def _cpu_s(raw: bytes) -> float:
    """CPU seconds of the fastest of five: the work is the same, and other load only adds to it."""
    from compilediag.extensions.train_logs.patterns import load_built_in
    from compilediag.extensions.train_logs.read import read_train_log

    shapes = load_built_in()
    pieces = [raw[at : at + 65536] for at in range(0, len(raw), 65536)]
    taken: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        read_train_log(pieces, shapes)
        taken.append(time.process_time() - begun)
    return min(taken)


BENCHMARKS: dict[str, Benchmark] = {"trainlog": reading}
