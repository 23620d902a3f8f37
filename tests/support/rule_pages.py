"""The code that a page about a rule shows: the bad has what the page is about, the good has not."""

import re
import sys
from pathlib import Path
from types import ModuleType

import imported_file
import pytest

PAGES = Path(__file__).parents[2] / "docs" / "rules"


def code_of(page: str, heading: str) -> str:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}$.*?```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return found[1]


def list_headings(page: str, kind: str) -> list[str]:
    """Lists those of code that begin with a word: "Good", "Good, without a tensor"."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^## ({kind}\b.*)$", text, re.MULTILINE)


def run_code_of(
    page: str, heading: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """Imports it as a module of its own, which is gone with the test: an optimizer that lives on
    would be looked for by those after it."""
    file = folder / f"{page}_{heading.lower()}.py"
    file.write_text(code_of(page, heading), encoding="utf-8")
    monkeypatch.setitem(sys.modules, file.stem, None)
    return imported_file.load(file)
