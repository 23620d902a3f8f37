"""A receipt that contradicts itself: refused by the gate, named by stats and trend, which go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gate_receipts import again, branch, eager, first, receipt
from many_receipts import GOLDEN, written

from compilediag.cli import main
from compilediag.receipt.contradictions import find_contradictions
from compilediag.receipt.file import read_receipt, write_receipt
from compilediag.receipt.schema.receipt import Receipt

RUN = receipt(first(), again("n"), eager(), breaks=[branch()])


def changed(change: Callable[[dict[str, Any]], Any], made: Receipt = RUN) -> Receipt:
    raw = msgspec.json.decode(msgspec.json.encode(made))
    change(raw)
    return msgspec.convert(raw, Receipt)


@pytest.mark.parametrize(
    "made",
    [
        RUN,
        receipt(),
        receipt(nothing=True),
        receipt(first(), status="killed", exit_code=137),
        receipt(first(), status="failed", exit_code=1),
        read_receipt(GOLDEN),
        read_receipt(GOLDEN.parent / "receipt-example.json"),
    ],
)
def test_no_receipt_of_ours_contradicts_itself(made: Receipt) -> None:
    """Clean, blind, with findings, killed, and those of released versions."""
    assert find_contradictions(made) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw["compile"].update(recompiles=-1), "recompiles is -1, which is less"),
        (lambda raw: raw["compile"].update(compiles=2**64), "which is more than can be counted"),
        (lambda raw: raw["compile"].update(compiles=7), "compile.compiles is 7, and 2 are listed"),
        (lambda raw: raw["compile"].update(recompiles=0), "recompiles is 0, and 1 are listed"),
        (lambda raw: raw["compile"].update(events=[]), "compile.compiles is 2, and 0 are listed"),
        (lambda raw: raw["compile"].update(graphs=0), "compile.graphs is 0, and 2 are listed"),
        (lambda raw: raw["compile"].update(frames=9), "compile.frames is 9, and 2 are listed"),
        (lambda raw: raw["compile"].update(eager_fallbacks=0), "eager_fallbacks is 0, and 1"),
        (lambda raw: raw["compile"].update(graph_breaks=3), "graph_breaks is 3, and 1 are"),
        (lambda raw: raw["compile"].update(recompile_limit_hits=9), "9 of 2 frames"),
        (lambda raw: raw["compile"]["time_s"].update(total=-2.5), "time_s.total is -2.5"),
        (lambda raw: raw["compile"]["events"][0].update(guards=-4), "events[0].guards is -4"),
        (lambda raw: raw["findings"][0].update(count=-1), "findings[0].count is -1"),
        (lambda raw: raw.update(verdict="clean"), "the verdict is clean, and there are findings"),
        (lambda raw: raw.update(findings=[]), "the verdict is findings, and there is none"),
        (lambda raw: raw["findings"].append(raw["findings"][0]), "two findings have one id"),
        (lambda raw: raw["header"]["run"].update(exit_code=9), "complete, and the exit code 9"),
        (lambda raw: raw.update(findings=raw["findings"][:1]), "names the finding F"),
    ],
)
def test_what_cannot_be_true_is_named(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    """Each in a sentence; at most five."""
    found = find_contradictions(changed(change))
    assert any(words in text for text in found), found
    assert len(found) <= 5


def test_a_finding_about_a_recompile_needs_one() -> None:
    """The counts and the list agree, and the finding is about neither."""

    def without_recompile(raw: dict[str, Any]) -> None:
        raw["compile"]["events"].pop()
        raw["compile"].update(compiles=1, recompiles=0, graphs=1)

    found = find_contradictions(changed(without_recompile, receipt(first(), again("n"))))
    assert found == ("F1 (CD107) is about a recompile, and there is none",)


def test_lists_that_were_cut_hold_fewer() -> None:
    """As the receipt says of itself."""

    def cut(raw: dict[str, Any]) -> None:
        raw["compile"].update(compiles=90, recompiles=70, graphs=90)
        raw["completeness"]["reasons"] = ["compile.events: 88 later compiles are counted"]

    assert find_contradictions(changed(cut)) == ()


def test_the_gate_refuses_it(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2 and a sentence, judging and recording; nothing is written."""
    monkeypatch.chdir(tmp_path)
    write_receipt(changed(lambda raw: raw["compile"].update(compiles=1)), "r.json")
    for arguments in (["--fail-on", "recompiles>9"], ["--update", "--reason", "x"]):
        assert main(["gate", "r.json", *arguments]) == 2
        printed = capsys.readouterr()
        assert "r.json contradicts itself, so it is damaged or was changed" in printed.err
        assert printed.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_stats_and_trend_name_it_and_go_on(tmp_path: Path, capsys: Any) -> None:
    """The others are counted; its name and what is wrong stand below."""
    folder = written(tmp_path / "receipts", range(4), lambda number: lambda raw: None)
    raw = json.loads((folder / "r00002.json").read_text(encoding="utf-8"))
    raw["compile"]["recompiles"] = 2**64
    (folder / "r00002.json").write_text(json.dumps(raw), encoding="utf-8")
    for command in ("stats", "trend"):
        assert main([command, str(folder)]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "3 receipts of 1 configuration" in printed
        assert "1 contradicting itself: r00002.json: compile.recompiles is 184467" in printed
