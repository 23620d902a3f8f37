"""docs/howto/ci.md: its recipes for CI systems, beside what `test_docs_pages.py` runs of it."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from command_line import captured
from shown_commands import Block, Shown, agrees, blocks, commands, environment, programs, run

pytestmark = pytest.mark.usefixtures("forked")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "ci.md").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GITLAB = ROOT / "docs" / "howto" / "ci" / "gitlab.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("cost 95 ms, 3 % of wall time\n", "cost 0.12 s,\n  <1 % of wall time", True),
        ("a\n...\nz\n", "a\nb\nz\n", True),
        ("a\n...\n", "b\na\n", False),
        ("a\n...\nm\n...\nz\n", "a z m", False),
        ("1 recompile\n", "2 recompiles\n", False),
        ("", "a\n", False),
    ],
)
def test_the_comparison_can_fail(shown: str, printed: str, same: bool) -> None:
    """Only durations and the ends of lines may differ."""
    assert agrees(shown, printed) is same


def test_commands_are_read_from_a_block() -> None:
    """A command with its output; what stands before the first command is refused."""
    assert commands(Block("console", "", "$ a\nb\nc\n$ d\n")) == [
        Shown("a", "b\nc\n"),
        Shown("d", ""),
    ]
    with pytest.raises(AssertionError):
        commands(Block("console", "", "a\n"))


def test_every_yaml_of_the_page_is_yaml() -> None:
    """The examples can be read, and use only inputs that the action has."""
    used: set[str] = set()
    for block in blocks(PAGE):
        if block.language != "yaml":
            continue
        read = yaml.safe_load(block.text)
        steps = (
            read if isinstance(read, list) else read.get("jobs", {}).get("gate", {}).get("steps")
        )
        for step in steps or ():
            if str(step.get("uses", "")).endswith("/compilediag@main"):
                used |= set(step["with"])
    assert {"run", "receipts", "sarif-file"} <= used <= set(ACTION["inputs"])


def test_the_page_has_every_input_of_the_action() -> None:
    """The table of inputs is complete, in the action's order."""
    table = PAGE.partition("| input | meaning |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(ACTION["inputs"])


def test_the_page_shows_the_snippet_for_gitlab() -> None:
    """What the page shows is the file that its test runs."""
    shown = [item.text for item in blocks(PAGE) if item.name == "gitlab.yml"]
    assert shown == [GITLAB.read_text(encoding="utf-8")]


def test_recipes_publish_receipts_alone() -> None:
    """No artifact of a recipe takes a journal, a log or a trace along."""
    job = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["compilediag"]
    published: list[str] = list(job["artifacts"]["paths"])
    for block in (item.text for item in blocks(PAGE) if item.language == "yaml"):
        published += re.findall(r"^\s*(?:- )?(?:path: )?(\.compilediag\S*)$", block, re.MULTILINE)
    published += re.findall(r"archiveArtifacts artifacts: '([^']+)'", PAGE)
    assert len(published) >= 4
    assert set(published) == {".compilediag/*/receipt.json"}
    assert "upload-artifact" not in str(ACTION)


def test_the_snippet_for_gitlab_runs(tmp_path: Path) -> None:
    """The job's script is green with the program of the page and red with the recompile, and
    writes both of its reports."""
    job = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["compilediag"]
    good, bad = programs(PAGE)
    (tmp_path / "train.py").write_text(good, encoding="utf-8")
    made = "compilediag run --quiet --no-live train.py && compilediag gate --update"
    assert run(made, tmp_path, environment()).startswith("Wrote compilediag.lock.json")
    assert codes(job["script"], tmp_path) == [0, 0]
    (tmp_path / "train.py").write_text(bad, encoding="utf-8")
    assert codes(job["script"], tmp_path) == [0, 3]
    for report in job["artifacts"]["reports"].values():
        assert "train.py" in (tmp_path / report).read_text(encoding="utf-8")


def codes(script: list[str], folder: Path) -> list[int]:
    """Exit codes of the lines of a job."""
    env = environment()
    return [captured("bash", "-c", line, cwd=folder, env=env).returncode for line in script]


def test_hooks_can_be_run_by_pre_commit(tmp_path: Path) -> None:
    """Both hooks say what pre-commit needs, take no file names, and end as the gate does."""
    hooks = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert [item["id"] for item in hooks] == ["compilediag-gate", "compilediag-gate-system"]
    assert [item["language"] for item in hooks] == ["python", "system"]
    for hook in hooks:
        assert (hook["pass_filenames"], hook["always_run"]) == (False, True)
        assert "pre-push" in hook["stages"]
        assert shlex.split(hook["entry"])[:2] == ["compilediag", "gate"]
        assert codes([hook["entry"]], tmp_path) == [2]  # there is no run here: no pass
        assert f"- id: {hook['id']}" in PAGE or f"`{hook['id']}`" in PAGE


def test_links_of_formats_are_complete() -> None:
    """The page of the gate has every format there is."""
    from compilediag.views.gate import FORMATS

    page = (ROOT / "docs" / "reference" / "gate.md").read_text(encoding="utf-8")
    table = page.partition("| format | for |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(FORMATS)
