"""The gallery shows what its receipts hold, and its receipts are of the programs beside them."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_receipt_is_of_the_program_as_it_is(program: Path) -> None:
    """`make gallery` was called after the last change, and something was found."""
    path = ROOT / "examples" / "receipts" / f"{program.stem}.json"
    receipt = json.loads(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert receipt["header"]["provenance"]["source_sha256"] == {program.name: digest}
    assert receipt["status"] == "complete"
    assert receipt["findings"]


def test_there_are_five_programs() -> None:
    """None was forgotten."""
    assert [path.stem for path in PROGRAMS] == ["gnn", "gpt2", "ppo", "unet", "vit"]


def test_the_page_is_fresh() -> None:
    """Its screens are those of `compilediag show`; `tools/gallery.py --page` draws them again."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gallery.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}docs/tutorial/gallery.md is stale"
