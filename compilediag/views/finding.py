"""The view of one finding for `explain`: everything a receipt holds on it; and rules as JSON."""

from __future__ import annotations

from typing import cast

from compilediag.json_document import Document
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import find_leading_call, is_foreign_record
from compilediag.rules.environment_variables import format_export
from compilediag.views import lookups
from compilediag.views.compiles import render_missed_entries
from compilediag.views.findings import (
    build_card,
    describe_change,
    format_part,
    name_writer,
)
from compilediag.views.format import format_more, format_seconds, pluralize
from compilediag.views.place import describe_no_call, format_call, format_frame, format_place
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_card
from compilediag.views.text import measure_width, pad

_SHOWN_APART = frozenset(
    ("compile_ids", "expected", "actual", "values", "writers", "guard", "source", "roles")
)
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

_CONFIDENCE = {
    "exact": "exact: observed inside torch while the program ran",
    "text": "from the text of torch's log; what it stands for was not seen",
    "static": "from the source code alone; no run has confirmed it",
}


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
    facts = _list_facts(finding, receipt, options) if whole else []
    guards = [cause.guard for cause in causes if cause.guard]
    guard = GuardEvidence.parse(finding.evidence).guard
    guards = [*dict.fromkeys(guards or [guard or ""])][: None if whole else 1]
    facts += [("guard", options.clean(text, 2000 if whole else 160)) for text in guards if text]
    facts += _list_proof(finding, options)[: None if whole else MAX_LISTED]
    target = lookups.format_target(receipt) or "TARGET"
    facts.append(("your edit", f"compilediag certify -- {options.clean(target, 300)}"))
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
        if whole and at < MAX_DETAILED:
            lines += render_missed_entries(event, options, " " * 6)
    more = ": compilediag show --timeline" if whole else f": compilediag explain {number} --all"
    lines += format_more(len(compiles) - shown, more, "    ")
    if causes:
        others = _render_other_causes(finding, compiles, options, MAX_OTHERS if whole else 3)
        lines += others
    lines += [""] if compiles else []
    for label, value in facts:
        lines += options.wrap(value, f"  {pad(label, width)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


_Facts = list[tuple[str, str]]
"""Labels and texts."""


def _list_facts(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> _Facts:
    """List what else the receipt holds on a finding."""
    owner = {"user": "your code", "third_party": "a library", "torch": "torch itself"}
    facts: _Facts = [("variable", options.clean(finding.variable))] if finding.variable else []
    facts += [("then", options.format_change(*pair)) for pair in lookups.list_changes(finding)[1:]]
    causes = lookups.list_causes(finding, receipt)
    sources = dict.fromkeys(cause.source for cause in causes if cause.source)
    facts += [("source", options.clean(text)) for text in sources]
    facts += _list_places(finding, receipt, options)
    facts += _list_changes(finding, receipt, options)
    for part in finding.parts:
        at = part.location
        function = f" in {options.clean(at.function, 60)}" if at.function else ""
        where = f"{options.dot}{options.format_place(at.file, at.line)}{function}"
        facts.append(("with", f"{options.clean(part.rule, 8)} {format_part(part, options)}{where}"))
    said = {
        "owner": owner.get(finding.ownership or "", "could not be determined"),
        "confidence": _CONFIDENCE.get(finding.confidence, finding.confidence),
        "seen as": ", ".join(finding.also),
    }
    facts += [(label, options.clean(text)) for label, text in said.items() if text]
    for candidate in finding.fix.candidates:
        line = format_export(candidate.setting, candidate.value)
        facts.append(("no edit", options.clean(f"{line} ({candidate.risk})", 4096)))
    for key, value in finding.evidence.items():
        if key not in _SHOWN_APART:
            facts += _list_evidence(key, value, options)
    return facts


def _list_places(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> _Facts:
    """List the program's own lines and what they pass, and the place itself: first the line to look
    at, which is a call where the place is in a library."""
    location, calls = finding.location, lookups.list_calls(finding, receipt)
    place, above = _Facts(), _Facts()
    if location is not None:
        place.append(("where", format_place(finding, location, options)))
    elif not calls:
        place.append(("where", "could not be determined"))
    for call in calls[:MAX_LISTED]:
        above.append(("called at", format_call(call, options)))
        for arg in call.arguments:
            shown = f"{options.clean(arg.parameter, 60)} = {options.clean(arg.expression)}"
            above.append(("passes", shown))
    if len(calls) > MAX_LISTED:
        above.append(("called at", f"+{len(calls) - MAX_LISTED} more lines"))
    if not calls and is_foreign_record(finding):
        above.append(("called at", describe_no_call(finding, options)))
    return [*above, *place] if find_leading_call(finding) is not None else [*place, *above]


def _list_changes(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> _Facts:
    """List the change that was seen, with all lines in progress; who else writes the value; the
    line that changed all values of the finding (their common cause), and whether it was seen."""
    parts: _Facts = []
    changed, cause = finding.changed_at, finding.common_cause
    if changed is not None:
        values = options.format_change(changed.old, changed.new)
        sentence = describe_change(finding, receipt, options).removeprefix("changed ")
        parts.append(("changed", f"{sentence}: {values}"))
        for place in changed.stack[1:]:
            at = options.format_place(place.file, place.line)
            parts.append(("called from", f"{at} in {options.clean(place.function)}"))
    for place in lookups.list_guessed_writers(finding, receipt):
        parts.append(("written by", name_writer(place, options, whole=True)))
    if cause is not None:
        words = (options.format_place(cause.file, cause.line), options.clean(cause.text, 200))
        likely = "" if cause.evidence == "witnessed" else " (probably: by the names it calls)"
        parts.append(("changed at", options.dot.join(filter(None, words)) + likely))
    return parts


def _list_evidence(key: str, value: object, options: RenderOptions) -> _Facts:
    """List what a rule stored beside the facts above: a line for each element of a list."""
    if value in (None, [], (), {}, "") or (key == "processes" and value == [0]):
        return []
    label = options.clean(key.replace("_", " "), 30)
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    parts: _Facts = []
    for element in values[:MAX_LISTED]:
        # A text of torch keeps its lines (a user stack); its padding is no information.
        text = f"{element:.3g}" if isinstance(element, float) else str(element)
        for index, line in enumerate(text.splitlines()[:MAX_LINES]):
            parts.append(("" if index else label, options.clean(" ".join(line.split()), 1000)))
    if len(values) > MAX_LISTED:
        parts.append((label, f"+{len(values) - MAX_LISTED} more"))
    return parts


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
    following += [f"compilediag repro {number}{suffix}", f"compilediag show --timeline{suffix}"]
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
