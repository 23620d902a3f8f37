"""The formats of `compilediag gate`: a name for `--format`, and the function that renders it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Judgement
from compilediag.json_document import Document, builtins_of
from compilediag.views.gate import forges, screens
from compilediag.views.style import RenderOptions


class JudgementDocument(Document, frozen=True, kw_only=True):
    """All receipts. Nothing judged is no pass."""

    compilediag: str
    passed: bool
    judged: bool
    judgements: tuple[Judgement, ...]


def _as_json(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render every field of every judgement as JSON; only ASCII, all else is escaped."""
    document = JudgementDocument(
        schema="compilediag.judgement",
        compilediag=__version__,
        passed=bool(judgements) and all(item.passed for item in judgements),
        judged=bool(judgements) and all(item.judged for item in judgements),
        judgements=tuple(judgements),
    )
    return json.dumps(builtins_of(document), indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Judgement], RenderOptions], str]] = {
    "terminal": screens.draw,
    "github": forges.annotate,
    "gitlab": forges.report_quality,
    "sarif": forges.render_sarif,
    "junit": forges.render_junit,
    "md": screens.draw_markdown,
    "json": _as_json,
}
"""What `--format` takes. Each text ends with a newline; none fails for what a judgement holds."""
