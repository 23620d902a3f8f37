"""A run that is not whole is never headlined as good, on any view; and what to type for it."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gate_receipts import again, first, receipt
from many_receipts import GOLDEN

from compilediag.cli import main
from compilediag.compare.gate.judge import judge
from compilediag.errors import ReceiptNotFound
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import find_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.gate import FORMATS
from compilediag.views.headline import build_headline
from compilediag.views.style import RenderOptions
from compilediag.views.summary import render_markdown
from compilediag.views.verdict import render

NOT_WHOLE = ("failed", "killed", "interrupted", "partial")


def clean(status: str) -> Receipt:
    """A receipt in which nothing was found."""
    return receipt(status=status, exit_code=0 if status in ("complete", "partial") else 137)


@pytest.mark.parametrize("status", NOT_WHOLE)
def test_no_view_has_a_tick(status: str) -> None:
    """The screen, in ASCII too, Markdown, and every format of the gate."""
    made = clean(status)
    assert made.verdict == "clean"
    shown = [
        render(made),
        render(made, complete=True),
        render_markdown(made),
        *(draw([judge(made)], RenderOptions()) for draw in FORMATS.values()),
    ]
    for text in shown:
        assert "✓" not in text
        assert "✅" not in text
        assert "clean:" not in text
    assert not render(made, RenderOptions(ascii_only=True)).startswith("ok ")
    how = "failed" if status == "failed" else "is not whole"
    assert shown[0].startswith(f"! nothing found in a run that {how}: 1 frame compiled once")


def test_a_whole_run_has_one() -> None:
    """The sign can be there."""
    assert render(clean("complete")).startswith("✓ clean: 1 frame compiled")


def with_ranks(made: Receipt, rows: list[int], expected: int) -> Receipt:
    """The receipt as one of several ranks; `rows` are the recompiles of each."""
    raw: Any = msgspec.json.decode(msgspec.json.encode(made))
    row = {"processes": 1, "frames": 1, "compiles": 1, "graph_breaks": 0, "eager_fallbacks": 0}
    raw["ranks"] = {
        "expected": expected,
        "missing": list(range(len(rows), expected)),
        "rows": [
            {"rank": rank, "recompiles": count, "compile_s": None, **row}
            for rank, count in enumerate(rows)
        ],
    }
    return msgspec.convert(raw, Receipt)


@pytest.mark.parametrize(
    ("rows", "expected", "words"),
    [
        ([0, 1], 2, ("1 recompile on rank 1 of 2", "2 ranks")),
        ([1, 1], 2, ("1 recompile cost", "2 ranks")),
        ([1], 2, ("rank 0 of 2",)),
        ([0, 1, 1], 4, ("on ranks 1, 2 of 3", "3 of 4 ranks")),
    ],
)
def test_ranks_stand_in_the_verdict(rows: list[int], expected: int, words: tuple[str]) -> None:
    """Which of them recompiled, how many there are, and where to look next."""
    made = with_ranks(receipt(first(), again("n")), rows, expected)
    text = " ".join(render(made, RenderOptions(width=400)).split())
    for each in words:
        assert each in text
    assert "also: each rank: compilediag show --ranks next:" in text


def test_the_receipt_of_one_rank_alone() -> None:
    """It has no section of ranks, and says which it is of."""
    made = receipt(change=lambda raw: raw["header"]["run"].update(rank=1, world_size=2))
    assert made.ranks is None
    assert build_headline(made).counts[-1] == "rank 1 of 2"


def test_a_folder_without_receipt_says_what_to_type(tmp_path: Path, capsys: Any) -> None:
    """compilediag was killed: the journals are there, and `analyze` reads them."""
    run = tmp_path / ".compilediag" / "20261122T100000Z-train-7"
    run.mkdir(parents=True)
    with pytest.raises(ReceiptNotFound, match="There is no receipt"):
        find_receipt(run)
    (run / "journal-7-00000000.jsonl").touch()
    assert main(["show", str(run)]) == 2
    assert f"`compilediag analyze {run}` makes one" in capsys.readouterr().err
    with pytest.raises(ReceiptNotFound, match="compilediag was killed before it wrote one"):
        find_receipt(cwd=tmp_path)


def test_the_latest_receipt_is_not_shown_as_the_newest_run(tmp_path, capsys, monkeypatch) -> None:
    """A later run that has none is named beside it; an earlier one is not."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / ".compilediag"
    for name in ("20261122T100000Z-a-1", "20261122T110000Z-b-2"):
        (runs / name).mkdir(parents=True)
        (runs / name / "journal-1-00000000.jsonl").touch()
    write_receipt(receipt(), runs / "20261122T110000Z-b-2" / "receipt.json")
    (runs / "latest").symlink_to("20261122T110000Z-b-2")
    assert main(["show"]) == 0
    assert capsys.readouterr().err == ""
    later = runs / "20261122T120000Z-c-3"
    shutil.copytree(runs / "20261122T100000Z-a-1", later)
    assert main(["show"]) == 0
    assert "note: this is not the newest run. The run in" in capsys.readouterr().err
    shutil.copy(GOLDEN, later / "receipt.json")
    assert main(["show"]) == 0
    assert capsys.readouterr().err == ""
