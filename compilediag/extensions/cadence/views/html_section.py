"""A cadence probe in the HTML report: the steps of its variants side by side."""

from __future__ import annotations

from compilediag.extensions.cadence.views.cadence import render_cadence
from compilediag.extensions.cadence.views.cadence_variants import NAME_CHARS
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.format import seconds
from compilediag.views.html.parts import Picture, Section, picture
from compilediag.views.style import RenderOptions


def section(receipt: Receipt, options: RenderOptions) -> Section | None:
    """The probe: a chart of every variant's steps on one scale, and what each group costs."""
    found = receipt.cadence
    if found is None:
        return None
    cells = [size for item in found.variants if item.picture for size in item.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    pictures = list[Picture]()
    for item in found.variants:
        if item.picture is None:
            continue
        middle = seconds(None if item.steps is None else item.steps.median)
        most = seconds(None if item.steps is None else item.steps.max)
        caption = f"median {middle}, longest {most}"
        name = options.text(item.name, NAME_CHARS)
        pictures.append(picture(name, caption, item.picture.cells_s, low, high))
    return Section(
        "cadence",
        "Cadence",
        "Cadence probe",
        pictures=tuple(pictures),
        text=render_cadence(receipt, options, more=False),
    )
