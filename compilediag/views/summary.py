"""A run in a few blocks, for a notebook's cell or as Markdown: for a pull request, and for an issue
with what maintainers ask for, which GitHub folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import (
    LINE_CHARS,
    Block,
    Code,
    Listing,
    Overview,
    Paragraph,
    Section,
    Table,
)
from compilediag.views.finding import render_finding
from compilediag.views.findings import card_of, findings_table
from compilediag.views.headline import (
    ending,
    headline,
    is_training_alone,
    reasons,
    trainer_figures,
)
from compilediag.views.markdown import SIGNS, fenced, prose, render, render_overview, table, words
from compilediag.views.measured import measured_sentences
from compilediag.views.style import RenderOptions

MAX_CHARS = 55_000
"""GitHub takes 65,536 of an issue, and the reader writes something of their own."""

MAX_BLOCK_CHARS = 12_000
"""Of one folded block: the first finding leaves room for others."""

WIDTH = 100


def summarize(receipt: Receipt, options: RenderOptions, *, findings: bool = True) -> Overview:
    """The verdict with its counts, what was measured, how the run ended, why it is blind; then the
    `findings` as a table."""
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
        found = findings_table(receipt, options)
        blocks += [] if found is None else [found]
    sentence = options.text(head.sentence)
    return Overview("", head.kind, sentence, (Section("summary", "Summary", "Summary", blocks),))


def render_markdown(receipt: Receipt, *, root: str = "") -> str:
    """A run for a pull request, with the program; files below `root` are shown relative to it."""
    options = RenderOptions(root=root)
    found = summarize(receipt, options)
    command = " ".join(receipt.header.run.argv_redacted) or "unknown program"
    torch = Code(options.text(receipt.environment.torch or "unknown"))
    program = Paragraph((Code(options.text(command, LINE_CHARS)), " · torch ", torch))
    return f"{render_overview(found, SIGNS[found.kind])}\n{render([program])}"


def render_issue(
    receipt: Receipt, numbers: Sequence[int], programs: Mapping[int, str], *, root: str = ""
) -> str:
    """Versions, command, counts, and findings with all that the receipt holds on them: those of
    `numbers`, as `explain N` counts them, each with the small program that can be made of it. Paths
    below `root` are shown relative to it."""
    options = RenderOptions(width=WIDTH, root=root)
    head = render_overview(summarize(receipt, options, findings=False))
    text = "\n".join([head, *table(_environment(receipt))]) + "\n"
    left_out = 0
    for number in numbers:
        finding = receipt.findings[number - 1]
        card = replace(card_of(number, finding, receipt, options), parts=())
        lines = ["", f"### {number}. {prose(finding.rule)} {words(card.what)}", ""]
        all_of_it = render_finding(number, finding, receipt, options)
        lines += _folded("All that was recorded on it", all_of_it, "text")
        if number in programs:
            lines += _folded("A small program with the same cause", programs[number], "python")
        part = "\n".join(lines) + "\n"
        if len(text) + len(part) > MAX_CHARS:
            left_out += 1
        else:
            text += part
    if left_out:
        text += f"\n{left_out} more are left out: `compilediag show --issue N` has finding N.\n"
    return text


def _environment(receipt: Receipt) -> Table:
    found = receipt.environment
    gpus = [str(each) for each in found.gpus or ()]
    gpus += [f"CUDA {found.cuda}"] if found.cuda else []
    rows = (
        ("command", " ".join(receipt.header.run.argv_redacted)),
        ("torch", " ".join(filter(None, (found.torch, found.torch_git)))),
        ("Python, system", ", ".join(filter(None, (found.python, found.os)))),
        ("GPU", ", ".join(gpus) or "none"),
        ("Triton", found.triton),
        ("settings", " ".join(f"{name}={value}" for name, value in found.compile_flags.items())),
        ("compilediag", receipt.header.producer.version),
    )
    return Table(("", ""), [(name, Code(text)) for name, text in rows if text])


def _folded(title: str, text: str, language: str) -> list[str]:
    """A block that is closed at first."""
    if len(text) > MAX_BLOCK_CHARS:
        text = text[:MAX_BLOCK_CHARS].rpartition("\n")[0] + "\n… cut; the receipt has the rest\n"
    title = f"<details><summary>{title}</summary>"
    return [title, "", *fenced(text, language), "", "</details>"]
