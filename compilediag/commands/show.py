"""`compilediag show`: the verdict of a run again, and other looks at its receipt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import msgspec

from compilediag import extension_points
from compilediag.commands.receipts import format_suffix, load_receipt, write_html
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import format_json, get_render_options, write
from compilediag.errors import UsageError
from compilediag.option_fields import collect_options, flag, option, receipt_argument
from compilediag.receipt.file import read_json


@dataclass(frozen=True)
class Views:
    """Looks at a receipt, one at a time."""

    complete: bool = flag("--all", "Show every finding and note, not just one screen.")
    frames: bool = flag(
        "--frames", "Show compiles, guards and room below the limit for each frame."
    )
    timeline: bool = flag("--timeline", "Show step, seconds and all causes of each compile.")
    steps: bool = flag("--steps", "Show step times by phase, long steps, spans and hooks.")
    compile_time: bool = flag("--compile-time", "Show where compile seconds went.")
    ranks: bool = flag("--ranks", "Show each rank, and where ranks differ.")
    markdown: bool = flag("--md", "Print Markdown for a pull request.")
    as_json: bool = flag("--json", "Print the receipt itself.")

    def choose_views(self) -> tuple[str, ...]:
        """Return the views that were chosen, each a section; the verdict alone without any.

        Raises:
            UsageError: one of several is a document of its own.
        """
        names = (*collect_options(Views), *_FILES)
        chosen = tuple(n for n in names if getattr(self, n, None) not in (False, None))
        if len(chosen) > 1 and not {*chosen}.isdisjoint(("markdown", "as_json", *_FILES)):
            more = ", --perfetto, --html" if hasattr(self, "perfetto") else ""
            raise UsageError(f"--md, --json{more} are documents of their own; give one alone")
        return chosen or ("",)


_FILES = ("perfetto", "html", "issue")


@dataclass(frozen=True)
class ShowOptions(Views):
    """The receipt to show, and how."""

    receipt: str | None = receipt_argument()
    perfetto: str | None = option(
        "--perfetto FILE", "Write the run's timeline to FILE, for ui.perfetto.dev."
    )
    html: str | None = option("--html FILE", "Write the report as one offline page to FILE.")
    open_page: bool = flag("--open", "With --html: open the page in a browser.")
    # Its former place.
    issue: str | None = option("--issue [N]", "", is_flag=False, flag_value="", hidden=("show",))


@subcommand(
    "show",
    ShowOptions,
    examples="""\
  compilediag show                                  the latest run
  compilediag show --timeline                       compile by compile, with every cause
  compilediag show --steps                          where the time of the steps went
  compilediag show --compile-time                   where compile seconds went
  compilediag show --md >> "$GITHUB_STEP_SUMMARY"   for a pull request
  compilediag show --perfetto timeline.json         all of it on one timeline
  compilediag show --html report.html --open        one page to look at and to share
""",
)
def command(options: ShowOptions) -> None:
    """Show the verdict of a run again.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run.
    """
    views = options.choose_views()
    if options.open_page and options.html is None:
        raise UsageError("--open belongs to --html FILE")
    suffix = format_suffix(options.receipt)
    if options.html is not None:
        path, receipt = load_receipt(options.receipt)
        from compilediag.views.next_command import choose_command

        text = write_html(receipt, path, options.html, options.receipt, open_it=options.open_page)
        write(f"{text}\n{_format_next(choose_command(receipt, suffix))}")
    elif options.perfetto is not None:
        from compilediag.runs.offline.perfetto_file import write_perfetto

        path, receipt = load_receipt(options.receipt)
        screen = get_render_options()
        notes = write_perfetto(receipt, path, options.perfetto)
        lines = [f"Wrote {screen.clean(options.perfetto)}: open it in https://ui.perfetto.dev"]
        lines += [f"  note: {screen.clean(note)}" for note in notes]
        write("\n".join(lines) + "\n" + _format_next(f"show{suffix}"))
    elif options.issue is not None:
        from compilediag.commands.explain import render_issue_of

        words = [word for word in (options.issue, options.receipt) if word]
        write(render_issue_of(words))
    else:
        write(render_views(views, options.receipt))


_BLOCKS = {
    "frames": ("compiles", "show --timeline"),
    "timeline": ("compiles", "explain 1"),
    "steps": ("steps", "show"),
    "compile_time": ("compiles", "show --timeline"),
    "ranks": ("ranks", "show"),
}
"""Views that are blocks: the module of `show_NAME`, and the command that leads on from there."""


def render_views(views: Sequence[str], where: str | None) -> str:
    """Render views of a receipt, one below the other."""
    return "\n".join(_render_view(view, where) for view in views)


def _render_view(view: str, where: str | None) -> str:
    """Render one view of a receipt; only the module that draws it is imported."""
    path, receipt = load_receipt(where)
    suffix, screen = format_suffix(where), get_render_options()
    if view == "as_json":
        from compilediag.views.next_command import choose_command

        following = f"compilediag {choose_command(receipt, suffix)}"
        return format_json({**read_json(path), "next": following})
    if view == "markdown":
        from compilediag.views.summary import render_markdown

        return render_markdown(receipt, root=screen.root)
    if view in _BLOCKS:
        from compilediag.views.terminal import render

        module, following = _BLOCKS[view]
        blocks_of = getattr(import_module(f"compilediag.views.{module}"), f"show_{view}")
        command = f"{following}{suffix}"
        if view == "timeline" and not receipt.findings:
            command = "explain --list"
        return render(blocks_of(receipt, screen), screen) + _format_next(command)
    table = ""
    point = extension_points.CADENCE_VIEW
    if receipt.cadence is not None and not view and extension_points.is_installed(point):
        render = extension_points.load(point, "the table of a probe")
        table = f"{render(receipt, screen, suffix, more=False)}\n"
    from compilediag.views import verdict

    if document := receipt.extensions.get("certificate"):  # of which it is the new state
        from compilediag.views import terminal
        from compilediag.views.certificate import CertificateDocument, show_certificate

        certificate = msgspec.convert(document, CertificateDocument)
        overview = show_certificate(certificate, "the files as they were", (), screen)
        table += f"{terminal.render_overview(overview, screen)}\n"
    return table + verdict.render(receipt, screen, suffix=suffix, complete=view == "complete")


def _format_next(command: str) -> str:
    return f"\n  next: compilediag {command}\n"
