"""A receipt as Markdown for pull requests and step summaries.

All text that comes from the target stands in code spans, where GitHub renders no markup, mention
or link; a `|` is escaped because it would end a table's cell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compilediag.receipt.proofs import effect_of
from compilediag.receipt.user_line import is_foreign_record, leading_call
from compilediag.views import lookups
from compilediag.views.against_eager import against_eager_sentence, numbers_sentence
from compilediag.views.cold_and_warm import cold_and_warm_sentence
from compilediag.views.finding_rows import title_of, when
from compilediag.views.format import seconds
from compilediag.views.headline import (
    ending,
    headline,
    is_training_alone,
    reasons,
    trainer_figures,
)
from compilediag.views.lookups import main_findings, notes
from compilediag.views.place import no_call
from compilediag.views.settings import export_line
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

MAX_FINDINGS = 30
MAX_PARTS = 4
LINE_CHARS = 4096
"""Of a line to be copied, which is of no use when it is cut."""
_SIGN = {"bad": "❌", "good": "✅", "blind": "❔", "warn": "⚠️"}


def render_markdown(receipt: Receipt, *, root: str = "") -> str:
    """The verdict, the counts and every finding as GitHub Markdown."""
    options = RenderOptions(root=root)
    head = headline(receipt)
    lines = [f"### {_SIGN[head.kind]} {prose(head.sentence)}", "", " · ".join(head.counts), ""]
    if figures := trainer_figures(receipt):
        lines += [code(" · ".join(figures)), ""]
    if receipt.against_eager is not None:
        lines += [f"**Against eager:** {prose(against_eager_sentence(receipt.against_eager))}", ""]
        if (numbers := receipt.against_eager.numbers) is not None:
            lines += [f"**Numbers:** {prose(numbers_sentence(numbers))}", ""]
    if receipt.cold_and_warm is not None:
        lines += [f"**Second start:** {prose(cold_and_warm_sentence(receipt.cold_and_warm))}", ""]
    ended = ending(receipt)
    if ended is not None:
        lines += [f"⚠️ {code(ended)}", ""]
    if receipt.verdict == "blind":
        lines += [f"- why: {code(why)}" for why, _ in reasons(receipt)]
        meaning = () if is_training_alone(receipt) else ('A count of 0 here means "not seen".', "")
        lines += ["", *meaning]
    lines += _findings(receipt, options)
    run = receipt.header.run
    program = code(" ".join(run.argv_redacted) or "unknown program")
    lines.append(f"{program} · torch {code(receipt.environment.torch or 'unknown')}")
    return "\n".join(lines) + "\n"


def _findings(receipt: Receipt, options: RenderOptions) -> list[str]:
    chosen = [*main_findings(receipt), *notes(receipt)]
    if not chosen:
        return []
    lines = ["| # | rule | what | where | when | cost | fix |", "|--:|---|---|---|---|--:|---|"]
    lines += [_row(number, item, receipt, options) for number, item in chosen[:MAX_FINDINGS]]
    if len(chosen) > MAX_FINDINGS:
        lines += ["", f"and {len(chosen) - MAX_FINDINGS} more in the receipt"]
    return [*lines, ""]


def _row(number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    what = prose(title_of(finding))
    if finding.variable:
        what += f" {code(finding.variable)}"
    changed = lookups.change(finding, receipt)
    if changed is not None:
        what += f" {code(changed[0])} → {code(changed[1])}"
    named = dict.fromkeys(part.variable for part in finding.parts if part.variable)
    if named:
        what += f" with {', '.join(map(code, list(named)[:MAX_PARTS]))}"
        what += f" and {len(named) - MAX_PARTS} more" if len(named) > MAX_PARTS else ""
    where = "<br>".join(_places(finding, options))
    fix = prose(finding.fix.summary)
    if finding.fix.caveat:
        fix += f" ({prose(finding.fix.caveat)})"
    if finding.fix.proof is not None:
        effect = effect_of(finding.fix.proof)
        fix += f"; proved: {code(finding.fix.proof.change, limit=LINE_CHARS)}"
        fix += f" ({prose(effect)})" if effect else ""
    elif finding.fix.candidates:
        line = export_line(finding.fix.candidates[0])
        fix += f"; without an edit: {code(line, limit=LINE_CHARS)}"
    cost = seconds(finding.cost_s) if finding.cost_s is not None else ""
    cells = (str(number), prose(finding.rule), what, where, when(finding), cost, fix)
    return "| " + " | ".join(cells) + " |"


def _places(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """The program's own line first, then that of the library."""
    at, call = finding.location, leading_call(finding)
    here = code(options.place(at.file, at.line, 200)) if at is not None else ""
    if call is not None:
        text = f" {code(call.text)}" if call.text else ""
        return [f"{code(options.place(call.file, call.line, 200))}{text}", f"at {here}"]
    missing = [prose(no_call(finding, options))] if is_foreign_record(finding) else []
    return [here, *missing]


def code(text: str, *, cell: bool = True, limit: int = 300) -> str:
    """A text of the target as a code span that nothing in it can end, for a table's `cell`."""
    shown = RenderOptions().text(text, limit)
    shown = shown.replace("|", "\\|") if cell else shown
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if longest else ""
    return f"{fence}{blank}{shown or ' '}{blank}{fence}"


def prose(text: str) -> str:
    """A sentence of ours that may name things of the target: no markup, mention or link works."""
    shown = RenderOptions().text(text, 400)
    for sign in "\\`*_[]<>|#~":
        shown = shown.replace(sign, "\\" + sign)
    # An escaped @ still mentions people; an invisible break does not.
    return shown.replace("@", "@<!-- -->").replace("://", ":<!-- -->//")
