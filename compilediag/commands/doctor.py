"""`compilediag doctor`: what can be observed here, what cannot, and why."""

from __future__ import annotations

from pathlib import Path

import click

from compilediag.commands.help import Command
from compilediag.commands.terminal import look, write

EXIT_UNUSABLE = 1


@click.command(
    name="doctor",
    cls=Command,
    epilog="""\b
Examples:
  compilediag doctor          answers in a few seconds: torch is started once
  compilediag doctor --json   for a bug report
""",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option(
    "--output",
    default=".compilediag",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where runs would be kept.",
)
def command(*, as_json: bool, output: Path) -> int:
    """Say what compilediag can and cannot observe here, and why.

    Exit code 0 when `compilediag run` can be used, 1 when it cannot.
    """
    from compilediag.commands.checkup import examine
    from compilediag.views.checkup import plain, render_checkup

    found = examine(output)
    if as_json:
        import json

        write(json.dumps(plain(found), indent=1) + "\n")
    else:
        write(render_checkup(found, look()))
    return 0 if found.usable else EXIT_UNUSABLE
