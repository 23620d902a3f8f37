"""The view of a certificate: the two states, the verdict, and a line for each point; its JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from compilediag.certify.points import JudgedPoint, Outcome, Verdict
from compilediag.json_document import Document, convert_to_builtins
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import shorten
from compilediag.views.document import Code, Kind, Overview, Preformatted, Section, Table
from compilediag.views.format import format_seconds, pluralize
from compilediag.views.markdown import SIGNS
from compilediag.views.style import RenderOptions

SCHEMA = "compilediag.certificate"

MAX_BYTES = 2000
"""Of a shortened document, as `json.dumps` writes it without spaces."""

_WITH_FIGURES, _SHORTEST = 60, 20
"""Characters of a sentence below which figures are left out, and fewer than which none has."""

_DECIDE: frozenset[Outcome] = frozenset(("fails", "undecided"))

_KINDS: dict[Verdict, Kind] = {"proved": "good", "refused": "bad", "not decided": "blind"}
_MARKS: dict[Outcome, Kind] = {"holds": "good", "fails": "bad", "undecided": "blind"}
_STYLES = {"holds": "green", "fails": "red", "undecided": "yellow", "stated": "dim"}

MAX_CASES = 40
"""Cases of a point that a screen has; `--json` has all."""


class CertificateDocument(Document, frozen=True, kw_only=True):
    """A certificate of a change."""

    schema: str = SCHEMA
    verdict: Verdict  #: proved, refused or not decided.
    reason: str = ""  #: The point that fails, or else is undecided; empty where it is proved.
    base: str  #: The old state, in words.
    change: tuple[str, ...]  #: What changed: files, lines of environment.
    folder: str = ""  #: With the receipt of the new state: `gate FOLDER` judges it. Since 1.1.
    executions: int  #: Of the program, made for this certificate.
    points: tuple[JudgedPoint, ...]


def describe_length(recorded: Receipt, *, varies: bool) -> str:
    """Describe how long an execution may take, by the recorded run; empty where that is unknown."""
    wall_s = None if recorded.goodput is None else recorded.goodput.wall_s
    if not wall_s:
        return ""
    many = recorded.compile.compiles
    compiles = (
        f", with {pluralize(many, 'compile')}; graphs that the change makes are compiled anew"
    )
    calls = "; calls with other inputs come on top, unless --no-vary"
    took = f"; the recorded run took {format_seconds(wall_s)}"
    return f"{took}{compiles if many else ''}{calls if varies else ''}"


def shorten_document(document: CertificateDocument, times: int = 1) -> CertificateDocument:
    """Shorten a document to `MAX_BYTES`, or so many times: without details, with shorter texts."""
    limit = times * MAX_BYTES // 4
    while True:
        points = (
            replace(
                point,
                # What decides is shortened last.
                sentence=shorten(point.sentence, limit * (3 if point.outcome in _DECIDE else 1)),
                figures=point.figures if limit > _WITH_FIGURES else (),
                details=(),
            )
            for point in document.points
        )
        short = replace(
            document,
            reason=shorten(document.reason, limit),
            base=shorten(document.base, limit),
            change=tuple(shorten(text, limit) for text in document.change[:8]),
            points=tuple(points),
        )
        size = len(json.dumps(convert_to_builtins(short), separators=(",", ":")))
        if size <= times * MAX_BYTES or limit < _SHORTEST:
            return short
        limit = limit * 3 // 4


def show_certificate(
    document: CertificateDocument,
    new: str,
    notes: Sequence[str],
    options: RenderOptions,
    *,
    markdown: bool = False,
) -> Overview:
    """Build the document. `new`: the new state in words; `markdown`: the points are a table."""
    points = document.points
    width = max((len(point.name) for point in points), default=0)
    lines = [line for point in points for line in _draw_point(point, width, options)]
    rows = [
        (SIGNS[_MARKS.get(point.outcome, "warn")], point.name, point.sentence) for point in points
    ]
    drawn = Table(("", "point", "seen"), rows) if markdown else Preformatted(lines)
    sentence = document.verdict + (f": {document.reason}" if document.reason else "")
    remarks = (f"{pluralize(document.executions, 'execution')} for this", *notes)
    changed = ", ".join(document.change) or "nothing"
    last = Table(("",), [(Code(text),) for text in remarks]) if markdown else None
    wrapped = [line for note in remarks for line in options.wrap(note, "  ", "    ", style="dim")]
    return Overview(
        title="certificate",
        kind=_KINDS[document.verdict],
        sentence=sentence,
        notes=(f"{document.base} {options.arrow} {new}: {changed}",),
        sections=[Section("points", "Points", "", (drawn, last or Preformatted(wrapped)))],
    )


def _draw_point(point: JudgedPoint, width: int, options: RenderOptions) -> list[str]:
    mark = _MARKS.get(point.outcome)
    sign = options.get_sign(mark) if mark is not None else options.dot.strip()
    lead = f"  {options.paint(sign, _STYLES[point.outcome])} {point.name:{width}}  "
    blank = " " * (width + 6)
    lines = options.wrap(options.clean(point.sentence, 600), blank, blank)
    lines[:1] = [lead + lines[0].strip()] if lines else [lead]
    cases = point.details[:MAX_CASES]
    return lines + [line for case in cases for line in options.wrap(options.clean(case), blank)]
