"""The formats of `compilediag gate`: a name for `--format`, and the function that renders it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Judgement
from compilediag.json_document import Document, convert_to_builtins
from compilediag.views.gate import forges, screens
from compilediag.views.style import RenderOptions


class JudgementDocument(Document, frozen=True, kw_only=True):
    """All receipts. Nothing judged is no pass."""

    compilediag: str
    passed: bool
    judged: bool
    judgements: tuple[Judgement, ...]


def _render_json(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render every field of every judgement as JSON; only ASCII, all else is escaped."""
    document = JudgementDocument(
        schema="compilediag.judgement",
        compilediag=__version__,
        passed=bool(judgements) and all(judgement.passed for judgement in judgements),
        judged=bool(judgements) and all(judgement.judged for judgement in judgements),
        judgements=tuple(judgements),
    )
    return json.dumps(convert_to_builtins(document), indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Judgement], RenderOptions], str]] = {
    "terminal": screens.render_terminal,
    "github": forges.render_annotations,
    "gitlab": forges.render_code_quality,
    "sarif": forges.render_sarif,
    "junit": forges.render_junit,
    "md": screens.render_markdown,
    "json": _render_json,
}
"""What `--format` takes. Each text ends with a newline; none fails for what a judgement holds."""
