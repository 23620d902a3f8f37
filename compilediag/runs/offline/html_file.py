"""Pages as files: of a run, a comparison, a trend, a test session."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from compilediag.compare.gate.baseline_file import write_whole
from compilediag.readers.journal import read_run
from compilediag.runs.offline.own_file import PAGE, check_file
from compilediag.runs.offline.source_lines import excerpts
from compilediag.timeline.fold import fold
from compilediag.views import html
from compilediag.views.html.assets import Assets
from compilediag.views.html.report import Sources, render_report
from compilediag.views.html.step_series import StepSeries, step_series

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

_STYLES = ("vendor/uPlot.min.css", "assets/style.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "assets/report.js")
_NO_JOURNALS = (
    "A receipt alone does not hold the time of every step: name the folder of the run to see them."
)


def write_report(receipt: Receipt, path: str, file: str, *, root: str, suffix: str) -> None:
    """Writes the page of a run.

    Args:
        receipt: of the run.
        path: of its file; the journals lie beside it.
        file: the page.
        root: files below this folder are shown relative to it.
        suffix: what commands need to find this receipt again.

    Raises:
        UsageError: `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PAGE)
    series = _series(receipt, os.path.dirname(path))
    notes = () if series.numbers or receipt.steps is None else (_NO_JOURNALS,)
    # In ASCII: what reorders text on a screen is escaped.
    raw = json.dumps(msgspec.to_builtins(receipt), indent=1)
    sources = Sources(series, excerpts(receipt), raw, notes)
    write_page(file, render_report(receipt, sources, assets(), root=root, suffix=suffix))


def write_page(file: str, text: str) -> None:
    """Writes a page, whole or not at all.

    Raises:
        UsageError: `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PAGE)
    write_whole(file, text)


@cache
def assets() -> Assets:
    """What all pages share, from the package."""
    folder = resources.files(html)

    def text(name: str) -> str:
        return folder.joinpath(*name.split("/")).read_text(encoding="utf-8")

    templates = {
        item.name: item.read_text(encoding="utf-8")
        for item in folder.joinpath("assets").iterdir()
        if item.name.endswith(".j2")
    }
    return Assets(templates, "\n".join(map(text, _STYLES)), "\n".join(map(text, _SCRIPTS)))


def _series(receipt: Receipt, folder: str) -> StepSeries:
    """The steps of the lead process, from the journals of the run."""
    journals = [journal.events for journal in read_run(folder)]
    if not any(journals):
        return StepSeries()
    timeline = fold(journals)
    return step_series([each for each in timeline.steps if each.process == timeline.lead], receipt)
