"""The JSON of a certificate: small without `--all`."""

from __future__ import annotations

import json

from msgspec.structs import replace

from compilediag.certify.points import Certificate, JudgedPoint, Verdict
from compilediag.json_document import Document, convert_to_builtins
from compilediag.rules.make_finding import shorten

SCHEMA = "compilediag.certificate"

MAX_BYTES = 2000
"""Of the document without `--all`, as `json.dumps` writes it without spaces."""

_WITH_FIGURES, _SHORTEST = 60, 20
"""Characters of a sentence below which figures are left out, and fewer than which none has."""


class CertificateDocument(Document, frozen=True, kw_only=True):
    """A certificate of a change."""

    verdict: Verdict  #: proved, refused or not decided.
    reason: str = ""  #: The point that fails, or else is undecided; empty where it is proved.
    base: str  #: The old state, in words.
    change: tuple[str, ...]  #: What changed: files, lines of environment.
    executions: int  #: Of the program, made for this certificate.
    points: tuple[JudgedPoint, ...]


def make_document(
    certificate: Certificate,
    *,
    base: str,
    change: tuple[str, ...],
    executions: int,
    everything: bool = False,
) -> CertificateDocument:
    """Make the document of a certificate; without `everything` at most `MAX_BYTES` long."""
    points = certificate.points
    limit = None if everything else MAX_BYTES // 4
    if limit is not None:
        points = tuple(replace(point, details=()) for point in points)
    while True:
        document = CertificateDocument(
            schema=SCHEMA,
            verdict=certificate.verdict,
            reason=_clip(certificate.reason, limit),
            base=_clip(base, limit),
            change=tuple(_clip(text, limit) for text in change[: None if everything else 8]),
            executions=executions,
            points=tuple(replace(point, sentence=_clip(point.sentence, limit)) for point in points),
        )
        size = len(json.dumps(convert_to_builtins(document), separators=(",", ":")))
        if limit is None or size <= MAX_BYTES or limit < _SHORTEST:
            return document
        limit = limit * 3 // 4
        if limit <= _WITH_FIGURES:
            points = tuple(replace(point, figures=()) for point in points)


def _clip(text: str, limit: int | None) -> str:
    return text if limit is None else shorten(text, limit)
