"""The documentation is complete and fresh: commands, rules, errors, links, gallery."""

import hashlib
import json
import sys
from pathlib import Path

import pytest
from command_line import captured

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


def test_generated_pages_are_fresh() -> None:
    """`make docs` would change nothing. In a process of its own: commands that ran in this one
    have had their help adjusted to the terminal they thought they had."""
    tool = str(ROOT / "tools" / "generate_docs.py")
    done = captured(sys.executable, tool, "--check", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_receipt_is_of_the_program_as_it_is(program: Path) -> None:
    """`make gallery` was called after the last change, and something was found."""
    path = ROOT / "examples" / "receipts" / f"{program.stem}.json"
    receipt = json.loads(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert receipt["header"]["provenance"]["source_sha256"] == {program.name: digest}
    assert receipt["status"] == "complete"
    assert receipt["findings"]


def test_the_gallery_has_five_programs() -> None:
    """None was forgotten."""
    assert [path.stem for path in PROGRAMS] == ["gnn", "gpt2", "ppo", "unet", "vit"]


def test_the_page_of_the_gallery_is_fresh() -> None:
    """Its screens are those of `compilediag show`; `tools/gallery.py --page` draws them again."""
    done = captured(sys.executable, str(ROOT / "tools" / "gallery.py"), "--check")
    assert done.returncode == 0, f"{done.stderr}docs/tutorial/gallery.md is stale"
