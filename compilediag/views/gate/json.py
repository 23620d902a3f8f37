"""The judgement as JSON, whole: for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct, convert
from msgspec.structs import asdict

from compilediag._version import __version__
from compilediag.compare.changes import CountChange
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.json_document import Document, builtins_of
from compilediag.views.style import RenderOptions

SCHEMA = "compilediag.judgement"


class ItemRecord(Item, frozen=True, kw_only=True):
    """An item with what stays the same after lines have moved."""

    fingerprint: str  # pyright: ignore[reportIncompatibleMethodOverride] - the same, written down


class JudgementRecord(Struct, frozen=True, kw_only=True):
    """One receipt, judged; the fields of `Judgement`, and its answers."""

    lane: str
    passed: bool
    judged: bool
    receipt_id: str
    verdict: str | None
    baseline: str | None
    limits: tuple[str, ...]
    strict: bool
    require_proved_fix: bool
    counts: tuple[CountChange, ...]
    failures: tuple[ItemRecord, ...]
    improvements: tuple[ItemRecord, ...]
    known: tuple[ItemRecord, ...]
    notices: tuple[str, ...]


class JudgementDocument(Document, frozen=True, kw_only=True):
    """All receipts. Nothing judged is no pass."""

    compilediag: str
    passed: bool
    judged: bool
    judgements: tuple[JudgementRecord, ...]


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every field of every judgement; only ASCII, all else is escaped."""
    records: list[JudgementRecord] = []
    for judgement in judgements:
        answers = {"passed": judgement.passed, "judged": judgement.judged}
        lists: dict[str, list[ItemRecord]] = {}
        for name in ("failures", "improvements", "known"):
            items: tuple[Item, ...] = getattr(judgement, name)
            lists[name] = [
                ItemRecord(**asdict(each), fingerprint=each.fingerprint) for each in items
            ]
        records.append(convert({**asdict(judgement), **lists, **answers}, JudgementRecord))
    document = JudgementDocument(
        schema=SCHEMA,
        compilediag=__version__,
        passed=bool(judgements) and all(item.passed for item in judgements),
        judged=bool(judgements) and all(item.judged for item in judgements),
        judgements=tuple(records),
    )
    return json.dumps(builtins_of(document), indent=1) + "\n"
