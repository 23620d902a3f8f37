"""HTML reports as files: of a run, a comparison, a trend, a test session."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from compilediag.compare.gate.baseline_file import write_whole
from compilediag.readers.journal import read_run
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import compute_sha256, open_regular
from compilediag.receipt.user_line import find_leading_call
from compilediag.runs.run_directory import PAGE_MARK, check_file
from compilediag.timeline.timeline import fold
from compilediag.views import html
from compilediag.views.document import Excerpt, SourceLine
from compilediag.views.html.page import Assets
from compilediag.views.html.report import ReportSources, render_report
from compilediag.views.html.step_series import StepSeries, build_step_series
from compilediag_harness.redaction.redactor import Redactor, list_secret_values

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

AROUND = 2
MAX_BYTES = 4 << 20
MAX_CHARS = 200
"""Of a line."""

_STYLES = ("vendor/uPlot.min.css", "assets/style.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "assets/report.js")
_NO_JOURNALS = (
    "A receipt alone does not hold the time of every step: name the folder of the run to see them."
)


def write_report(receipt: Receipt, path: str, file: str, *, root: str, suffix: str) -> None:
    """Writes the page of a run to `file`. `path`: of the receipt, the journals lie beside it;
    `root`: files below this folder are shown relative to it; `suffix`: what commands need to find
    this receipt again.

    Raises:
        UsageError: `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PAGE_MARK)
    series = StepSeries()
    journals = [journal.events for journal in read_run(os.path.dirname(path))]
    if any(journals):
        timeline = fold(journals)
        lead_steps = [step for step in timeline.steps if step.process == timeline.lead]
        series = build_step_series(lead_steps, receipt)
    notes = () if series.numbers or receipt.steps is None else (_NO_JOURNALS,)
    # In ASCII: what reorders text on a screen is escaped.
    raw = json.dumps(msgspec.to_builtins(receipt), indent=1)
    reports = [each for each in receipt.artifacts if each.role == "tlparse_report"]
    folder = os.path.dirname(os.path.abspath(file))
    graphs = [os.path.join(os.path.dirname(path), each.uri) for each in reports[:1]]
    address = "".join(quote(os.path.relpath(each, folder)) for each in graphs)
    sources = ReportSources(series, collect_excerpts(receipt), raw, address, notes)
    write_page(file, render_report(receipt, sources, load_assets(), root=root, suffix=suffix))


def write_page(file: str, text: str) -> None:
    """Writes a page, whole or not at all.

    Raises:
        UsageError: `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PAGE_MARK)
    write_whole(file, text)


@cache
def load_assets() -> Assets:
    """Load the templates, styles and scripts that all pages share, from the package."""
    folder = resources.files(html)

    def read(name: str) -> str:
        return folder.joinpath(*name.split("/")).read_text(encoding="utf-8")

    templates = {
        template.name: template.read_text(encoding="utf-8")
        for template in folder.joinpath("assets").iterdir()
        if template.name.endswith(".j2")
    }
    return Assets(templates, "\n".join(map(read, _STYLES)), "\n".join(map(read, _SCRIPTS)))


def collect_excerpts(receipt: Receipt) -> dict[str, Excerpt]:
    """Collect the source line of each finding with the two before and behind it, by finding id.

    A receipt comes from anywhere, and a page is shared: only source below the working directory
    is read, and only as the run had it.
    """
    redact = Redactor(list_secret_values((), os.environ)).redact_text
    texts: dict[str, list[str] | str] = {}
    by_finding: dict[str, Excerpt] = {}
    for finding in receipt.findings:
        place = find_leading_call(finding) or finding.location
        if place is None or not place.file or place.line < 1:
            continue
        file, line = place.file, place.line
        if file not in texts:
            texts[file] = _read_source_lines(file, receipt)
        text = texts[file]
        if isinstance(text, str):
            by_finding[finding.id] = Excerpt(note=text)
        elif line <= len(text):
            around = range(max(1, line - AROUND), min(len(text), line + AROUND) + 1)
            lines = (SourceLine(n, redact(text[n - 1][:MAX_CHARS]), n == line) for n in around)
            by_finding[finding.id] = Excerpt(tuple(lines))
    return by_finding


def _read_source_lines(file: str, receipt: Receipt) -> list[str] | str:
    """Read the lines of a file; a sentence where they are not shown."""
    root = os.path.realpath(os.curdir) + os.sep
    path = os.path.realpath(file)
    if not path.endswith(".py") or not path.startswith(root):
        return f"The lines of {file} are not shown: it is not source below the working directory."
    stream = open_regular(path)
    if stream is None:
        return f"The lines of {file} are not shown: it is not here."
    with stream:
        if os.fstat(stream.fileno()).st_size > MAX_BYTES:
            return f"The lines of {file} are not shown: it is too large."
        digest = receipt.header.provenance.source_sha256.get(file)
        if digest is not None:
            same = compute_sha256(stream) == digest
            stream.seek(0)
        else:
            created_s = parse_unix_s(receipt.header.created_at_utc) or 0.0
            same = os.fstat(stream.fileno()).st_mtime <= created_s
        if not same:
            return f"The lines of {file} are not shown: it has changed since the run."
        return stream.read().decode("utf-8", "replace").splitlines()
