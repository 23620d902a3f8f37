"""The tutorial and the how-to guides show what happens: files written, commands run, in order."""

from importlib.metadata import version
from pathlib import Path

import pytest
from shown_commands import ABORTED, agrees, blocks, commands, environment, run

DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = {"pytest": "80"}
"""Of pages that are not shown in 100 columns."""


# Those that hold the programs that their commands run.
PAGES = sorted(
    page
    for folder in ("tutorial", "howto")
    for page in (DOCS / folder).glob("*.md")
    if any(block.name.endswith(".py") for block in blocks(page.read_text(encoding="utf-8")))
)

pytestmark = [
    pytest.mark.usefixtures("forked"),
    pytest.mark.skipif(
        not version("torch").startswith("2.13.") or pytest.version_tuple < (9, 0),
        reason="the pages show torch 2.13 and pytest 9",
    ),
]


def test_pages_are_found() -> None:
    """The tutorial and most guides are run."""
    names = {page.stem for page in PAGES}
    assert {"first_fix", "spikes", "library", "many_ranks", "ci", "pytest"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """From the top of the page to its end, in one folder."""
    variables = {**environment(), "COLUMNS": COLUMNS.get(page.stem, "100")}
    wrong: list[str] = []
    ran = 0
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and block.name:
            (tmp_path / block.name).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for shown in commands(block):
            printed = run(shown.command, tmp_path, variables)
            ran += 1
            if not agrees(shown.output, printed):
                wrong.append(f"$ {shown.command}\n{printed}--- shown\n{shown.output}")
    assert not wrong, "\n".join(wrong)
    assert ran


def test_a_command_that_torch_aborts_is_run_again_where_nothing_of_ours_is_in_it(tmp_path) -> None:
    """In the folder as it was; a command of compilediag shows that it was aborted."""
    twice = f'echo again >> trace; cat trace; [ -e "$SEEN" ] || echo {ABORTED}; touch "$SEEN"'
    folder = tmp_path / "page"
    folder.mkdir()
    for command, printed in ((twice, "again\n"), (f": compilediag; {twice}", ABORTED)):
        variables = {**environment(), "SEEN": str(tmp_path / f"seen{len(command)}")}
        assert run(command, folder, variables).endswith(f"{printed.strip()}\n")
        (folder / "trace").unlink()
