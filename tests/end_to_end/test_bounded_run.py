"""A frame with a raised recompile limit: the record of the run grows with its recompiles, not with
their square, and what is left out makes no verdict doubtful."""

import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised import RunOptions, run

pytestmark = pytest.mark.usefixtures("forked")

MANY = """
    import sys
    import torch
    from compilediag_harness import attach, process

    {settings}
    torch._dynamo.config.recompile_limit = 100_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000

    @torch.compile(backend="eager", dynamic=False)
    def f(x, name):
        return x * len(name)

    for n in range(int(sys.argv[1]) + 1):
        f(torch.ones(2), f"{{n:05}}")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def observed(recompiles: int, settings: str = "") -> tuple[Receipt, dict[str, int]]:
    """The receipt of so many recompiles of one frame, and the sizes of the run's files by kind."""
    Path("x.py").write_text(textwrap.dedent(MANY).format(settings=settings), encoding="utf-8")
    outcome = run(("x.py", str(recompiles)), RunOptions(live=False, output=str(recompiles)))
    assert outcome.receipt is not None, outcome.notes
    sizes = {
        path.name.partition("-")[0]: path.stat().st_size
        for path in Path(str(recompiles)).iterdir()
        if path.is_file()
    }
    return outcome.receipt, sizes


def assert_explained(receipt: Receipt, recompiles: int) -> None:
    """Every recompile is counted and explained, and nothing is called lost."""
    assert (receipt.verdict, receipt.compile.recompiles) == ("findings", recompiles)
    assert [(item.rule, item.variable) for item in receipt.findings] == [("CD107", "name")]
    assert receipt.checks.evidence_complete
    assert receipt.overhead.records_dropped == 0


def test_twice_the_recompiles_are_twice_the_bytes() -> None:
    """Of the journal and of the text log, which torch itself would make four times as large."""
    found = {n: observed(n) for n in (20, 30, 40)}
    for recompiles, (receipt, _) in found.items():
        assert_explained(receipt, recompiles)
        numbers = receipt.completeness.numbers
        assert numbers["entries_left_out"] == sum(range(recompiles - 7))
        assert numbers["text_recompiling_lines"] == recompiles
        assert numbers["text_lines_left_out"] > 0
        assert receipt.completeness.sources.agree
    for kind in ("journal", "torch_logs.txt", "receipt.json"):
        first, second, third = (sizes[kind] for _, sizes in found.values())
        assert third - second <= 1.2 * (second - first), kind


def test_a_journal_over_its_limit_changes_no_count() -> None:
    """What it leaves out are reasons: those of torch's metrics rows take their place."""
    receipt, sizes = observed(20, "process.current.journal.limit_bytes = 10_000")
    assert_explained(receipt, 20)
    assert sizes["journal"] < 50_000
    (note,) = receipt.completeness.reasons
    assert note.startswith("journal: over ")
    assert "Recompiled" in note


def test_a_text_log_over_its_limit_changes_no_count() -> None:
    """It is no second opinion then; the events and torch's metrics agree without it."""
    limit = "next(iter(attach._attachments.values()))._collectors.logs._file._room = 20_000"
    receipt, sizes = observed(20, limit)
    assert sizes["torch_logs.txt"] <= 20_500
    (note,) = receipt.completeness.reasons
    assert note.startswith("torch_logs.txt: over its limit")
    assert receipt.completeness.sources.text_log is False
    assert_explained(receipt, 20)
