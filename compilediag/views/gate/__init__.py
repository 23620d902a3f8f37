"""One module a format of `compilediag gate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compilediag.compare.gate.judgement import Judgement
from compilediag.views.gate import github, gitlab, json, junit, markdown, sarif, terminal
from compilediag.views.style import RenderOptions

FORMATS: dict[str, Callable[[Sequence[Judgement], RenderOptions], str]] = {
    "terminal": terminal.render,
    "github": github.render,
    "gitlab": gitlab.render,
    "sarif": sarif.render,
    "junit": junit.render,
    "md": markdown.render,
    "json": json.render,
}
"""What `--format` takes. Each text ends with a newline; none fails for what a judgement holds."""
