"""A run in a few blocks: for a pull request, a notebook's cell, the head of an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.document import (
    LINE_CHARS,
    Block,
    Code,
    Listing,
    Overview,
    Paragraph,
    Section,
)
from compilediag.views.findings import findings_table
from compilediag.views.headline import (
    ending,
    headline,
    is_training_alone,
    reasons,
    trainer_figures,
)
from compilediag.views.markdown import SIGNS, render, render_overview
from compilediag.views.measured import measured_sentences
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt


def summary(receipt: Receipt, options: RenderOptions, *, findings: bool = True) -> Overview:
    """The verdict with its counts, what was measured, how the run ended, why it is blind.

    Args:
        receipt: of the run.
        options: how places are written.
        findings: whether they follow as a table.
    """
    head, ended = headline(receipt), ending(receipt)
    blocks: list[Block] = [Paragraph(" · ".join(head.counts))]
    if figures := trainer_figures(receipt):
        blocks.append(Paragraph((Code(options.text(" · ".join(figures), 300)),)))
    blocks += [
        Paragraph(options.text(sentence), label=name)
        for name, sentence in measured_sentences(receipt)
    ]
    if ended is not None:
        blocks.append(Paragraph(("⚠️ ", Code(options.text(ended, 300)))))
    if receipt.verdict == "blind":
        whys = [("why: ", Code(options.text(why, 300))) for why, _ in reasons(receipt)]
        blocks.append(Listing("", whys))
        if not is_training_alone(receipt):
            blocks.append(Paragraph('A count of 0 here means "not seen".'))
    if findings:
        table = findings_table(receipt, options)
        blocks += [] if table is None else [table]
    sentence = options.text(head.sentence)
    return Overview("", head.kind, sentence, (Section("summary", "Summary", "Summary", blocks),))


def render_markdown(receipt: Receipt, *, root: str = "") -> str:
    """A run for a pull request, with the program; files below `root` are shown relative to it."""
    options = RenderOptions(root=root)
    found = summary(receipt, options)
    command = " ".join(receipt.header.run.argv_redacted) or "unknown program"
    torch = Code(options.text(receipt.environment.torch or "unknown"))
    program = Paragraph((Code(options.text(command, LINE_CHARS)), " · torch ", torch))
    return f"{render_overview(found, SIGNS[found.kind])}\n{render([program])}"
