"""Findings as cards of text: what happened, at which line, when and by whom, what it cost, what to
change, what is proved. Every format draws the same card."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.receipt.proofs import effect_of, missing_proof
from compilediag.receipt.schema.compiles import FindingRecord, PartRecord, Writer
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import leading_call
from compilediag.rules.variables import export_line, joined
from compilediag.views import lookups
from compilediag.views.document import LINE_BREAK, LINE_CHARS, Card, Code, ProvedChange, Table, Text
from compilediag.views.format import pair, seconds, steps
from compilediag.views.place import first_line, library_line, passed_at
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import change_of

VALUE_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""
MAX_FINDINGS = 30
"""Of a table."""
_SEVERITIES = ("error", "warning", "info")


def card_of(
    number: int,
    finding: FindingRecord,
    receipt: Receipt,
    options: RenderOptions,
    chars: int = VALUE_CHARS,
) -> Card:
    """Build the card of a finding, whose `number` is the one that `compilediag explain` takes; of a
    value at most `chars` are shown."""

    def text(value: str | None, limit: int = chars) -> str:
        return options.text(value, limit) if value else ""

    changed, fix = lookups.change(finding, receipt), finding.fix
    parts = dict.fromkeys(part_text(each, options) for each in finding.parts)
    written = [f"written by {writer(w, options)}" for w in lookups.guessed(finding, receipt)[:2]]
    calls = leading_call(finding) is not None
    return Card(
        number=number,
        rule=text(finding.rule, 8),
        severity=finding.severity if finding.severity in _SEVERITIES else "info",
        title=text(title_of(finding)),
        variable=text(finding.variable),
        before=None if changed is None else text(changed[0]) or '""',
        after=None if changed is None else text(changed[1]) or '""',
        others=len(lookups.changes(finding)) > 1,
        line=first_line(finding, options),
        other_lines=len(lookups.calls(finding, receipt)) - 1 if calls else 0,
        library=tuple(library_line(finding, options)),
        calls=calls,
        changed=changed_by(finding, receipt, options),
        passed=passed_at(finding, options),
        written=tuple(written),
        when=when(finding),
        first_step=min(finding.steps, default=None),
        cost=seconds(finding.cost_s) if finding.cost_s is not None else "",
        parts=tuple(filter(None, parts)),
        fix=text(fix.summary, 1000),
        caveat=text(fix.caveat, 1000),
        settings=tuple(
            text(export_line(each.setting, each.value), LINE_CHARS) for each in fix.candidates
        ),
        proof=_proof(finding, receipt, options),
        refused=tuple((text(each.change), text(each.reason)) for each in fix.refused),
    )


def _proof(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> ProvedChange | None:
    """Build the certificate: the figures of each point with their values before and after."""
    proof = finding.fix.proof
    if proof is None:
        return None
    points: list[tuple[str, bool | None, str, tuple[str, ...]]] = []
    for point in proof.points:
        figures = (
            f"{options.text(each.name, 60)} "
            f"{pair(each.before, each.after, each.unit, options.arrow)}"
            for each in point.figures
            if each.before is not None and each.after is not None
        )
        name = options.text(point.name.replace("_", " "), 60)
        shown = tuple(" ".join(text.split()) for text in figures)
        points.append((name, point.passed, options.text(point.sentence, 300), shown))
    return ProvedChange(
        options.text(proof.change, LINE_CHARS),
        options.text(effect_of(proof).replace("→", options.arrow)),
        proof.runs,
        tuple(points),
        missing_proof(finding, receipt),
    )


# --- as a row of a table, in a line --------------------------------------------------------------


def findings_table(receipt: Receipt, options: RenderOptions) -> Table | None:
    """Build the table of findings of at least `warning`, then the notes; None without any."""
    chosen = [*lookups.main_findings(receipt), *lookups.notes(receipt)]
    if not chosen:
        return None
    rows: list[tuple[Text, ...]] = []
    for number, finding in chosen[:MAX_FINDINGS]:
        card = card_of(number, finding, receipt, options)
        where: list[str] = [Code(card.line)] if card.line else []
        if card.calls and card.library:
            where += [LINE_BREAK, "at ", Code(card.library[0])]
        elif card.library:
            where += [LINE_BREAK, ", ".join(card.library)]
        where += [LINE_BREAK, Code(card.changed)] if card.changed else []
        where = where[where[:1] == [LINE_BREAK] :]
        fix = [f"{card.fix} ({card.caveat})" if card.caveat else card.fix]
        if card.proof is not None:
            fix += ["; proved: ", Code(card.proof.change)]
            fix += [f" ({card.proof.effect})"] if card.proof.effect else []
        elif card.settings:
            fix += ["; without an edit: ", Code(card.settings[0])]
        cells = (str(card.number), card.rule, card.what, tuple(where), card.when, card.cost)
        rows.append((*cells, tuple(fix)))
    left = len(chosen) - MAX_FINDINGS
    notes = (f"and {left} more in the receipt",) if left > 0 else ()
    head = ("#", "rule", "what", "where", "when", "cost", "fix")
    return Table(head, rows, right=("#", "cost"), notes=notes)


def finding_line(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """Format a finding in one line, for while the program runs."""
    card = card_of(0, finding, receipt, options)
    detail = change_of(card, options)
    what = f"{card.title}: {detail}" if detail else card.title
    parts = (what, card.changed, card.line, *card.written[:1], card.cost)
    return " · ".join(part for part in parts if part)


# --- the parts of a card -------------------------------------------------------------------------


def title_of(finding: FindingRecord) -> str:
    """Get what was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def part_text(part: PartRecord, options: RenderOptions) -> str:
    """Format the variable of another cause and its change: `two.active 'en' → 'de'`."""
    name = options.text(part.variable, VALUE_CHARS)
    return name and name + options.change_behind(" ", part.expected, part.actual, VALUE_CHARS)


def changed_by(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """`changed by arm, train.py:34, called from train.py:49 (seen)`; nothing where no change was
    seen."""
    changed = finding.changed_at
    if changed is None:
        return ""
    writers = lookups.writers(finding, receipt)
    known = any(w.evidence == "witnessed" and w.line == changed.line for w in writers)
    if changed.in_call and not known:
        line = options.place(changed.file, changed.line)
        return f"changed inside the compiled call, {line} (seen)"
    who = Writer(function=changed.function, file=changed.file, line=changed.line)
    text = f"changed by {writer(who, options)}"
    if len(changed.stack) > 1:
        caller = options.place(changed.stack[1].file, changed.stack[1].line)
        text += f", inside the call {caller}" if changed.in_call else f", called from {caller}"
    return f"{text} (seen)"


def writer(item: Writer, options: RenderOptions, *, whole: bool = False) -> str:
    """`setc, model.py:23`; the whole qualified name on request."""
    name = item.function if whole else item.function.rpartition("<locals>.")[2]
    place = options.place(item.file, item.line) if item.file else ""
    if name == "<module>" and place:
        return place
    name = options.text(name, 120)
    return f"{name}, {place}" if place else name


def when(finding: FindingRecord) -> str:
    """Format the steps, with how often where that is more than once a step."""
    sentence = steps(finding.steps)
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {sentence}" if sentence else f"{finding.count} times"
    return sentence


def joined_exports(findings: Iterable[FindingRecord]) -> list[str]:
    """Join the best settings of all findings, where several need the same variable: the second
    `export` of it would replace the first."""
    best = [candidate for finding in findings for candidate in finding.fix.candidates[:1]]
    variables = dict.fromkeys((candidate.setting, candidate.value) for candidate in best)
    if len({setting for setting, _ in variables}) == len(variables):
        return []
    return [export_line(*each) for each in joined(variables).items()]
