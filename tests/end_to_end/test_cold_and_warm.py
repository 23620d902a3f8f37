"""A first start that fails is the run; functions that another process compiled are no blind run."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import compilediag

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

FAILS = """
import torch
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
raise SystemExit(7)
"""

LIBRARY = """
def product(a, b):
    return a @ b
"""
"""A product of matrices: inductor calls torch for it, and no C++ compiler."""

CACHING = """
import torch
torch._dynamo.config.caching_precompile = True
from library import product
compiled = torch.compile(product)
print(compiled(torch.ones(4, 4), torch.ones(4, 4)).sum())
torch.compiler.save_cache_artifacts()
"""

DRAWN = """
import random
import torch

SCALE = random.Random().uniform(0.5, 1.5)

@torch.compile
def scaled(x):
    return torch.addmm(x, x, x, alpha=SCALE)

scaled(torch.ones(4, 4))
"""


COLD_AND_WARM = ("measure", "cold-and-warm", "--yes")


def run(
    folder: Path, *words: str, command: tuple[str, ...] = ("run",)
) -> tuple[int, dict[str, Any]]:
    """The exit code and the receipt of a run."""
    output = folder / f"out-{len(list(folder.iterdir()))}"
    words = (*command, "--no-live", "-o", str(output), *words)
    cache = str(folder / "cache")
    done = compilediag(*words, cwd=folder, timeout=900, TORCHINDUCTOR_CACHE_DIR=cache)
    receipt = json.loads((output / "receipt.json").read_text(encoding="utf-8"))
    return done.returncode, {**receipt, "said": done.stderr}


def test_there_is_no_second_start_after_one_that_failed(tmp_path: Path) -> None:
    """The receipt of the first is where that of the second would be, with its exit code."""
    (tmp_path / "fails.py").write_text(FAILS, encoding="utf-8")
    code, receipt = run(tmp_path, "fails.py", command=COLD_AND_WARM)
    assert (code, receipt["status"], receipt["cold_and_warm"]) == (7, "failed", None)
    assert "the first start failed: there was no second" in receipt["said"]
    assert not (tmp_path / "cache").exists()


def test_a_number_that_is_drawn_at_each_start(tmp_path: Path) -> None:
    """It is in the graph: the second start compiles again."""
    (tmp_path / "drawn.py").write_text(DRAWN, encoding="utf-8")
    code, receipt = run(tmp_path, "drawn.py", command=COLD_AND_WARM)
    found = [item["rule"] for item in receipt["findings"] if item["severity"] != "info"]
    assert (code, found) == (0, ["CD612"])


def test_code_that_an_earlier_process_compiled(tmp_path: Path) -> None:
    """Its frames are not seen: blind, and not told to call what was called."""
    if not hasattr(pytest.importorskip("torch._dynamo.package"), "DynamoCache"):
        pytest.skip("this torch has no precompiled functions")
    for name, text in {"library": LIBRARY, "caching": CACHING}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert run(tmp_path, "caching.py")[1]["verdict"] == "clean"
    code, receipt = run(tmp_path, "caching.py")
    (finding,) = receipt["findings"]
    assert (code, receipt["verdict"], finding["evidence"]["why"]) == (0, "blind", "elsewhere")
    assert "earlier process compiled" in str(finding["fix"])
