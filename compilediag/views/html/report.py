"""The report of a run as one page: the verdict, the steps, the findings, the frames, the costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compilediag import extension_points
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.html import costs
from compilediag.views.html.cards import MAX_CARDS, Excerpt, cards
from compilediag.views.html.overview import overview
from compilediag.views.html.page import Assets, render_page
from compilediag.views.html.parts import Section, table
from compilediag.views.html.pieces import breaks_elsewhere, functions
from compilediag.views.html.step_series import StepSeries, longest
from compilediag.views.style import RenderOptions

SCREEN_WIDTH = 100
MAX_RAW_CHARS = 150_000
"""Of the receipt's own text: a page stays below half a megabyte."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a report shows beside its receipt; each may be missing."""

    series: StepSeries = field(default_factory=StepSeries)
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict[str, Excerpt])
    raw: str = ""
    """The receipt as JSON with line breaks."""
    notes: tuple[str, ...] = ()
    """Why something is missing."""


def render_report(
    receipt: Receipt, sources: Sources, assets: Assets, *, root: str = "", suffix: str = ""
) -> str:
    """The page.

    Args:
        receipt: of the run.
        sources: what is shown beside it.
        assets: template, style and script.
        root: files below this folder are shown relative to it.
        suffix: what commands need to find this receipt again, such as its path.
    """
    options = RenderOptions(width=SCREEN_WIDTH, root=root)
    about = overview(receipt, options)
    sections = (
        costs.compile_seconds(receipt, options),
        costs.goodput(receipt),
        costs.steps(receipt, options),
        _cadence(receipt, options),
        costs.ranks(receipt, options),
        costs.cuda_graphs(receipt, options),
    )
    series = sources.series
    head, rows = longest(receipt)
    return render_page(
        assets,
        "report.html.j2",
        series.data(),
        about=about,
        series=series,
        longest=table("longest steps", head, rows, right=head[1:3]) if rows else None,
        cards=cards(receipt, options, sources.excerpts),
        cards_left_out=max(0, len(receipt.findings) - MAX_CARDS),
        functions=functions(receipt, options),
        elsewhere=breaks_elsewhere(receipt, options),
        sections=[each for each in sections if each is not None],
        raw=sources.raw[:MAX_RAW_CHARS],
        raw_left_out=max(0, len(sources.raw) - MAX_RAW_CHARS),
        notes=sources.notes,
        suffix=suffix,
    )


def _cadence(receipt: Receipt, options: RenderOptions) -> Section | None:
    """The section of a probe; None where its extension is missing."""
    point = extension_points.CADENCE_SECTION
    if receipt.cadence is None or not extension_points.is_installed(point):
        return None
    return extension_points.load(point, "the section of a probe")(receipt, options)
