"""`compilediag analyze train.log`: the receipt and the screen of a run that never heard of us."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from command_line import analyze

from compilediag import cli
from compilediag.readers.inputs import list_inputs

DATA = Path(__file__).parents[1] / "data"
TRACE = DATA / "traces" / "breaks_inflated.log.gz"

LINE = "iter {}: loss 2.3113, time {:.2f}ms, mfu 12.50%\n"


def log(*times_ms: float) -> str:
    """What nanoGPT prints."""
    return "".join(LINE.format(number * 10, ms) for number, ms in enumerate(times_ms))


STEADY = log(9000, *[120.0] * 20, 900, *[120.0] * 5)


def written(path: Path, text: str) -> Path:
    """A file with this text."""
    path.write_text(text)
    return path


def test_a_run_that_died(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason, the end of the output, and no secret in either."""
    died = (
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\nTraceback (most recent call last):\n"
        '  File "t.py", line 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB\n'
    )
    receipt = analyze(tmp_path / "out", written(tmp_path / "train.log", STEADY + died), "--all")
    assert receipt["status"] == "failed"
    assert receipt["failure"]["reason"].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert "iter 260" in receipt["failure"]["log_tail"]
    assert len(receipt["failure"]["log_tail"]) <= 8192
    assert receipt["checks"]["no_oom"] is False
    assert "hf_abcdef" not in json.dumps(receipt)
    assert "the program failed: torch.OutOfMemoryError" in capsys.readouterr().out


def test_a_log_in_which_torch_speaks_too(tmp_path: Path) -> None:
    """Standard output and TORCH_LOGS in one file: recompiles and steps are both read."""
    text = (DATA / "torch_logs_2.13.0.txt").read_text() + STEADY
    receipt = analyze(tmp_path / "out", written(tmp_path / "train.log", text))
    assert (receipt["compile"]["recompiles"], receipt["steps"]["count"]) == (10, 261)


def test_warnings_of_torch_are_no_second_opinion(tmp_path: Path) -> None:
    """They have the prefix of torch's log; of recompiles they say nothing."""
    warning = "W0813 06:19:49.809000 161210 torch/distributed/run.py:793] OMP_NUM_THREADS is 1\n"
    path = written(tmp_path / "train.log", warning + STEADY)
    assert analyze(tmp_path / "out", TRACE, path)["completeness"]["sources"]["agree"] is True


def test_a_folder_of_everything(tmp_path: Path) -> None:
    """The log is told by its lines, packed as well; a page that quotes some is none."""
    (tmp_path / "in").mkdir()
    shutil.copy(TRACE, tmp_path / "in" / "a.log.gz")
    (tmp_path / "in" / "slurm-42.out.gz").write_bytes(gzip.compress(STEADY.encode()))
    written(tmp_path / "in" / "README.md", STEADY)
    written(tmp_path / "in" / "notes.txt", "iter 3: loss 2.0 is what I saw\n")
    kinds = [source.kind for source in list_inputs([str(tmp_path / "in")])]
    assert kinds == ["foreign", "trace", "foreign", "train"]
    receipt = analyze(tmp_path / "out", tmp_path / "in")
    assert receipt["steps"]["count"] == 261
    assert receipt["extensions"]["analyze"]["left_out"] == ["README.md", "notes.txt"]


def test_damage_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A NaN, a line that cannot be read, a line of a megabyte."""
    text = STEADY + "iter 270: loss nan, time 120.00ms, mfu 12.50%\niter 280: loss\n" + "x" * 10**6
    receipt = analyze(tmp_path / "out", written(tmp_path / "train.log", text))
    assert receipt["status"] == "partial"
    assert receipt["checks"]["losses_finite"] is False
    assert receipt["throughput"]["loss"] is None
    assert receipt["completeness"]["records_lost"]["train_log_unread"] == 1
    assert receipt["completeness"]["numbers"]["train_log_cut"] == 1
    said = capsys.readouterr().out
    assert "loss was not finite" in said
    assert "1 line: too long, and cut" in said


def test_a_given_warmup(tmp_path: Path) -> None:
    """In steps, as the trainer counts them."""
    path = written(tmp_path / "train.log", log(120, 130, *[100.0] * 10))
    assert analyze(tmp_path / "a", path, "--warmup", 30)["steps"]["warmup"] == 30
    assert analyze(tmp_path / "b", path, "--warmup", 0)["steps"]["warmup"] == 0


def test_patterns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a trainer that is not known; without them its output is only text, and the message says
    what was looked for, and where to name its lines."""
    patterns = written(
        tmp_path / "mine.toml",
        '[[line]]\ntrainer = "mine"\nmarker = "batch "\n[line.fields]\nstep = "batch <integer>"\n'
        'step_s = "in <number> s"\n',
    )
    lines = "".join(f"batch {number} in 0.50 s\n" for number in range(1, 30))
    path = written(tmp_path / "train.log", lines)
    told = analyze(tmp_path / "out", path, "--patterns", patterns)["throughput"]
    assert (told["reported_by"], told["steps_per_s"]) == ("mine", 2)
    assert cli.main(["analyze", str(path), "-o", str(tmp_path / "plain")]) == 2
    said = capsys.readouterr().err
    for looked_for in ("TORCH_TRACE", "TORCH_LOGS", "journals", "litgpt", "--patterns FILE"):
        assert looked_for in said
    assert not (tmp_path / "plain").exists()
    patterns.write_text('[[line]]\nmarker = "batch"\n')
    assert cli.main(["analyze", str(path), "--patterns", str(patterns)]) == 2
    assert "mine.toml: [[line]] number 1" in capsys.readouterr().err


def test_several_logs_are_one_run(tmp_path: Path) -> None:
    """One a rank, as torchrun keeps them: the one that tells most is told, the failure of any."""
    first = written(tmp_path / "0.log", STEADY)
    second = written(
        tmp_path / "1.log", LINE.format(1, 5) + LINE.format(2, 5) + "Segmentation fault\n"
    )
    receipt = analyze(tmp_path / "out", first, second)
    assert (receipt["steps"]["count"], receipt["status"]) == (261, "killed")
    assert any("1 more file" in reason for reason in receipt["completeness"]["reasons"])


def test_views_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its steps, and the line for a pull request."""
    path = written(tmp_path / "train.log", STEADY)
    analyze(tmp_path / "a", path, "--steps")
    said = capsys.readouterr().out
    assert "261 steps, 27 of them timed, median 0.12 s, 10 steps of warm-up" in said
    assert "phases of the steps were not measured" in said
    analyze(tmp_path / "b", path, "--md")
    markdown = capsys.readouterr().out
    assert markdown.startswith("### ❔ nanogpt: 261 steps")
    assert "blind" not in markdown.partition("- why")[0]


def test_a_text_of_something_else_beside_a_trace(tmp_path: Path) -> None:
    """It is left out, and is no text log whose silence contradicts the trace."""
    notes = written(tmp_path / "notes.txt", "epoch 1 went well\n" * 20)
    both = analyze(tmp_path / "both", TRACE, notes)
    assert both["verdict"] == "findings"
    assert both["extensions"]["analyze"]["left_out"] == ["notes.txt"]


def test_torchs_messages_far_below_other_text(tmp_path: Path) -> None:
    """A log that the user names is read to its end before it is called foreign."""
    message = (
        "V1121 14:17:00.227000 1679 torch/_dynamo/guards.py:10] [0/1] [__recompiles] Recompiling "
        "function f in a.py:3\n"
    )
    log = written(tmp_path / "out.log", "words\n" * 30_000 + message)
    assert analyze(tmp_path / "out", log)["extensions"]["analyze"]["read"]["text"] == 1
