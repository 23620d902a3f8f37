"""What a notebook shows of a receipt: the same facts as the screen, inert and self-contained."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from msgspec import structs

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.findings import MAX_FINDINGS
from compilediag.views.headline import headline
from compilediag.views.lookups import main_findings
from compilediag.views.notebook import render_notebook

DATA = Path(__file__).parents[1] / "data" / "views"
CASES = ("findings", "clean", "blind", "disagree", "killed", "many", "hostile", "breaks")


def receipt(name: str) -> Receipt:
    return msgspec.convert(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")), Receipt)


class Reader(HTMLParser):
    """Tags, attributes and text, and whether every tag that opens is closed."""

    void: ClassVar[set[str]] = {"br"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


@pytest.mark.parametrize("name", CASES)
def test_a_fragment_holds_no_script_and_closes_its_tags(name: str) -> None:
    """Whatever the receipt holds, the tags and attributes are the view's own."""
    read = Reader(render_notebook(receipt(name)))
    assert read.open == []
    own = {"div", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert read.tags <= own | {"br"}
    assert read.attributes <= {"class", "style", "scope"}
    assert headline(receipt(name)).sentence in read.said


def test_every_finding_has_its_place_and_fix() -> None:
    """The table names rule and change of each finding."""
    made = receipt("findings")
    said = Reader(render_notebook(made)).said
    for _, finding in main_findings(made):
        assert finding.rule in said
        assert finding.fix.summary[:40] in said


def test_markup_in_each_text_of_a_finding_stays_text() -> None:
    """A title, a variable, a file and a fix that look like HTML are shown as they are."""
    made = receipt("findings")
    evil = "<img src=x onerror=alert(1)>"
    first, *others = (finding for _, finding in main_findings(made))
    hostile = structs.replace(
        first,
        title=evil,
        variable=evil,
        fix=structs.replace(first.fix, summary=evil),
    )
    html = render_notebook(structs.replace(made, findings=[hostile, *others]))
    assert "<img" not in html
    assert html.count("&lt;img") >= 3


def test_a_long_table_ends_with_what_is_left_out() -> None:
    """Ten thousand findings make no ten thousand rows."""
    made = receipt("findings")
    many = [main_findings(made)[0][1]] * 10_000
    html = render_notebook(structs.replace(made, findings=many))
    assert html.count("<tr>") == MAX_FINDINGS + 1
    assert f"and {10_000 - MAX_FINDINGS} more in the receipt" in html
