"""The site is built without a warning, and loads nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import compilediag

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("material") is None
    or importlib.util.find_spec("mkdocstrings_handlers") is None,
    reason="no mkdocs-material: pip install -e '.[docs]', with Python 3.11.5 or newer",
)


class Loaded(HTMLParser):
    """What a browser loads with a page: scripts, styles, fonts and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        value = dict(attrs)
        if tag in {"script", "img", "iframe"}:
            self.addresses.append(value.get("src") or "")
        if tag == "link":
            self.addresses.append(value.get("href") or "")


def loaded(page: str) -> list[str]:
    parser = Loaded()
    parser.feed(page)
    return parser.addresses


def undrawn(page: str) -> list[str]:
    """Paragraphs that are meant as blocks of code, lists or tables; a forge draws them as such,
    and the site wants an empty line above, or four columns of indentation."""
    return [
        text
        for text in re.findall(r"<p>(.*?)</p>", page, re.DOTALL)
        if re.search(r"^```|^(?:- |\d+\. |\|)", text, re.MULTILINE)
    ]


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`make docs-site`, into another folder."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
    return subprocess.run(
        [*words, "-d", str(site)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_the_site_is_built(tmp_path: Path) -> None:
    """No warning, every page, the docstring of every public name, and nothing from elsewhere."""
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stdout
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    expected = {path.with_suffix(".html") for path in pages if path.stem != "README"}
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.html")}
    assert expected <= made
    api = (tmp_path / "reference" / "api.html").read_text(encoding="utf-8")
    for name in compilediag.__all__:
        assert name == "__version__" or f'id="compilediag.{name}"' in api, name
    for path in tmp_path.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert undrawn(page) == [], path
        addresses = loaded(page)
        assert not [item for item in addresses if re.match(r"(https?:)?//", item)], path


def test_a_dead_link_is_an_error(tmp_path: Path) -> None:
    """Strict means that a build with a link to nowhere fails."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("[a](no.md) [b](#no)\n", encoding="utf-8")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n  - Home")[0]
    config = config.replace("tools/site_hooks.py", str(ROOT / "tools" / "site_hooks.py"))
    (tmp_path / "mkdocs.yml").write_text(config, encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert "no.md" in done.stdout
    assert "#no" in done.stdout


def test_what_is_not_drawn_is_found() -> None:
    """Code, lists and tables in a paragraph, and nothing else."""
    assert undrawn("<p>a - b | c</p><li><p>x\n1.5 s</p></li>") == []
    for text in ("```python\nx", "these:\n- one", "these:\n1. one", "a\n| b | c |"):
        assert undrawn(f"<p>{text}</p>") == [text]


def test_what_is_loaded_is_found() -> None:
    """Scripts, styles and pictures; a link to click is none."""
    page = '<script src="//a/x.js"></script><link href="b.css"><img src=c><a href="https://d">d</a>'
    assert loaded(page) == ["//a/x.js", "b.css", "c"]
