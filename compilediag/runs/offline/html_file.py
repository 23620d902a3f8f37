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
from compilediag.receipt.user_line import find_leading_call
from compilediag.runs.run_directory import PAGE_MARK, check_file
from compilediag.timeline.timeline import fold
from compilediag.views import html
from compilediag.views.html.page import Assets
from compilediag.views.html.report import (
    ReportSources,
    StepSeries,
    build_step_series,
    render_report,
)
from compilediag.views.lookups import number_findings

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

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
    series = StepSeries()
    journals = [journal.events for journal in read_run(os.path.dirname(path))]
    if any(journals):
        timeline = fold(journals)
        lead_steps = [step for step in timeline.steps if step.process == timeline.lead]
        series = build_step_series(lead_steps, receipt)
    notes = () if series.steps or receipt.steps is None else (_NO_JOURNALS,)
    # In ASCII: what reorders text on a screen is escaped.
    raw = json.dumps(msgspec.to_builtins(receipt), indent=1)
    reports = [each for each in receipt.artifacts if each.role == "tlparse_report"]
    folder = os.path.dirname(os.path.abspath(file))
    graphs = [os.path.join(os.path.dirname(path), each.uri) for each in reports[:1]]
    address = "".join(quote(os.path.relpath(each, folder)) for each in graphs)
    lines = {number: _make_editor_url(each, root) for number, each in number_findings(receipt)}
    sources = ReportSources(series, raw, address, lines, notes)
    write_page(file, render_report(receipt, sources, load_assets(), root=root, suffix=suffix))


def _make_editor_url(finding: FindingRecord, root: str) -> str:
    """Make the address that opens the line of a finding in VS Code, as in
    https://code.visualstudio.com/docs/configure/command-line#_opening-vs-code-with-urls."""
    place = find_leading_call(finding) or finding.location
    path = "" if place is None else os.path.join(root, place.file)
    if place is None or not os.path.isabs(path) or not place.file.endswith(".py"):
        return ""
    return f"vscode://file{quote(path)}:{place.line}"


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
