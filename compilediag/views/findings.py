"""A finding as texts: what happened, at which line, when and by whom, what it cost, what to change,
what is proved. Every format draws the same card."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compilediag.fixes import environment
from compilediag.receipt.proofs import effect_of, missing_proof
from compilediag.receipt.schema.compiles import Writer
from compilediag.receipt.user_line import leading_call
from compilediag.views import lookups
from compilediag.views.document import LINE_BREAK, LINE_CHARS, Code, Table, Text
from compilediag.views.format import count, pair, seconds, steps
from compilediag.views.place import first_line, library_line, passed_at
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import (
        CandidateRecord,
        ChangedAt,
        FindingRecord,
        PartRecord,
        ProofPoint,
    )
    from compilediag.receipt.schema.receipt import Receipt

INDENT = "     "
VALUE_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""
MAX_FINDINGS = 30
"""Of a table."""
_MAX_PARTS = 4
"""Named on the screen; `explain` has them all."""
_SEVERITY = {"error": "red", "warning": "yellow", "info": "dim"}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program's own."""

    number: int
    text: str
    blamed: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines around the one a finding is about, or why they are not shown."""

    lines: tuple[SourceLine, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """A certificate: each point with its figures before and after."""

    change: str
    effect: str
    runs: int
    points: tuple[tuple[str, bool | None, str, tuple[str, ...]], ...]
    doubt: str | None
    """Why it is not valid for this run."""


@dataclass(frozen=True, slots=True)
class Card:
    """One finding, as texts."""

    number: int
    rule: str
    severity: str
    title: str
    variable: str
    before: str | None
    after: str | None
    others: bool
    """Whether other values were met too."""
    line: str
    """The program's own line to look at first."""
    other_lines: int
    """Lines of the program that led there too."""
    library: tuple[str, ...]
    """The place in a library that the line calls, or what is known instead of a line."""
    calls: bool
    """Whether the line is a call of the library's."""
    changed: str
    passed: str
    written: tuple[str, ...]
    when: str
    first_step: int | None
    cost: str
    parts: tuple[str, ...]
    """What else the same act changed."""
    fix: str
    caveat: str
    settings: tuple[str, ...]
    """What can be typed without an edit."""
    proof: Proof | None
    refused: tuple[tuple[str, str], ...]
    excerpt: Excerpt = Excerpt()

    @property
    def places(self) -> list[str]:
        """Every line that has to do with it."""
        found = (self.line, *self.library, self.changed, self.passed, *self.written)
        return [each for each in found if each]

    def detail(self, options: RenderOptions) -> str:
        """The variable and how it changed: `pos.pe  [1, 16] → [8, 16]`."""
        if self.before is None:
            return self.variable
        others = " (and others)" if self.others else ""
        return f"{self.variable}  {self.before} {options.arrow} {self.after}{others}".strip()


def card_of(
    number: int,
    finding: FindingRecord,
    receipt: Receipt,
    options: RenderOptions,
    excerpt: Excerpt = Excerpt(),
    chars: int = VALUE_CHARS,
) -> Card:
    """The card of a finding.

    Args:
        number: the one that `compilediag explain` takes.
        finding: it.
        receipt: of the run.
        options: how places are written.
        excerpt: its lines of source.
        chars: of one value.
    """

    def text(value: str | None, limit: int = chars) -> str:
        return options.text(value, limit) if value else ""

    changed, fix = lookups.change(finding, receipt), finding.fix
    parts = dict.fromkeys(part_text(each, options) for each in finding.parts)
    written = [f"written by {writer(w, options)}" for w in lookups.guessed(finding, receipt)[:2]]
    calls = leading_call(finding) is not None
    return Card(
        number=number,
        rule=text(finding.rule, 8),
        severity=finding.severity if finding.severity in _SEVERITY else "info",
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
        settings=tuple(text(export_line(each), LINE_CHARS) for each in fix.candidates),
        proof=_proof(finding, receipt, options),
        refused=tuple((text(each.change), text(each.reason)) for each in fix.refused),
        excerpt=excerpt,
    )


def _proof(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> Proof | None:
    proof = finding.fix.proof
    if proof is None:
        return None
    points = tuple(
        (
            options.text(point.name.replace("_", " "), 60),
            point.passed,
            options.text(point.sentence, 300),
            _figures(point, options),
        )
        for point in proof.points
    )
    effect = effect_of(proof).replace("→", options.arrow)
    return Proof(
        options.text(proof.change, LINE_CHARS),
        options.text(effect),
        proof.runs,
        points,
        missing_proof(finding, receipt),
    )


def _figures(point: ProofPoint, options: RenderOptions) -> tuple[str, ...]:
    """Name with the values before and after."""
    texts = (
        f"{options.text(each.name, 60)} {pair(each.before, each.after, each.unit, options.arrow)}"
        for each in point.figures
        if each.before is not None and each.after is not None
    )
    return tuple(" ".join(text.split()) for text in texts)


# --- as a row of a table -----------------------------------------------------------------------


def findings_table(receipt: Receipt, options: RenderOptions) -> Table | None:
    """The findings of at least `warning`, then the notes; None where there are none."""
    chosen = [*lookups.main_findings(receipt), *lookups.notes(receipt)]
    if not chosen:
        return None
    rows = [_row(card_of(*pair, receipt, options)) for pair in chosen[:MAX_FINDINGS]]
    left = len(chosen) - MAX_FINDINGS
    notes = (f"and {left} more in the receipt",) if left > 0 else ()
    head = ("#", "rule", "what", "where", "when", "cost", "fix")
    return Table(head, rows, right=("#", "cost"), notes=notes)


def what_of(card: Card) -> tuple[str, ...]:
    """Title, variable, its change, and what else changed."""
    what = [card.title]
    what += [" ", Code(card.variable)] if card.variable else []
    if card.before is not None and card.after is not None:
        what += [" ", Code(card.before), " → ", Code(card.after)]
    for index, part in enumerate(card.parts[:_MAX_PARTS]):
        what += [", " if index else " with ", Code(part)]
    if len(card.parts) > _MAX_PARTS:
        what.append(f" and {len(card.parts) - _MAX_PARTS} more")
    return tuple(what)


def _row(card: Card) -> tuple[Text, ...]:
    where: list[str] = [Code(card.line)] if card.line else []
    if card.calls and card.library:
        where += [LINE_BREAK, "at ", Code(card.library[0])]
    elif card.library:
        where += [LINE_BREAK, ", ".join(card.library)]
    where += [LINE_BREAK, Code(card.changed)] if card.changed else []
    fix = [f"{card.fix} ({card.caveat})" if card.caveat else card.fix]
    if card.proof is not None:
        fix += ["; proved: ", Code(card.proof.change)]
        fix += [f" ({card.proof.effect})"] if card.proof.effect else []
    elif card.settings:
        fix += ["; without an edit: ", Code(card.settings[0])]
    where = where[where[:1] == [LINE_BREAK] :]
    cells = (str(card.number), card.rule, what_of(card), tuple(where), card.when, card.cost)
    return (*cells, tuple(fix))


# --- as lines of the verdict screen --------------------------------------------------------------


def card_lines(card: Card, options: RenderOptions) -> list[str]:
    """The lines of one finding on a screen."""
    return [
        *title_lines(card, options),
        *_where(card, options),
        *_parts(card, options),
        *_advice(card, options),
        *_without_an_edit(card, options),
    ]


def title_lines(card: Card, options: RenderOptions) -> list[str]:
    """Line one: number, code, title, variable, its change; what it cost at the right edge."""
    prefix = f"{card.number:>3}  {card.rule} "
    room = options.width - len(prefix) - (len(card.cost) + 2 if card.cost else 0)
    detail = card.detail(options)
    joined = f"{card.title}: {detail}" if detail else card.title
    styled = f"{options.styled(f'{card.number:>3}', 'bold')}  "
    styled += options.styled(card.rule, _SEVERITY[card.severity]) + " "
    if display_width(joined) <= room:
        line = f"{pad(joined, room)}  {card.cost}" if card.cost else joined
        return [styled + options.styled(card.title, "bold") + line[len(card.title) :]]
    # Too long for one line: the change gets its own, where more of it can be read.
    head = pad(options.truncate(card.title, room), room) + (f"  {card.cost}" if card.cost else "")
    return [styled + options.styled(head, "bold"), *options.wrap(detail, INDENT)[:2]]


def _where(card: Card, options: RenderOptions) -> list[str]:
    """Line two: file and line, when, who writes it. Of what is in a library the program's own line
    comes first, and the library's behind it on a line of its own."""
    also = f"and from {count(card.other_lines, 'other line')}" if card.other_lines > 0 else ""
    parts = [card.changed, card.line, also, card.when, card.passed]
    behind = [*card.library, *card.written]
    if card.calls and card.library:
        lines = options.wrap_items(behind, f"{INDENT}at ", f"{INDENT}   ")
    else:
        parts += [*card.written, *card.library]
        lines = []
    return [*options.wrap_items([text for text in parts if text], INDENT), *lines]


def _parts(card: Card, options: RenderOptions) -> list[str]:
    """What else the same act changed: other variables than the one above."""
    if not card.parts:
        return []
    left = len(card.parts) - _MAX_PARTS
    named = [*card.parts[:_MAX_PARTS], *([f"+{left} more"] if left > 0 else [])]
    return options.wrap(f"with {', '.join(named)}", INDENT, INDENT + "  ")


def _advice(card: Card, options: RenderOptions) -> list[str]:
    """Line three: what to change, and what that costs."""
    lines = options.wrap(card.fix, f"{INDENT}fix: ", style="cyan")
    if not card.caveat:
        return lines
    joined = options.wrap(f"{card.fix} ({card.caveat})", f"{INDENT}fix: ", style="cyan")
    if len(joined) == 1 and "(" not in card.caveat:
        return joined
    return lines + options.wrap(card.caveat, f"{INDENT}note: ", style="cyan")


def _without_an_edit(card: Card, options: RenderOptions) -> list[str]:
    """Line four: the change that is proved to remove it and what it did, else what should without
    an edit; one line, however long, to be copied."""
    if card.proof is not None:
        line = options.styled(f"{INDENT}proved: {card.proof.change}", "green")
        seen = [card.proof.effect, count(card.proof.runs, "run")]
        return [line, *options.wrap_items([text for text in seen if text], f"{INDENT}        ")]
    return [options.styled(f"{INDENT}no edit: {each}", "cyan") for each in card.settings[:1]]


def finding_line(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """A finding in one line, while the program runs."""
    card = card_of(0, finding, receipt, options)
    detail = card.detail(options)
    what = f"{card.title}: {detail}" if detail else card.title
    parts = (what, card.changed, card.line, *card.written[:1], card.cost)
    return " · ".join(part for part in parts if part)


# --- the parts of a card -------------------------------------------------------------------------


def title_of(finding: FindingRecord) -> str:
    """What was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def part_text(part: PartRecord, options: RenderOptions) -> str:
    """The variable of another cause and its change: `two.active 'en' → 'de'`."""
    name = options.text(part.variable, VALUE_CHARS)
    if not name or part.expected is None or part.actual is None:
        return name
    return f"{name} {options.change(part.expected, part.actual, VALUE_CHARS)}"


def changed_by(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """`changed by arm, train.py:34, called from train.py:49 (seen)`; nothing where no change was
    seen."""
    changed = finding.changed_at
    if changed is None:
        return ""
    line = options.place(changed.file, changed.line)
    writers = lookups.writers(finding, receipt)
    known = any(w.evidence == "witnessed" and w.line == changed.line for w in writers)
    if changed.in_call and not known:
        return f"changed inside the compiled call, {line} (seen)"
    text = f"changed by {writer(_line_of(changed), options)}"
    if len(changed.stack) > 1:
        caller = options.place(changed.stack[1].file, changed.stack[1].line)
        text += f", inside the call {caller}" if changed.in_call else f", called from {caller}"
    return f"{text} (seen)"


def _line_of(changed: ChangedAt) -> Writer:
    return Writer(function=changed.function, file=changed.file, line=changed.line)


def writer(item: Writer, options: RenderOptions, *, whole: bool = False) -> str:
    """`setc, model.py:23`; the whole qualified name on request."""
    name = item.function if whole else item.function.rpartition("<locals>.")[2]
    if name == "<module>" and item.file:
        return options.place(item.file, item.line)
    return options.text(name, 120) + (
        f", {options.place(item.file, item.line)}" if item.file else ""
    )


def when(finding: FindingRecord) -> str:
    """The steps, with how often where that is more than once a step."""
    sentence = steps(finding.steps)
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {sentence}" if sentence else f"{finding.count} times"
    return sentence


def export_line(candidate: CandidateRecord) -> str:
    """What to type before the program is started."""
    return environment.export_line(candidate.setting, candidate.value)


def joined_exports(findings: Iterable[FindingRecord]) -> list[str]:
    """The best settings of all findings together, where several need the same variable: the second
    `export` of it would replace the first."""
    best = [candidate for finding in findings for candidate in finding.fix.candidates[:1]]
    variables = dict.fromkeys((candidate.setting, candidate.value) for candidate in best)
    if len({setting for setting, _ in variables}) == len(variables):
        return []
    return [environment.export_line(*each) for each in environment.joined(variables).items()]
