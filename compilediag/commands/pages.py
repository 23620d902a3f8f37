"""Finds the documentation page of a rule, in an installed package or in a checkout.

A wheel carries `docs/rules/` as `compilediag/docs/rules/`; an editable install has it in the
repository beside the package. No page is generated here: what stands in the file is the page.
"""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "docs" / "rules", _PACKAGE.parent / "docs" / "rules")
_CODE = re.compile(r"CD\d{3}\Z")


def anchor(code: str) -> str:
    """Path of the page of `code` below the repository's root, as findings and receipts cite it."""
    return f"docs/rules/{code}.md"


def page(code: str) -> str | None:
    """Markdown of the page of `code` ("CD103", any case); None when there is no such page."""
    code = code.upper()
    # A code comes from the command line or from a receipt: it must not become another path.
    if not _CODE.match(code):
        return None
    for folder in _FOLDERS:
        path = folder / f"{code}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


def codes() -> tuple[str, ...]:
    """Every code that has a page, in order."""
    found = {path.stem for folder in _FOLDERS if folder.is_dir() for path in folder.glob("CD*.md")}
    return tuple(sorted(code for code in found if _CODE.match(code)))
