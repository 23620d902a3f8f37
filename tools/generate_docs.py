"""Writes the pages whose source is code: the commands, the index of rules, the receipt's
schema, the JSON of every command, and the list of pages for language models.

`make docs` calls it; `--check` writes nothing and fails when a page is stale, which a test uses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import json_page
import llms
import schema_page

from compilediag.cli import COMMANDS, HIDDEN, load_command
from compilediag.commands import explain
from compilediag.diagnosis.codes import REGISTER

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 96
SHARED = {
    "explain": "show.md#explaining-a-finding-or-a-rule",
    "diff": "gate.md#comparing-two-receipts",
    "measure against-eager": "../explanation/against_eager.md",
    "measure cold-and-warm": "../explanation/compile_time.md#a-cold-and-a-warm-start",
    "measure periodic": "probe.md",
    "history stats": "stats.md",
    "history trend": "stats.md#what-got-slower-and-since-when",
    "mcp": "../howto/agent.md",
    "doctor": "../howto/troubleshooting.md#what-can-be-observed-here",
}
"""Commands that have a section of a page instead of a page."""
MADE = "<!-- Written by `make docs`; change the code instead. -->\n"


def main() -> int:
    """1 when `--check` found a stale page, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    check: bool = parser.parse_args().check
    stale = _brought_up_to_date(generated(), check=check)
    # Made of all other pages, those of above included.
    stale |= _brought_up_to_date({"docs/llms.txt": llms.rendered(ROOT / "docs")}, check=check)
    return int(check and stale)


def _brought_up_to_date(pages: Mapping[str, str], *, check: bool) -> bool:
    """Whether any page was stale."""
    stale = {name: text for name, text in pages.items() if _read(ROOT / name) != text}
    for name, text in stale.items():
        print(f"{'stale' if check else 'Wrote'} {name}")
        if not check:
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return bool(stale)


def generated() -> Mapping[str, str]:
    """Path below the root of every generated page, and its text."""
    return {
        "docs/rules/README.md": rules_index(),
        "docs/reference/commands.md": commands_page(),
        **{f"docs/reference/{name}": text for name, text in schema_page.rendered().items()},
        **{f"docs/reference/{name}": text for name, text in json_page.rendered().items()},
    }


def rules_index() -> str:
    """A table of every code that has a page; the register holds planned codes too."""
    rows = [
        f"| [{code}]({code}.md) | {info.slug} | {info.sentence} | {info.severity} |"
        for code, info in ((code, REGISTER[code]) for code in explain.list_codes_with_page())
    ]
    head = ["# Rules\n", "`compilediag explain CODE` prints a page. Codes are never reused.\n"]
    table = ["| code | name | what it finds | severity |", "|---|---|---|---|"]
    return MADE + "\n".join([*head, *table, *rows, ""])


def commands_page() -> str:
    """Each command: its summary, usage, purpose and examples; its page explains the options."""
    sections = [
        f"## [{name}]({page_of(name)})\n\n{summary}\n\n```text\n{_describe(name)}\n```\n"
        for name, summary in COMMANDS.items()
        if name not in HIDDEN
    ]
    head = (
        "# Commands\n\n`compilediag COMMAND --help` lists the options of a command, and its page "
        "explains them.\n"
    )
    return MADE + "\n".join([head, *sections])


def page_of(name: str) -> str:
    """The page of a command, from docs/reference; with the section where several share a page."""
    return SHARED.get(name, f"{name}.md")


def _describe(name: str) -> str:
    """The help of one command, as it is printed into a pipe, without its options."""
    command = load_command(name)
    top = click.Context(click.Group("compilediag"), info_name="compilediag")
    context = click.Context(command, info_name=name, parent=top, terminal_width=WIDTH)
    formatter = context.make_formatter()
    for part in (command.format_usage, command.format_help_text, command.format_epilog):
        part(context, formatter)
    return "\n".join(line.rstrip() for line in formatter.getvalue().splitlines())


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
