"""`show --issue`: the text of an issue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from compilediag import cli
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.issue import MAX_BLOCK_CHARS, MAX_CHARS, render_issue

DATA = Path(__file__).resolve().parents[1] / "data"
VIEWS = DATA / "views"


def receipt(name: str) -> Receipt:
    """A recorded receipt."""
    return read_receipt(VIEWS / f"{name}.json")


def every(found: Receipt) -> range:
    """The numbers of all findings."""
    return range(1, len(found.findings) + 1)


@pytest.mark.parametrize("name", ["findings", "clean", "blind", "killed", "disagree", "breaks"])
def test_it_has_what_maintainers_ask_for(name: str) -> None:
    """Versions, the command, and each finding whole."""
    found = receipt(name)
    text = render_issue(found, every(found), {})
    assert "| torch | " in text
    assert "| compilediag | " in text
    for number, finding in enumerate(found.findings, 1):
        assert f"### {number}. {finding.rule} " in text
        assert f"\nfinding {number}: " in text


def test_hostile_text_is_inert() -> None:
    """Nothing of the target becomes a tag, a link, an image or a mention."""
    found = receipt("hostile")
    program = "```\n</details>\n<script>alert(1)</script>\n"
    text = render_issue(found, every(found), dict.fromkeys(every(found), program))
    parser = MarkdownIt("commonmark", {"html": True})
    tokens = [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]
    written = [token.content for token in tokens if token.type.startswith("html")]
    html = {line for content in written for line in content.strip().splitlines()}
    expected = {"</details>", "<!-- -->"}
    expected |= {
        f"<details><summary>{title}</summary>"
        for title in ("All that was recorded on it", "A small program with the same cause")
    }
    assert html <= expected
    assert not [token for token in tokens if token.type in ("link_open", "image")]
    assert "\x1b" not in text


def test_the_first_findings_come_whole_and_the_rest_is_counted() -> None:
    """GitHub refuses longer ones."""
    found = receipt("findings")
    many = tuple(found.findings[0] for _ in range(200))
    long = msgspec.structs.replace(found, findings=many)
    programs = dict.fromkeys(every(long), "x = 1\n" * 10_000)
    text = render_issue(long, every(long), programs)
    assert len(text) <= MAX_CHARS + 100
    assert "… cut; the receipt has the rest" in text
    shown = text.count("\n### ")
    assert shown >= MAX_CHARS // (3 * MAX_BLOCK_CHARS)
    assert f"{200 - shown} more are left out" in text


@dataclass(frozen=True)
class Given:
    """Words after `show`, and the numbers of the findings in what it writes."""

    words: tuple[str, ...]
    numbers: tuple[int, ...]


FINDINGS = str(VIEWS / "findings.json")


@pytest.mark.parametrize(
    "given",
    [
        Given(("--issue", "2", FINDINGS), (2,)),
        Given((FINDINGS, "--issue"), (1, 2)),
        Given(("--issue", FINDINGS), (1, 2)),
    ],
    ids=lambda given: " ".join(map(str, given.words[:1])),
)
def test_the_number_may_be_left_out(given: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """Then all findings are in it; the word after the option may be the receipt."""
    assert cli.main(["show", *given.words]) == 0
    text = capsys.readouterr().out
    assert {number for number in (1, 2) if f"### {number}. " in text} == {*given.numbers}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--issue", "99", FINDINGS), "and no 99"),
        (("--issue", "x", FINDINGS), "the number of a finding"),
        (("--issue", "1", "--md", FINDINGS), "give one"),
    ],
)
def test_wrong_numbers_are_one_sentence(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit code of wrong usage."""
    assert cli.main(["show", *words]) == 2
    assert message in capsys.readouterr().err
