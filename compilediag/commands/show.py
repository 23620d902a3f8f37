"""`compilediag show`: the verdict of a run again, and other looks at its receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compilediag.commands.help import Command
from compilediag.commands.params import PATH
from compilediag.commands.terminal import look, write
from compilediag.errors import UsageError

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.views.style import RenderOptions


@click.command(
    name="show",
    cls=Command,
    epilog="""\b
Examples:
  compilediag show                                  the latest run
  compilediag show --timeline                       compile by compile, with every cause
  compilediag show --steps                          where the time of the steps went
  compilediag show --md >> "$GITHUB_STEP_SUMMARY"   for a pull request
  compilediag show --perfetto timeline.json         all of it on one timeline
""",
)
@click.argument("receipt", required=False, type=PATH)
@click.option("--all", "complete", is_flag=True, help="Every finding and note, not one screen.")
@click.option("--frames", is_flag=True, help="Per frame: compiles, guards, room below the limit.")
@click.option("--timeline", is_flag=True, help="Compile by compile: step, seconds, all causes.")
@click.option("--steps", is_flag=True, help="Step times by phase, long steps, spans and hooks.")
@click.option("--ranks", is_flag=True, help="Rank by rank, and where ranks do not do the same.")
@click.option("--md", "markdown", is_flag=True, help="Markdown for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="The receipt itself.")
@click.option(
    "--perfetto", metavar="FILE", help="Write the run's timeline for ui.perfetto.dev to FILE."
)
def command(receipt: str | None, *, complete: bool, perfetto: str | None, **views: bool) -> None:
    """Show the verdict of a run again.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run.
    """
    chosen = [name for name, asked in views.items() if asked]
    if complete:
        chosen.append("complete")
    if perfetto is not None:
        chosen.append("perfetto")
    if len(chosen) > 1:
        raise UsageError(
            "--all, --frames, --timeline, --steps, --ranks, --md, --json and --perfetto are "
            "different views; give one"
        )
    if perfetto is not None:
        write(_written(perfetto, receipt))
        return
    write(drawn(chosen[0] if chosen else "", receipt))


def drawn(view: str, where: str | None) -> str:
    """One view of the receipt; only the module that draws it is imported."""
    from compilediag.commands.receipts import load, suffix_for

    path, receipt = load(where)
    if view == "as_json":
        import json

        from compilediag.receipt.file import read_json

        # In ASCII: text of the target must not act on a terminal here either.
        return json.dumps(read_json(path), indent=1, allow_nan=False) + "\n"
    if view == "markdown":
        from compilediag.views.markdown import render_markdown

        return render_markdown(receipt, root=look().root)
    if view == "frames":
        from compilediag.views.frames import render_frames

        following = f"\n  next: compilediag show --timeline{suffix_for(where)}\n"
        return render_frames(receipt, look()) + following
    if view == "timeline":
        from compilediag.views.timeline import render_timeline

        number = f"explain 1{suffix_for(where)}" if receipt.findings else "explain --list"
        return render_timeline(receipt, look()) + f"\n  next: compilediag {number}\n"
    if view == "steps":
        from compilediag.views.steps import render_steps

        return render_steps(receipt, look()) + f"\n  next: compilediag show{suffix_for(where)}\n"
    if view == "ranks":
        from compilediag.views.ranks import render_ranks

        return render_ranks(receipt, look()) + f"\n  next: compilediag show{suffix_for(where)}\n"
    from compilediag.views.verdict import render

    screen = look()
    return _probe_above(receipt, screen, view, where) + render(
        receipt,
        width=screen.width,
        color=screen.color,
        ascii=screen.ascii_only,
        root=screen.root,
        complete=view == "complete",
        suffix=suffix_for(where),
    )


def _written(file: str, where: str | None) -> str:
    """Writes the timeline to a file; what is to be said about it."""
    from compilediag.commands.receipts import load, suffix_for
    from compilediag.commands.show_perfetto import write_perfetto

    path, receipt = load(where)
    screen = look()
    notes = write_perfetto(receipt, path, file)
    told = [f"Wrote {screen.text(file)}: open it in https://ui.perfetto.dev"]
    told += [f"  note: {screen.text(note)}" for note in notes]
    return "\n".join([*told, "", f"  next: compilediag show{suffix_for(where)}"]) + "\n"


def _probe_above(receipt: Receipt, screen: RenderOptions, view: str, where: str | None) -> str:
    """The table of a cadence probe, above the verdict on its configured variant."""
    if receipt.cadence is None or view:
        return ""
    from compilediag.commands.receipts import suffix_for
    from compilediag.views.cadence import render_cadence

    return f"{render_cadence(receipt, screen, suffix_for(where), more=False)}\n"
