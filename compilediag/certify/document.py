"""The JSON of a certificate: small without `--all`."""

from __future__ import annotations

import json

from compilediag.certify.points import Certificate, Outcome, Point, Verdict
from compilediag.json_document import Document, convert_to_builtins
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.receipt.schema.record import Record
from compilediag.rules.make_finding import shorten

SCHEMA = "compilediag.certificate"

MAX_BYTES = 2000
"""Of the document without `--all`, as `json.dumps` writes it without spaces."""

_WITH_FIGURES, _SHORTEST = 60, 20
"""Characters of a sentence below which figures are left out, and fewer than which none has."""


class PointRecord(Record, frozen=True, kw_only=True):
    """One point of a certificate."""

    #: program, exercised, better, compiled, results, other inputs or cost.
    name: str
    outcome: Outcome  #: holds, fails, undecided, or stated: reported and not judged.
    sentence: str  #: What was seen, or what is missing.
    figures: tuple[ProofFigure, ...] = ()  #: The numbers behind it.
    details: tuple[str, ...] = ()  #: Every case behind the sentence; only with `--all`.


class CertificateDocument(Document, frozen=True, kw_only=True):
    """A certificate of a change."""

    verdict: Verdict  #: proved, refused or not decided.
    reason: str = ""  #: The point that fails, or else is undecided; empty where it is proved.
    base: str  #: The old state, in words.
    change: tuple[str, ...]  #: What changed: files, lines of environment.
    executions: int  #: Of the program, made for this certificate.
    points: tuple[PointRecord, ...]


def make_document(
    certificate: Certificate,
    *,
    base: str,
    change: tuple[str, ...],
    executions: int,
    everything: bool = False,
) -> CertificateDocument:
    """Make the document of a certificate; without `everything` at most `MAX_BYTES` long."""
    limit = None if everything else MAX_BYTES // 4
    while True:
        document = CertificateDocument(
            schema=SCHEMA,
            verdict=certificate.verdict,
            reason=_clip(certificate.reason, limit),
            base=_clip(base, limit),
            change=tuple(_clip(text, limit) for text in change[: None if everything else 8]),
            executions=executions,
            points=tuple(_make_record(point, limit) for point in certificate.points),
        )
        size = len(json.dumps(convert_to_builtins(document), separators=(",", ":")))
        if limit is None or size <= MAX_BYTES or limit < _SHORTEST:
            return document
        limit = limit * 3 // 4


def _make_record(point: Point, limit: int | None) -> PointRecord:
    details = point.details if limit is None else ()
    figures = point.figures if limit is None or limit > _WITH_FIGURES else ()
    sentence = _clip(point.sentence, limit)
    return PointRecord(
        name=point.name,
        outcome=point.outcome,
        sentence=sentence,
        figures=figures,
        details=details,
    )


def _clip(text: str, limit: int | None) -> str:
    return text if limit is None else shorten(text, limit)
