"""Summaries of a run, for a notebook's cell or as Markdown: for a pull request, and for an issue
with what maintainers ask for, which GitHub folds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape, unescape

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import (
    LINE_BREAK,
    LINE_CHARS,
    Block,
    Code,
    Listing,
    Overview,
    Paragraph,
    Section,
    Table,
    Text,
)
from compilediag.views.finding import render_finding
from compilediag.views.findings import build_card, build_findings_table
from compilediag.views.format import pluralize
from compilediag.views.headline import (
    build_headline,
    describe_ending,
    is_training_alone,
    list_blind_reasons,
    list_trainer_figures,
)
from compilediag.views.markdown import (
    SIGNS,
    escape_prose,
    render,
    render_overview,
    render_table,
    render_text,
    wrap_in_fence,
)
from compilediag.views.measured import list_measured_sentences
from compilediag.views.next_command import choose_command
from compilediag.views.style import RenderOptions

MAX_CHARS = 55_000
"""GitHub takes 65,536 of an issue, and the reader writes something of their own."""

MAX_BLOCK_CHARS = 12_000
"""Of one folded block: the first finding leaves room for others."""

WIDTH = 100


def summarize(receipt: Receipt, options: RenderOptions, *, findings: bool = True) -> Overview:
    """Build the overview: the verdict with its counts, what was measured, how the run ended, why it
    is blind; then the `findings` as a table."""
    head, ended = build_headline(receipt), describe_ending(receipt)
    blocks: list[Block] = [Paragraph(" · ".join(head.counts))]
    if figures := list_trainer_figures(receipt):
        blocks.append(Paragraph((Code(options.clean(" · ".join(figures), 300)),)))
    blocks += [
        Paragraph(options.clean(sentence), label=name)
        for name, sentence in list_measured_sentences(receipt)
    ]
    if ended is not None:
        blocks.append(Paragraph(("⚠️ ", Code(options.clean(ended, 300)))))
    if receipt.verdict == "blind":
        whys = [("why: ", Code(options.clean(why, 300))) for why, _ in list_blind_reasons(receipt)]
        blocks.append(Listing("", whys))
        if not is_training_alone(receipt):
            blocks.append(Paragraph('A count of 0 here means "not seen".'))
    if findings:
        table = build_findings_table(receipt, options)
        blocks += [] if table is None else [table]
    sentence = options.clean(head.sentence)
    return Overview("", head.kind, sentence, (Section("summary", "Summary", "Summary", blocks),))


def render_markdown(receipt: Receipt, *, root: str = "") -> str:
    """Render a run for a pull request, with the program; files below `root` relative to it."""
    options = RenderOptions(root=root)
    overview = summarize(receipt, options)
    command = " ".join(receipt.header.run.argv_redacted) or "unknown program"
    torch = Code(options.clean(receipt.environment.torch or "unknown"))
    program = Paragraph((Code(options.clean(command, LINE_CHARS)), " · torch ", torch))
    return f"{render_overview(overview, SIGNS[overview.kind])}\n{render([program])}"


def render_issue(
    receipt: Receipt, numbers: Sequence[int], programs: Mapping[int, str], *, root: str = ""
) -> str:
    """Render versions, command, counts, and findings with all that the receipt holds on them: those
    of `numbers`, as `explain N` counts them, each with the small program that can be made of it.
    Paths below `root` are shown relative to it."""
    options = RenderOptions(width=WIDTH, root=root)
    head = render_overview(summarize(receipt, options, findings=False))
    rows = [(name, Code(text)) for name, text in list_environment(receipt) if text]
    environment = Table(("", ""), rows)
    text = "\n".join([head, *render_table(environment)]) + "\n"
    left_out = 0
    for number in numbers:
        finding = receipt.findings[number - 1]
        card = build_card(number, finding, receipt, options)
        lines = ["", f"### {number}. {escape_prose(finding.rule)} {render_text(card.what)}", ""]
        all_of_it = render_finding(number, finding, receipt, options, whole=True)
        lines += _fold("All that was recorded on it", all_of_it, "text")
        if number in programs:
            lines += _fold("A small program with the same cause", programs[number], "python")
        part = "\n".join(lines) + "\n"
        if len(text) + len(part) > MAX_CHARS:
            left_out += 1
        else:
            text += part
    if left_out:
        text += f"\n{left_out} more are left out: `compilediag explain N --issue` has finding N.\n"
    return text


def list_environment(receipt: Receipt) -> list[tuple[str, str | None]]:
    """List the command line, and the versions and settings that it ran under."""
    machine = receipt.environment
    gpus = [str(gpu) for gpu in machine.gpus or ()]
    gpus += [f"CUDA {machine.cuda}"] if machine.cuda else []
    return [
        ("command", " ".join(receipt.header.run.argv_redacted)),
        ("torch", " ".join(filter(None, (machine.torch, machine.torch_git)))),
        ("Python, system", ", ".join(filter(None, (machine.python, machine.os)))),
        ("GPU", ", ".join(gpus) or "none"),
        ("Triton", machine.triton),
        ("settings", " ".join(f"{name}={value}" for name, value in machine.compile_flags.items())),
        ("compilediag", receipt.header.producer.version),
    ]


def _fold(title: str, text: str, language: str) -> list[str]:
    """Fold a text into a block that is closed at first."""
    if len(text) > MAX_BLOCK_CHARS:
        text = text[:MAX_BLOCK_CHARS].rpartition("\n")[0] + "\n… cut; the receipt has the rest\n"
    title = f"<details><summary>{title}</summary>"
    return [title, "", *wrap_in_fence(text, language), "", "</details>"]


# --- in a notebook -------------------------------------------------------------------------------

_CELL_FILE = re.compile(r"&lt;ipython-input-\w+-\w+&gt;|[^\s<>]*/ipykernel_\d+/\d+\.py")
"""Files of cells, in IPython and in its kernel, as they stand in HTML."""
_CELL = ' style="text-align:left;vertical-align:top;white-space:normal"'


def render_notebook(
    receipt: Receipt,
    *,
    root: str = "",
    find_cell: Callable[[str], str | None] = lambda file: None,
    calls: int = 0,
) -> str:
    """Render an HTML fragment; files below `root` are shown relative to it. `find_cell` gives the
    name of a cell by its file, None for a file that is no cell's; `calls` are of compiled
    callables, whether or not they compiled."""
    options = RenderOptions(root=root)
    # All that is wrong is that nothing was compiled: a cell that is run again.
    nothing = not receipt.compile.frames and receipt.status == "complete"
    if calls and nothing and {finding.rule for finding in receipt.findings} <= {"CD901"}:
        warm = f"nothing compiled in {pluralize(calls, 'call')} of compiled functions"
        sentence = f"✓ {warm}: all was compiled before"
        return f'<div class="compilediag"><p><strong>{sentence}</strong></p></div>'
    overview = summarize(receipt, options)
    head = f"<p><strong>{options.get_sign(overview.kind)} {escape(overview.sentence)}</strong></p>"
    body = head + "".join(map(_render_block, overview.blocks))
    if receipt.verdict != "clean":
        command = options.clean(choose_command(receipt, " receipt.json"), 400)
        saved = " (where --save receipt.json, or .save() of the result, wrote it)"
        saved = saved if command.endswith(" receipt.json") else ""
        body += f"<p>next: <code>compilediag {escape(command)}</code>{saved}</p>"
    shown = _CELL_FILE.sub(lambda match: find_cell(unescape(match[0])) or match[0], body)
    return f'<div class="compilediag">{shown}</div>'


def _render_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        label = f"<strong>{escape(block.label)}:</strong> " if block.label else ""
        return f"<p>{label}{_render_text(block.text)}</p>"
    if isinstance(block, Listing):
        return f"<ul>{''.join(f'<li>{_render_text(text)}</li>' for text in block.items)}</ul>"
    if isinstance(block, Table):
        head = "".join(f'<th scope="col"{_CELL}>{escape(name)}</th>' for name in block.head)
        rows = (
            "".join(f"<td{_CELL}>{_render_text(cell)}</td>" for cell in row) for row in block.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in block.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
    return f"<pre>{escape(LINE_BREAK.join(block.lines))}</pre>"


def _render_text(text: Text) -> str:
    shown = ""
    for part in (text,) if isinstance(text, str) else text:
        safe = "<br>" if part == LINE_BREAK else escape(part)
        shown += f"<code>{safe}</code>" if isinstance(part, Code) else safe
    return shown
