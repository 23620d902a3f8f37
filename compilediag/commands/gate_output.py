"""Outputs of a gate in all formats: stdout, files, the summary of a GitHub job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compilediag.commands.terminal import get_render_options, write, write_message
from compilediag.compare.gate.baseline_file import write_whole
from compilediag.compare.gate.judgement import Judgement
from compilediag.errors import OutputUnwritable, UsageError
from compilediag.views.gate import FORMATS
from compilediag.views.style import RenderOptions
from compilediag.views.text import clean

SUMMARY_BYTES = 1024 * 1024
"""GitHub drops a larger summary as a whole."""
_FOR_PEOPLE = ("terminal", "github")
"""Formats that may stand beside each other on stdout: for people, and for GitHub's log."""
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Where GitHub and GitLab have put the repository; it may lie there without its `.git`."""


@dataclass(frozen=True, slots=True)
class GateOutputs:
    """Formats that are shown on stdout, and those that are written to files."""

    shown: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


def parse_outputs(formats: Sequence[str]) -> GateOutputs:
    """Parse `--format NAME[=FILE]`; without any on stdout it is the terminal's, and in GitHub's
    jobs its own beside it.

    Raises:
        UsageError: a format is not known, or two outputs would go to one place.
    """
    shown: list[str] = []
    files: list[tuple[str, str]] = []
    for text in formats:
        name, separator, file = text.partition("=")
        if name not in FORMATS:
            from difflib import get_close_matches

            close = get_close_matches(name, FORMATS, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            known = f"{clean(name, limit=40)!r}{meant} (formats: {', '.join(FORMATS)})"
            raise UsageError(f"there is no format {known}")
        if separator and not file:
            raise UsageError(f"--format {text} names no file")
        if separator:
            files.append((name, file))
        elif name not in shown:
            shown.append(name)
    if len(shown) > 1 and not set(shown) <= set(_FOR_PEOPLE):
        raise UsageError(
            f"{' and '.join(shown)} cannot go to stdout together: name a file, "
            f"--format {shown[-1]}=FILE"
        )
    paths = [os.path.abspath(file) for _, file in files]
    if len(set(paths)) < len(paths):
        raise UsageError("two formats would be written to the same file: name two files")
    if not shown:
        shown = list(_FOR_PEOPLE) if os.environ.get("GITHUB_ACTIONS") == "true" else ["terminal"]
    return GateOutputs(tuple(shown), tuple(files))


def write_outputs(judgements: Sequence[Judgement], outputs: GateOutputs) -> None:
    """Write judgements to all outputs, files first: a reader who goes away costs none of them.

    Raises:
        OutputUnwritable: a file or stdout cannot be written.
    """
    on_paper = make_repository_options(get_render_options().root)
    for name, path in outputs.files:
        folder = os.path.dirname(path) or "."
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise OutputUnwritable(f"{folder} cannot be made: {error.strerror}") from error
        write_whole(path, FORMATS[name](judgements, on_paper))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and "github" in outputs.shown:
        # That it cannot be written changes no verdict.
        content = FORMATS["md"](judgements, on_paper).encode("utf-8", "backslashreplace")
        why = "it would be larger than GitHub takes"
        try:
            with open(summary, "ab") as stream:
                if stream.tell() + len(content) < SUMMARY_BYTES:
                    stream.write(content)
                    why = ""
        except OSError as error:
            why = str(error.strerror or error)
        if why:
            write_message(f"the job's summary was not written: {why}")
    for name in outputs.shown:
        write(FORMATS[name](judgements, get_render_options() if name == "terminal" else on_paper))


def make_repository_options(folder: str) -> RenderOptions:
    """Make options with paths relative to the repository that holds `folder`, else to `folder`."""
    above = [folder, *map(str, Path(folder).parents)]
    named = [os.path.normpath(os.environ[name]) for name in _VARIABLES if os.environ.get(name)]
    roots = [path for path in above if os.path.exists(os.path.join(path, ".git"))]
    root = [*roots, *(path for path in named if path in above), folder][0]
    below = os.path.relpath(folder, root)
    return RenderOptions(root=root, folder="" if below == "." else below)
