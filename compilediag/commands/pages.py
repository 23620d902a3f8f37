"""Pages that commands write: the file, the sentence about it, and the browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compilediag.commands.receipts import suffix_for
from compilediag.commands.terminal import render_options

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt


def report_page(
    receipt: Receipt, path: str, file: str, where: str | None, *, open_it: bool = False
) -> str:
    """Writes the page of a run; the sentence about it.

    Args:
        receipt: of the run.
        path: of its file.
        file: the page.
        where: the run as the user named it; None for the latest.
        open_it: shows it in the browser.

    Raises:
        UsageError: `file` holds something else.
        OutputUnwritable: `file` cannot be written.
    """
    from compilediag.runs.offline.html_file import write_report

    root = render_options().root
    write_report(receipt, path, file, root=root, suffix=suffix_for(where))
    return written(file, open_it=open_it)


def written(file: str, *, open_it: bool = False) -> str:
    """The sentence about a page that was written; it is opened where that is wanted."""
    shown = render_options().text(file)
    if not open_it:
        return f"Wrote {shown}: one file that needs no network; open it in a browser"
    import webbrowser
    from pathlib import Path

    opened = webbrowser.open(Path(os.path.abspath(file)).as_uri())
    return f"Wrote {shown}" + ("" if opened else ": no browser was found to open it")
