"""The program's own line above a library that compiles, for a program in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]

PROGRAM = """\
import torch
from transformers import BertConfig, BertModel

SMALL = BertConfig(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=10
)
model = torch.compile(BertModel(SMALL).eval(), backend="eager", dynamic=False)


def evaluate(batches):
    for batch in batches:
        model(input_ids=batch["ids"])


with torch.no_grad():
    evaluate({"ids": torch.ones(1, size, dtype=torch.long)} for size in (2, 3))
"""


def run(*words: str, folder: Path) -> None:
    subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, check=True)


def test_a_model_of_transformers(tmp_path: Path) -> None:
    """Counts are torch's own; each recompile and its finding have the line of the call and what it
    passes, though every guard stands in the library."""
    (tmp_path / "evaluate.py").write_text(PROGRAM, encoding="utf-8")
    run(str(ROOT / "tests/support/oracle.py"), "counts.json", "evaluate.py", folder=tmp_path)
    run("-m", "compilediag", "run", "--quiet", "-o", "out", "evaluate.py", folder=tmp_path)
    receipt: dict[str, Any] = json.loads((tmp_path / "out/receipt.json").read_text("utf-8"))
    counted = json.loads((tmp_path / "counts.json").read_text("utf-8"))["counts"]
    assert counted["recompiles"] == 1
    assert {name: receipt["compile"][name] for name in counted} == counted
    line = 1 + PROGRAM.splitlines().index('        model(input_ids=batch["ids"])')
    found = [item for item in receipt["findings"] if item["rule"].startswith("CD105")]
    assert found
    for item in (*receipt["compile"]["events"], *found):
        call = item["entered_at"]
        assert (call["file"], call["line"]) == ("evaluate.py", line)
        assert (call["function"], call["text"]) == ("evaluate", 'model(input_ids=batch["ids"])')
        assert [item["expression"] for item in call["arguments"]] == ['batch["ids"]']
