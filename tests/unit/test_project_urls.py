"""Nothing points users at an account whose owner is not known, and one line sets the address."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compilediag import project_urls
from compilediag.compare.gate.judgement import Issue, Judgement
from compilediag.views.gate import FORMATS
from compilediag.views.style import RenderOptions

FAILED = Judgement(
    configuration="nano/train",
    receipt_id="01",
    verdict="findings",
    baseline=None,
    limits=(),
    counts=(),
    failures=(
        Issue(kind="cause", rule="CD103", message="compiled again", file="model.py", line=7),
        Issue(kind="limit", rule="recompiles", message="2 recompiles", before=0, after=2),
    ),
)
ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(
    r"(?:\w+\.\w+/|uses:\s*|repo(?:sitory)?:\s*|@)([\w.-]+)/compilediag(?![\w-])", re.IGNORECASE
)
PUBLIC = {"OWNER", "ghcr", "bin"}
SUFFIXES = {"", *".py .md .toml .yml .yaml .cff .json .txt .html .js .ts".split()}


def addresses(text: str) -> Iterator[str]:
    """The accounts under which a text has the project."""
    for found in ADDRESS.finditer(text):
        if found[1] not in PUBLIC:
            yield found[0]


def published() -> Iterator[Path]:
    """What users get to see or run, and what is written for them."""
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for folder in ("compilediag", "harness", "docs", "tools", ".github", "scenarios", "tests"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file())


def test_no_file_names_an_account() -> None:
    """The account in an address of the project is the placeholder, everywhere."""
    found = {
        str(path.relative_to(ROOT)): hits
        for path in published()
        if path.suffix in SUFFIXES and path != Path(__file__)
        if (hits := list(addresses(path.read_text(encoding="utf-8", errors="replace"))))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/compilediag/compilediag/issues",
        "      - uses: somebody/compilediag@main",
        "git+ssh://git@github.com/some-body/compilediag.git",
        "https://some.gitlab.org/team/compilediag",
        "repo: compilediag/compilediag",
    ],
)
def test_an_account_is_found(text: str) -> None:
    """The search above finds each way in which an account can be named."""
    assert list(addresses(text))


def test_one_place_sets_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an address there are links to the pages again, in every output; without one, as now,
    test_gate_views.test_golden has none."""
    assert project_urls.REPOSITORY is None
    monkeypatch.setattr(project_urls, "REPOSITORY", "https://host/owner/compilediag")
    options = RenderOptions()
    page = "https://host/owner/compilediag/blob/main/docs/rules/CD103.md"
    assert f"[CD103]({page})" in FORMATS["md"]([FAILED], options)
    (run,) = json.loads(FORMATS["sarif"]([FAILED], options))["runs"]
    assert run["tool"]["driver"]["informationUri"] == "https://host/owner/compilediag"
    assert page in [rule.get("helpUri") for rule in run["tool"]["driver"]["rules"]]
    assert "https://host/owner/compilediag/issues" in project_urls.format_issue_address()
