"""The judgement as JSON, whole: for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Judgement
from compilediag.json_document import Document, builtins_of
from compilediag.views.style import RenderOptions

SCHEMA = "compilediag.judgement"


class JudgementDocument(Document, frozen=True, kw_only=True):
    """All receipts. Nothing judged is no pass."""

    compilediag: str
    passed: bool
    judged: bool
    judgements: tuple[Judgement, ...]


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every field of every judgement; only ASCII, all else is escaped."""
    document = JudgementDocument(
        schema=SCHEMA,
        compilediag=__version__,
        passed=bool(judgements) and all(item.passed for item in judgements),
        judged=bool(judgements) and all(item.judged for item in judgements),
        judgements=tuple(judgements),
    )
    return json.dumps(builtins_of(document), indent=1) + "\n"
