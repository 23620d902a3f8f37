"""docs/llms.txt: what becomes of a page. That the file is fresh: end_to_end/test_docs.py."""

import re
from pathlib import Path

import imported_file
import pytest

ROOT = Path(__file__).resolve().parents[2]
llms = imported_file.load(ROOT / "tools" / "llms.py")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A\n\nOne. Two.\n", ("A", "One.")),
        ("<!-- made -->\n# `a` b\n\n## C\n\n- x\n\nIt is [1.5](x.md) s: long. More.", None),
        ("# A\n\n```text\n# no\n```\n\n| a |\n\nSee [b](b.md)\nand c.", ("A", "See b and c.")),
        ("# A\n", ("A", "")),
        ("no title", None),
        ("# A\n\n" + "word " * 200, ("A", "word " * 47 + "word…")),
    ],
)
def test_title_and_first_sentence(text: str, found: tuple[str, str] | None) -> None:
    """Comments, code, tables, lists and links leave the first sentence of prose."""
    if found is None and "# " in text:
        found = ("`a` b", "It is 1.5 s: long.")
    assert llms.title_and_sentence(text) == found


def test_every_page_is_listed(tmp_path: Path) -> None:
    """Wherever pages lie they are found, and each line leads to one."""
    for name in ("a.md", "howto/deep/b.md", "rules/CD1.md", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n\nText.\n", encoding="utf-8")
    listed = re.findall(r"\]\((.*?)\)", llms.rendered(tmp_path))
    assert listed == ["a.md", "howto/deep/b.md", "rules/CD1.md"]
