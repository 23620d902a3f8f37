"""One module a format of `compilediag gate`; each is imported on its first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from compilediag.compare.gate.judgement import Judgement
from compilediag.views.style import RenderOptions

Render = Callable[[Sequence[Judgement], RenderOptions], str]


def _format(module: str) -> Render:
    """The `render` of a module below this package, imported on its first use."""

    def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
        return import_module(f"compilediag.views.gate.{module}").render(judgements, options)

    return render


FORMATS: dict[str, Render] = {
    "terminal": _format("terminal"),
    "github": _format("github"),
    "gitlab": _format("gitlab"),
    "sarif": _format("sarif"),
    "junit": _format("junit"),
    "md": _format("markdown"),
    "json": _format("json"),
}
"""What `--format` takes. Each text ends with a newline; none fails for what a judgement holds."""
