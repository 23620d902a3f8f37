"""The receipt that a command is about: loads it, names it in the next command, writes its page."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from compilediag.commands.terminal import get_render_options, write_message
from compilediag.compare.gate.inconclusive import CodeComparison
from compilediag.errors import UsageError
from compilediag.option_fields import parse_finding_id
from compilediag.receipt.file import is_newer, read_receipt
from compilediag.receipt.locate import find_newer_unfinished, find_receipt
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import SCHEMA_VERSION, Receipt
from compilediag.views.text import clean


def load_receipt(where: str | None) -> tuple[str, Receipt]:
    """Load the receipt of a file, of a run's folder, or (None) of the latest run, with its path. A
    note on stderr names the version of a file that may say more.

    Raises:
        ReceiptNotFound: there is none.
        ReceiptUnreadable: the file is no receipt, or of a newer major version.
    """
    path = find_receipt(where)
    if where is None and (note := find_newer_unfinished(path)):
        write_message(f"note: this is not the newest run. {note}")
    receipt = read_receipt(path)
    if is_newer(receipt):
        write_message(
            f"note: {path} has schema version {receipt.schema_version}, this compilediag reads "
            f"{SCHEMA_VERSION}: fields that are new in it are not shown"
        )
    return path, receipt


def load_finding(word: str, where: str | None) -> tuple[Receipt, FindingRecord]:
    """Load finding 1, 2, … of a receipt, or the one with this key.

    Raises:
        UsageError: it has no such finding.
        ReceiptNotFound, ReceiptUnreadable: as `load_receipt`.
    """
    path, receipt = load_receipt(where)
    return receipt, find_finding(word, receipt, path)


def find_finding(word: str, receipt: Receipt, path: str) -> FindingRecord:
    """Find finding 1, 2, …, or the one with this key, in the receipt in the file `path`.

    Raises:
        UsageError: it has no such finding, or two share the key.
    """
    identity, findings = parse_finding_id(word), receipt.findings
    key = word.upper()
    named = [f for f in findings if f.id == identity or (f.key or "").upper() == key]
    if len(named) == 1:
        return named[0]
    if named:
        ids = " and ".join(finding.id for finding in named)
        raise UsageError(f"{path} has {ids} with this key: give the number of one")
    if identity:
        known = f"findings 1 to {len(findings)}" if findings else "no findings"
    else:
        known = ", ".join(finding.key or finding.id for finding in findings) or "no findings"
    raise UsageError(f"{path} has {known}, and no {clean(word, limit=60)}")


def format_suffix(where: str | None) -> str:
    """Format what the next command needs to find this receipt: a blank and the quoted path."""
    return "" if where is None else f" {shlex.quote(where)}"


@dataclass(frozen=True, slots=True)
class ConfigReceipt:
    """One receipt and the configuration that it is judged as."""

    name: str
    receipt: Receipt
    where: str | None
    """As it was given; None: the latest run."""
    code: CodeComparison
    """The code of the receipt against the one that is checked out."""


def shorten_path(path: str) -> str:
    """Shorten a path to what a person would type here."""
    return path.removeprefix(os.getcwd().rstrip("/") + "/")


# --- pages ---------------------------------------------------------------------------------------


def write_html(
    receipt: Receipt, path: str, file: str, where: str | None, *, open_it: bool = False
) -> str:
    """Write the page of a run; return the sentence about it.

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

    root = get_render_options().root
    write_report(receipt, path, file, root=root, suffix=format_suffix(where))
    return announce_page(file, open_it=open_it)


def announce_page(file: str, *, open_it: bool = False) -> str:
    """Make the sentence about a page that was written, and open the page where that is wanted."""
    shown = get_render_options().clean(file)
    if not open_it:
        return f"Wrote {shown}: one file that needs no network; open it in a browser"
    import webbrowser
    from pathlib import Path

    opened = webbrowser.open(Path(os.path.abspath(file)).as_uri())
    return f"Wrote {shown}" + ("" if opened else ": no browser was found to open it")
