"""The pages of rules are found in a checkout and in an installed wheel."""

from pathlib import Path

import pytest

from compilediag.commands import explain

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("code", ["CD000", "", "README", "../rules/CD103", "CD103.md", "CD103\n"])
def test_no_page(code: str) -> None:
    """What is no code, or has no page, gives None and never another file."""
    assert explain.read_page(code) is None


def test_codes_are_the_files() -> None:
    """Every page is listed, and nothing else that lies in the folder."""
    files = sorted(path.stem for path in (ROOT / "docs" / "rules").glob("CD*.md"))
    assert list(explain.list_codes_with_page()) == files
