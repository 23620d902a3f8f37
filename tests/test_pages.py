"""The pages of rules are found in a checkout and in an installed wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from compilediag.commands import pages

ROOT = Path(__file__).resolve().parent.parent


def test_page_of_a_rule_is_what_stands_in_the_file() -> None:
    """The text is the file's, and the code may be typed in any case."""
    text = (ROOT / pages.anchor("CD103")).read_text(encoding="utf-8")
    assert pages.page("CD103") == text
    assert pages.page("cd103") == text


@pytest.mark.parametrize("code", ["CD000", "", "README", "../rules/CD103", "CD103.md", "CD103\n"])
def test_no_page(code: str) -> None:
    """What is no code, or has no page, gives None and never another file."""
    assert pages.page(code) is None


def test_codes_are_the_files() -> None:
    """Every page is listed, and nothing else that lies in the folder."""
    files = sorted(path.stem for path in (ROOT / "docs" / "rules").glob("CD*.md"))
    assert list(pages.codes()) == files


def test_a_wheel_carries_the_pages(tmp_path: Path) -> None:
    """`compilediag explain` works where only the wheel is installed."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, str(installed)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == pages.page("CD103")


SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
from compilediag.commands import pages
assert pages.__file__.startswith(sys.argv[1]), pages.__file__
sys.stdout.write(pages.page("CD103"))
"""
