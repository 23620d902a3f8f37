"""The formats of `compilediag gate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compilediag.compare.gate.judgement import Judgement
from compilediag.views.gate import forges, json, screens
from compilediag.views.style import RenderOptions

FORMATS: dict[str, Callable[[Sequence[Judgement], RenderOptions], str]] = {
    "terminal": screens.draw,
    "github": forges.annotate,
    "gitlab": forges.report_quality,
    "sarif": forges.render_sarif,
    "junit": forges.render_junit,
    "md": screens.draw_markdown,
    "json": json.render,
}
"""What `--format` takes. Each text ends with a newline; none fails for what a judgement holds."""
