"""The receipt that a command is about: loads it, names it in the next command, writes its page."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass

from compilediag.commands.terminal import get_render_options, write_message
from compilediag.compare.gate.inconclusive import CodeComparison
from compilediag.errors import UsageError
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


_NUMBER = re.compile(r"F?(\d{1,6})\Z", re.IGNORECASE)
_KEY = re.compile(r"CD\d{3}-.", re.IGNORECASE | re.DOTALL)


def names_finding(word: str) -> bool:
    """True where a word is the number of a finding (1, F1), or may be its key (CD103-rotary)."""
    return bool(_NUMBER.match(word) or _KEY.match(word))


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
        UsageError: it has no such finding.
    """
    number, findings = _NUMBER.match(word), receipt.findings
    for finding in findings:
        name = finding.id if number else (finding.key or "").upper()
        if name == (f"F{int(number[1])}" if number else word.upper()):
            return finding
    if number:
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
