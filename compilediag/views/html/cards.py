"""A finding as a card: what happened, at which line, what it cost, what to change, what is
proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compilediag.receipt.proofs import missing_proof
from compilediag.receipt.schema.compiles import FindingRecord, ProofPoint
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import leading_call
from compilediag.views import lookups
from compilediag.views.finding_rows import changed_by, part_text, title_of, when, writer
from compilediag.views.format import pair, seconds
from compilediag.views.place import first_line, library_line, passed_at
from compilediag.views.settings import export_line
from compilediag.views.style import RenderOptions

MAX_CARDS = 200
_LINE_CHARS = 4096
_TEXT_CHARS = 300


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
    points: tuple[tuple[str, bool | None, str, tuple[str, ...]], ...]
    doubt: str | None


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
    places: tuple[str, ...]
    when: str
    cost: str
    fix: str
    caveat: str
    lines: tuple[str, ...]
    """What can be typed without an edit."""
    parts: tuple[str, ...]
    proof: Proof | None
    refused: tuple[tuple[str, str], ...]
    excerpt: Excerpt
    first_step: int | None


def place_of(finding: FindingRecord) -> tuple[str, int] | None:
    """File and line of the program's own that the finding is about."""
    at = leading_call(finding) or finding.location
    return None if at is None or not at.file else (at.file, at.line)


def cards(
    receipt: Receipt, options: RenderOptions, excerpts: Mapping[str, Excerpt]
) -> tuple[Card, ...]:
    """The findings of at least `warning` first, then the notes; at most `MAX_CARDS`.

    Args:
        receipt: of the run.
        options: how places are written.
        excerpts: by the id of the finding.
    """
    every = lookups.numbered(receipt)
    ordered = sorted(every, key=lambda pair: pair[1].severity == "info")
    return tuple(
        _card(number, finding, receipt, options, excerpts.get(finding.id, Excerpt()))
        for number, finding in ordered[:MAX_CARDS]
    )


def _card(
    number: int,
    finding: FindingRecord,
    receipt: Receipt,
    options: RenderOptions,
    excerpt: Excerpt,
) -> Card:
    def text(value: str | None, limit: int = _TEXT_CHARS) -> str:
        return options.text(value, limit) if value else ""

    changed = lookups.change(finding, receipt)
    written = [
        f"written by {writer(each, options)}" for each in lookups.guessed(finding, receipt)[:2]
    ]
    places = [
        first_line(finding, options),
        *library_line(finding, options),
        changed_by(finding, receipt, options),
        passed_at(finding, options),
        *written,
    ]
    fix = finding.fix
    return Card(
        number=number,
        rule=text(finding.rule, 8),
        severity=finding.severity if finding.severity in ("error", "warning") else "info",
        title=text(title_of(finding)),
        variable=text(finding.variable),
        before=None if changed is None else text(changed[0]) or '""',
        after=None if changed is None else text(changed[1]) or '""',
        places=tuple(each for each in places if each),
        when=when(finding),
        cost=seconds(finding.cost_s) if finding.cost_s is not None else "",
        fix=text(fix.summary, 2000),
        caveat=text(fix.caveat, 1000),
        lines=tuple(text(export_line(each), _LINE_CHARS) for each in fix.candidates),
        parts=tuple(dict.fromkeys(part_text(each, options) for each in finding.parts)),
        proof=_proof(finding, receipt, options),
        refused=tuple((text(each.change), text(each.reason)) for each in fix.refused),
        excerpt=excerpt,
        first_step=min(finding.steps, default=None),
    )


def _proof(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> Proof | None:
    proof = finding.fix.proof
    if proof is None:
        return None
    return Proof(
        options.text(proof.change, _LINE_CHARS),
        tuple(
            (
                options.text(point.name.replace("_", " "), 60),
                point.passed,
                options.text(point.sentence, _TEXT_CHARS),
                _figures(point, options),
            )
            for point in proof.points
        ),
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
