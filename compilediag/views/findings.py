"""Findings as cards of text: what happened, at which line, when and by whom, what it cost, what to
change, what is proved. Every format draws the same card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.receipt.finding_keys import normalize_file
from compilediag.receipt.proofs import describe_effect, explain_missing_proof
from compilediag.receipt.schema.compiles import SETTING, FindingRecord, PartRecord, Writer
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import find_leading_call, is_foreign
from compilediag.rules.environment_variables import format_export, join_values
from compilediag.views import lookups
from compilediag.views.document import (
    LINE_BREAK,
    LINE_CHARS,
    Card,
    Code,
    Excerpt,
    ProvedChange,
    SourceLine,
    Table,
    Text,
)
from compilediag.views.format import format_pair, format_seconds, format_steps, pluralize
from compilediag.views.place import format_first_line, format_line, list_library_parts
from compilediag.views.sentence import describe_finding, format_history
from compilediag.views.style import RenderOptions

VALUE_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""
MAX_FINDINGS = 30
"""Of a table."""
_SEVERITIES = ("error", "warning", "info")


def build_card(
    number: int,
    finding: FindingRecord,
    receipt: Receipt,
    options: RenderOptions,
    chars: int = VALUE_CHARS,
) -> Card:
    """Build the card of a finding, whose `number` is the one that `compilediag explain` takes; of a
    value at most `chars` are shown."""

    def clean(value: str | None, limit: int = chars) -> str:
        return options.clean(value, limit) if value else ""

    changed, fix = lookups.find_change(finding, receipt), finding.fix
    parts = dict.fromkeys(format_part(part, options) for part in finding.parts)
    written = [
        f"written by {name_writer(w, options)}"
        for w in lookups.list_guessed_writers(finding, receipt)[:2]
    ]
    calls = find_leading_call(finding) is not None
    excerpt, change = _build_excerpts(finding, options)
    settings = [format_export(its.setting, its.value) for its in fix.candidates]
    return Card(
        number=number,
        rule=clean(finding.rule, 8),
        severity=finding.severity if finding.severity in _SEVERITIES else "info",
        variable=clean(finding.variable),
        before=None if changed is None else clean(changed[0]) or '""',
        after=None if changed is None else clean(changed[1]) or '""',
        line=format_first_line(finding, options),
        other_lines=tuple(options.format_place(*at) for at in _list_others(finding, receipt)),
        library=tuple(list_library_parts(finding, options)),
        calls=calls,
        changed=describe_change(finding, receipt, options),
        written=tuple(written),
        when=format_when(finding, receipt, options),
        first_step=min(finding.steps, default=None),
        cost=format_seconds(finding.cost_s) if finding.cost_s is not None else "",
        parts=tuple(filter(None, parts)),
        fix=clean(fix.summary, 1000),
        label=fix.label,
        caveat=clean(fix.caveat, 1000),
        settings=tuple(
            clean(line, LINE_CHARS)
            for line in settings[fix.recipe == SETTING :]
            if all(line != refusal.change for refusal in fix.refused)
            and (fix.recipe is not None or not finding.rule.startswith("CD2"))  # a try may raise
        ),
        proof=_build_proof(finding, receipt, options),
        refused=tuple((clean(refusal.change), clean(refusal.reason)) for refusal in fix.refused),
        sentence=describe_finding(finding, receipt, options),
        key=clean(finding.key or finding.rule, 60),
        history=format_history(lookups.list_history(finding, receipt), options),
        excerpt=excerpt,
        change=change,
        relation=_describe_relation(finding, receipt),
    )


def _list_others(finding: FindingRecord, receipt: Receipt) -> Sequence[tuple[str, int | None]]:
    """List the program's lines beside the first: those that break in one line of torch; else those
    of other calls, where the first is that of a call."""
    led = [(call.file, call.line) for call in lookups.list_calls(finding, receipt)]
    shown = [(record.file, record.line) for record in finding.excerpts[:1]]
    is_called = find_leading_call(finding) is not None or bool(led and shown == led[:1])
    return BreakEvidence.parse(finding.evidence).other_lines or (led[1:] if is_called else ())


def _describe_relation(finding: FindingRecord, receipt: Receipt) -> str:
    """Describe which findings follow from this one, or which one it follows from."""
    if finding.follows is not None:
        number = finding.follows.removeprefix("F")
        return f"follows from {number}: compiled apart only because of that graph break"
    broke = finding.rule.startswith("CD2")  # not asked for each of thousands of others
    followers = [its for its in receipt.findings if its.follows == finding.id] if broke else []
    seconds, count = sum(its.cost_s or 0.0 for its in followers), len(followers)
    follow = f"{pluralize(count, 'finding')} follow{'' if count > 1 else 's'} from it"
    cost = f" ({format_seconds(seconds)})" if seconds else ""
    where = "of code that this break makes torch compile apart (show --all)"
    return f"{follow}{cost}, {where}" if count else ""


def _build_excerpts(finding: FindingRecord, options: RenderOptions) -> list[Excerpt]:
    """Build the lines around the one to look at, and around the one that changes the value."""
    made: list[Excerpt] = []
    for record in finding.excerpts[:2]:
        lines = [
            SourceLine(n, options.clean(text, LINE_CHARS), n == record.line)
            for n, text in enumerate(record.lines, record.first)
        ]
        place = format_line(record.file, record.line, record.function, options)
        made.append(Excerpt(place, tuple(lines)))
    return [*made, Excerpt(), Excerpt()][:2]


def _build_proof(
    finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> ProvedChange | None:
    """Build the certificate: the figures of each point with their values before and after."""
    proof = finding.fix.proof
    if proof is None:
        return None
    points: list[tuple[str, bool | None, str, tuple[str, ...]]] = []
    for point in proof.points:
        figures = (
            f"{options.clean(figure.name, 60)} "
            f"{format_pair(figure.before, figure.after, figure.unit, options.arrow)}"
            for figure in point.figures
            if figure.before is not None and figure.after is not None
        )
        name = options.clean(point.name.replace("_", " "), 60)
        shown = tuple(" ".join(text.split()) for text in figures)
        points.append((name, point.passed, options.clean(point.sentence, 300), shown))
    return ProvedChange(
        options.clean(proof.change, LINE_CHARS),
        options.clean(describe_effect(proof).replace("→", options.arrow)),
        proof.runs,
        tuple(points),
        explain_missing_proof(finding, receipt),
    )


# --- as a row of a table, in a line --------------------------------------------------------------


def build_findings_table(receipt: Receipt, options: RenderOptions) -> Table | None:
    """Build the table of findings of at least `warning`, then the notes; None without any."""
    main, followers = lookups.list_main_findings(receipt), lookups.list_followers(receipt)
    chosen = [*main, *followers, *lookups.list_notes(receipt)]
    if not chosen:
        return None
    rows: list[tuple[Text, ...]] = []
    for number, finding in chosen[:MAX_FINDINGS]:
        card = build_card(number, finding, receipt, options)
        where: list[str] = [Code(card.line)] if card.line else []
        if card.calls and card.library:
            where += [LINE_BREAK, "at ", Code(card.library[0])]
        elif card.library:
            where += [LINE_BREAK, ", ".join(card.library)]
        where += [LINE_BREAK, Code(card.changed)] if card.changed else []
        where += [LINE_BREAK, card.relation] if card.relation else []
        where = where[where[:1] == [LINE_BREAK] :]
        fix = [f"{card.label}: {card.fix}"]
        fix += [f" ({card.caveat})"] if card.caveat else []
        if card.proof is not None:
            fix += ["; proved: ", Code(card.proof.change)]
            fix += [f" ({card.proof.effect})"] if card.proof.effect else []
        elif card.settings:
            fix += ["; without an edit: ", Code(card.settings[0])]
        cells = (str(card.number), card.rule, card.what, tuple(where), card.when, card.cost)
        rows.append((*cells, tuple(fix)))
    left = len(chosen) - MAX_FINDINGS
    notes = (f"and {left} more in the receipt",) if left > 0 else ()
    head = ("#", "rule", "what", "where", "when", "cost", "what to do")
    return Table(head, rows, right=("#", "cost"), notes=notes)


def format_finding(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """Format a finding in one line, for while the program runs."""
    card = build_card(0, finding, receipt, options)
    what = f"{card.sentence}: {card.history}" if card.history else card.sentence
    parts = (what, card.changed, card.line, *card.written[:1], card.cost)
    return " · ".join(part for part in parts if part)


# --- the parts of a card -------------------------------------------------------------------------


def format_part(part: PartRecord, options: RenderOptions) -> str:
    """Format the variable of another cause and its change: `two.active 'en' → 'de'`."""
    name = options.clean(part.variable, VALUE_CHARS)
    return name and name + options.format_change_after(" ", part.expected, part.actual, VALUE_CHARS)


def describe_change(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """`changed by arm, train.py:34, called from train.py:49 (seen)`; nothing if none was seen."""
    changed = finding.changed_at
    if changed is None:
        return ""
    writers = lookups.list_writers(finding, receipt)
    known = any(w.evidence == "witnessed" and w.line == changed.line for w in writers)
    if changed.in_call and not known:
        line = options.format_place(changed.file, changed.line)
        return f"changed inside the compiled call, {line} (seen)"
    who = Writer(function=changed.function, file=changed.file, line=changed.line)
    text = f"changed by {name_writer(who, options)}"
    if len(changed.stack) > 1:
        caller = options.format_place(changed.stack[1].file, changed.stack[1].line)
        text += f", inside the call {caller}" if changed.in_call else f", called from {caller}"
    return f"{text} (seen)"


def name_writer(writer: Writer, options: RenderOptions) -> str:
    """`setc, model.py:23`."""
    name = writer.function.rpartition("<locals>.")[2]
    file = normalize_file(writer.file) if is_foreign(None, writer.file) else writer.file
    place = options.format_place(file, writer.line) if writer.file else ""
    if name == "<module>" and place:
        return place
    name = options.clean(name, 120)
    return f"{name}, {place}" if place else name


def format_when(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """Format the steps, or the tests of a suite, with how often where several are in one step."""
    sentence = format_steps(finding.steps)
    if receipt.steps is not None and finding.steps == (receipt.steps.count,):
        sentence = "after the last step"
    tests = dict.fromkeys(e.test for e in lookups.list_compiles(finding, receipt) if e.test)
    if tests:
        more = f" and {pluralize(len(tests) - 1, 'other test')}" if len(tests) > 1 else ""
        return f"in {options.clean(next(iter(tests)), VALUE_CHARS)}{more}"
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {sentence}" if sentence else f"{finding.count} times"
    return sentence


def join_exports(findings: Iterable[FindingRecord]) -> list[str]:
    """Join the best settings of all findings, where several need the same variable: the second
    `export` of it would replace the first."""
    best = [candidate for finding in findings for candidate in finding.fix.candidates[:1]]
    variables = dict.fromkeys((candidate.setting, candidate.value) for candidate in best)
    if len({setting for setting, _ in variables}) == len(variables):
        return []
    return [format_export(*pair) for pair in join_values(variables).items()]
