"""TORCH_LOGS text made into events: recompiles and breaks, of every version of torch."""

from pathlib import Path

import pytest

from compilediag.readers.torch_logs import parse_text_events
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Timeline, fold

DATA = Path(__file__).parents[1] / "data"


def folded(content: bytes) -> Timeline:
    return fold([journal.events for journal in parse_text_events([content], "log.txt")])


@pytest.mark.parametrize(("version", "recompiles"), [("2.7.1", 9), ("2.13.0", 10), ("2.15.0", 10)])
def test_recorded_logs(version: str, recompiles: int) -> None:
    """Every message but the one at the limit is a recompile; ids that repeat are of a new epoch."""
    content = (DATA / f"torch_logs_{version}.txt").read_bytes()
    found = folded(content)
    asked = content.count(b"] Recompiling function")
    assert len(found.counted_recompiles) == recompiles == asked - 1
    assert sum(item.kind == "limit" for item in found.compiles) == 1
    assert len(found.breaks) == 3


@pytest.mark.parametrize("version", ["2.7.1", "2.13.0", "2.15.0"])
def test_recorded_skips(version: str) -> None:
    """Breaks for which torch skipped the frame."""
    assert len(folded((DATA / f"torch_logs_skips_{version}.txt").read_bytes()).breaks) == 5


def test_causes_are_read_and_the_rest_is_not_claimed() -> None:
    """No seconds, no steps, no verdict but blind: a text log cannot tell what compiled once."""
    found = folded((DATA / "torch_logs_2.13.0.txt").read_bytes())
    diagnosis = diagnose(found)
    assert diagnosis.verdict == "blind"
    causes = {(item.rule, item.variable) for item in diagnosis.findings}
    assert {("CD107", "n"), ("CD104", "self.k"), ("CD106", "y")} <= causes
    assert {(item.cost_s, item.steps) for item in diagnosis.findings} == {(None, ())}
    receipt = build_receipt(found, diagnosis, RunMetadata("0" * 26, "2026-01-01T00:00:00Z"))
    assert receipt.compile.time_s.total is None
    assert {item.seconds for item in receipt.compile.events} == {None}


def test_ranks_of_one_log_are_told_apart() -> None:
    """torchrun's output holds the lines of all ranks, one among the other."""
    line = b"[rank%d]:V1120 17:13:14.438000 86%d torch/_dynamo/guards.py:1] [0/1] [__recompiles] "
    first, second = line % (0, 2), line % (1, 3)
    log = b"\n".join(
        (
            first + b"Recompiling function f in a.py:8",
            second + b"Recompiling function f in a.py:8",
            first + b"    - 0/0: n == 2",
            second + b"    - 0/0: n == 5",
        )
    )
    journals = parse_text_events([log], "log.txt")
    assert [item.started.rank for item in journals if item.started is not None] == [0, 1]
    found = fold([item.events for item in journals])
    assert [item.reasons for item in found.recompiles] == [("0/0: n == 2",), ("0/0: n == 5",)]


def test_a_log_without_a_line_of_torch_is_blind() -> None:
    """Its emptiness is counted as a loss: nothing was seen."""
    journals = parse_text_events([b"epoch 1 loss 2.0\n"], "log.txt")
    assert [item.lost for item in journals] == [{"empty": 1}]
    assert diagnose(fold([item.events for item in journals])).verdict == "blind"
