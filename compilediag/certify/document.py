"""The JSON of a certificate: small without `--all`."""

from __future__ import annotations

from compilediag.certify.points import Certificate, Outcome, Verdict
from compilediag.json_document import Document
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.receipt.schema.record import Record

SCHEMA = "compilediag.certificate"

MAX_BYTES = 2000
"""Of the document without `--all`, as `json.dumps` writes it without spaces."""


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
    raise NotImplementedError
