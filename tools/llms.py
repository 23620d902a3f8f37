"""docs/llms.txt: every page of the docs with its title and first sentence, as llmstxt.org has it.

The pages are found by walking the folder: a page that moves keeps its entry.
"""

from __future__ import annotations

import re
from pathlib import Path

HEAD = """\
# compilediag

> Diagnoses torch.compile: why it compiled again, broke graphs or fell back to eager, what that
> cost, which change removes it (proved by rerun), and a gate that keeps it fixed.
> `compilediag run train.py` needs no change of code.

Every command has `--json`; start with the pages on JSON and on letting an agent fix it.
"""
MAX_CHARS = 240
_PLACES = ("tutorial", "howto", "reference", "explanation", "contributing", "project")
_LEFT_OUT = {"README.md", "index.md"}
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NOT_PROSE = re.compile(r"\s*([#|>!\-*<]|\d+\.|    |```)")
_SENTENCE = re.compile(r"(.+?[.?!])(?=\s+[A-Z`*]|$)", re.DOTALL)


def title_and_sentence(text: str) -> tuple[str, str] | None:
    """Of a page; None where it has no title."""
    text = _FENCE.sub("", _COMMENT.sub("", text))
    found = re.search(r"^# +(.+)$", text, re.MULTILINE)
    if found is None:
        return None
    paragraphs = re.split(r"\n\s*\n", text[found.end() :].strip("\n"))
    prose = next((item for item in paragraphs if not _NOT_PROSE.match(item)), "")
    words = " ".join(_LINK.sub(r"\1", prose).split())
    sentence = _SENTENCE.match(words)
    shown = (sentence[1] if sentence else words).rstrip(":")
    cut = shown if len(shown) <= MAX_CHARS else shown[: MAX_CHARS - 1] + "…"
    return _LINK.sub(r"\1", found[1]).strip(), cut


def rendered(docs: Path) -> str:
    """The file, by folder: the pages that lie flat come first, the rules are one list."""
    sections: dict[str, list[str]] = {}
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix()
        about = title_and_sentence(path.read_text(encoding="utf-8"))
        if path.name in _LEFT_OUT or about is None:
            continue
        title, sentence = about
        folder = name.rpartition("/")[0]
        sections.setdefault(folder, []).append(
            f"- [{title}]({name})" + (f": {sentence}" if sentence else "")
        )
    ordered = sorted(sections, key=lambda name: (name == "rules", *_order(name)))
    parts = (
        "\n".join([f"## {folder.capitalize() or 'Pages'}", "", *sections[folder], ""])
        for folder in ordered
    )
    return "\n".join([HEAD, *parts])


def _order(folder: str) -> tuple[int, str]:
    top = folder.partition("/")[0]
    return (_PLACES.index(top) if top in _PLACES else -1, folder)
