"""The view of one finding for `explain`: everything a receipt holds on it; and rules as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from compilediag.json_document import Document
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord, mask_indices
from compilediag.receipt.schema.evidence import BreakEvidence, GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record, flatten
from compilediag.receipt.user_line import find_leading_call
from compilediag.rules.environment_variables import format_export
from compilediag.views import lookups
from compilediag.views.compiles import render_missed_entries
from compilediag.views.findings import build_card
from compilediag.views.format import format_more, format_seconds, pluralize
from compilediag.views.graphs import MAX_FRAMES, list_served, render_restart
from compilediag.views.place import format_frame
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_card
from compilediag.views.text import measure_width, pad

_SHOWN_APART = ("excerpts", "fix.caveat", "fix.proof", "fix.refused", "fix.summary", "id", "next")
MAX_LINES = 12
MAX_LISTED = 8
"""Of one list in the evidence; `show --json` has them all."""
_LABEL_WIDTH = 12
MAX_COMPILES = 50
MAX_DETAILED = 8
"""Compiles whose cache entries are listed; `show --timeline` has them all."""
MAX_OTHERS = 10
MAX_ROWS = 6
"""Compiles on one screen."""


def render_finding(
    number: int,
    finding: FindingRecord,
    receipt: Receipt,
    options: RenderOptions,
    *,
    whole: bool = False,
) -> str:
    """Render one finding on one screen: what the verdict shows of it with all advice, each compile,
    whether a change is proved, and how an edit is checked; `whole`: every fact of the receipt."""
    card = build_card(number, finding, receipt, options)
    lines = [*render_card(card, options, whole=True), ""]
    causes = lookups.list_causes(finding, receipt)
    facts = _list_fields(finding, options) if whole else []
    said = BreakEvidence.parse(finding.evidence).explanation
    facts += [("torch says", options.clean(said, 600))] if said else []
    guards = [cause.guard for cause in causes if cause.guard]
    guard = GuardEvidence.parse(finding.evidence).guard
    guards = [*dict.fromkeys(guards or [guard or ""])][: None if whole else 1]
    facts += [("guard", options.clean(text, 2000 if whole else 160)) for text in guards if text]
    others = Counter(mask_indices(part.variable) for part in finding.parts if part.variable)
    named = (f"{name} ({count} values)" if count > 1 else name for name, count in others.items())
    facts += [("with it", options.clean(", ".join(named), 400))] if others else []
    facts += _list_proof(finding, options)[: None if whole else MAX_LISTED]
    target = lookups.format_target(receipt)
    line = f"compilediag certify -- {options.clean(target, 300)}"
    facts.append(("your edit", f"{line} (one execution less where this run had --record)"))
    facts.append(("its rule", f"compilediag explain {options.clean(finding.rule, 8)}"))
    width = max(_LABEL_WIDTH, *(measure_width(label) + 2 for label, _ in facts))
    compiles = lookups.list_compiles(finding, receipt)
    if compiles:
        verb = "it caused" if causes else "it is about"
        lines.append(f"  {pluralize(len(compiles), 'compile')} {verb}:")
    shown = MAX_COMPILES if whole else MAX_ROWS
    for at, event in enumerate(compiles[:shown]):
        step = "step not seen" if event.step is None else f"step {event.step}"
        cells = (options.clean(event.compile_id, 40), step, format_seconds(event.seconds))
        columns = "  ".join(map(pad, cells, (8, 13, 12)))
        own = next((c for c in event.causes if lookups.matches_cause(finding, c)), None)
        changed = own and options.format_change_after("  ", own.expected, own.actual, 60)
        line = f"    {columns}{format_frame(event, options)}{changed or ''}"
        lines.append(options.truncate(line, options.width))
        lines += render_restart(event, options, " " * 6)
        if whole and at < MAX_DETAILED:
            lines += render_missed_entries(event, options, " " * 6)
    more = ": compilediag show --timeline" if whole else f": compilediag explain {number} --all"
    lines += format_more(len(compiles) - shown, more, "    ")
    if causes:
        others = _render_other_causes(finding, compiles, options, MAX_OTHERS if whole else 3)
        lines += others
    served = list_served(receipt, options, {event.frame for event in compiles})
    listed = served if whole else served[:MAX_FRAMES]
    lines += [line for text in listed for line in options.wrap(text, "  ", "    ")]
    lines += format_more(len(served) - len(listed), f": compilediag explain {number} --all")
    lines += [""] if compiles else []
    for label, value in facts:
        lines += options.wrap(value, f"  {pad(label, width)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


_Facts = list[tuple[str, str]]
"""Labels and texts."""


def _list_fields(finding: FindingRecord, options: RenderOptions) -> _Facts:
    """List what else the receipt holds on a finding, by the names of its fields: a line for each
    element of a list, at most `MAX_LISTED`."""
    facts: _Facts = []
    for path, value in flatten(finding):
        if value in (None, (), [], "", False) or path.startswith(_SHOWN_APART):
            continue
        label = options.clean(path.removeprefix("evidence.").replace("_", " "), 30)
        elements = cast("Sequence[object]", value if isinstance(value, (list, tuple)) else (value,))
        for element in elements[:MAX_LISTED]:
            # A text of torch keeps its lines (a user stack); its padding is no information.
            for line in _format_element(element).splitlines()[:MAX_LINES]:
                facts.append((label, options.clean(" ".join(line.split()), 1000)))
                label = ""
        if len(elements) > MAX_LISTED:
            facts.append(("", f"+{len(elements) - MAX_LISTED} more"))
    return facts


def _format_element(element: object) -> str:
    if isinstance(element, float):
        return f"{element:.3g}"
    if isinstance(element, (Record, dict)):
        members = flatten(cast("Record", element))
        return ", ".join(f"{name} {member}" for name, member in members if member not in (None, ()))
    return str(element)


def _list_proof(finding: FindingRecord, options: RenderOptions) -> _Facts:
    """List the change that is proved, and each point of its certificate, else why there is none;
    changes that were refused."""
    fix, proof = finding.fix, finding.fix.proof
    parts: _Facts = []
    if proof is None:
        tried = "no change that was tried holds" if fix.refused else "compilediag fix tries changes"
        parts.append(("verified", f"no: {tried}"))
    else:
        parts.append(("proved", f"{proof.change} ({proof.risk})"))
        for point in proof.points:
            figures = [
                f"{one.name} {one.before:.4g} → {one.after:.4g}{one.unit and ' '}{one.unit}"
                for one in point.figures
                if one.before is not None and one.after is not None
            ]
            texts = [point.sentence, *(figure for figure in figures if figure != point.sentence)]
            parts.append((point.name, " · ".join(texts)))
    parts += [("refused", f"{refusal.change} ({refusal.reason})") for refusal in fix.refused]
    return [(label, options.clean(value, 4096)) for label, value in parts if value]


def _render_other_causes(
    finding: FindingRecord, compiles: list[CompileEvent], options: RenderOptions, shown: int
) -> list[str]:
    """Render guards of other causes, false at the same compiles: one fix may not suffice."""
    others: list[str] = []
    for cause in (cause for event in compiles for cause in event.causes):
        if not lookups.matches_cause(finding, cause):
            where = f"  {options.format_place(cause.file, cause.line)}" if cause.file else ""
            family = options.clean(cause.family.replace("_", " "), 60)
            named = f"{family}: {options.clean(cause.variable, 120)}{where}"
            others.append(f"{options.clean(cause.rule or '', 8)} {named}".strip())
    distinct = list(dict.fromkeys(others))
    if not distinct:
        return []
    warning = "also false at those compiles (this fix alone may not prevent them all):"
    lines = ["", *options.wrap(warning, "  ")]
    for text in distinct[:shown]:
        lines += options.wrap(text, "    ", "      ")
    return lines + format_more(len(distinct) - shown, indent="    ")


# --- for programs ----------------------------------------------------------------------------


class RuleDocument(Document, frozen=True, kw_only=True):
    """One rule."""

    code: str
    slug: str
    sentence: str
    severity: str
    page: str | None
    """Its page as Markdown: what it means, bad and good code, the fix."""


class RulesDocument(Document, frozen=True, kw_only=True):
    """The register."""

    rules: tuple[RuleDocument, ...]


class FindingDocument(Document, frozen=True, kw_only=True):
    """One finding, with what belongs to it elsewhere in the receipt."""

    receipt_id: str
    number: int
    file: str | None
    """Of the line of the program's own to look at first; of the finding's place where none is."""
    line: int | None
    before: str | None
    """What the guard expected."""
    after: str | None
    """What it met."""
    finding: FindingRecord
    compiles: tuple[CompileEvent, ...]
    """At most fifty that it explains."""
    environment: tuple[str, ...]
    """Lines for a shell that may remove it without an edit."""
    rule: RuleDocument
    next: tuple[str, ...]
    """Commands that lead on."""


def build_finding_document(
    number: int, receipt: Receipt, rule: RuleDocument, suffix: str
) -> FindingDocument:
    """Build the JSON document of finding `number`, from 1, with its rule; `suffix` is what commands
    need to find this receipt again."""
    finding = receipt.findings[number - 1]
    at = find_leading_call(finding) or finding.location
    values = lookups.find_change(finding, receipt)
    following = [finding.next] if finding.next and not suffix else []
    following += [
        f"compilediag explain {number}{suffix} --repro repro_{number}.py",
        f"compilediag show --timeline{suffix}",
    ]
    return FindingDocument(
        schema="compilediag.finding",
        receipt_id=receipt.receipt_id,
        number=number,
        file=None if at is None else at.file,
        line=None if at is None else at.line,
        before=None if values is None else values[0],
        after=None if values is None else values[1],
        finding=finding,
        compiles=tuple(lookups.list_compiles(finding, receipt)[:MAX_COMPILES]),
        environment=tuple(
            format_export(candidate.setting, candidate.value)
            for candidate in finding.fix.candidates
        ),
        rule=rule,
        next=tuple(following),
    )
