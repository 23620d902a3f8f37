"""What this terminal can show, and writing to it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from compilediag.errors import OutputUnwritable
from compilediag.views.style import RenderOptions

PIPE_WIDTH = 100
"""Columns where stdout is no terminal and COLUMNS does not say."""
MOST_WIDTH = 120
_SIGNS = "✗✓→·…"


def look(stream: TextIO | None = None) -> RenderOptions:
    """How views may draw on a stream, stdout by default: width, colour, ASCII only or not."""
    if stream is None:
        stream = sys.stdout
    if stream is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the shell
        return RenderOptions()
    return RenderOptions(
        min(_columns(stream), MOST_WIDTH), color(stream), not _encodes(stream), _folder()
    )


def _columns(stream: TextIO) -> int:
    """COLUMNS, else the terminal's width: as `shutil` has it, whose import costs more than this."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told[:6]) > 0:
        return int(told[:6])
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError):
        return PIPE_WIDTH


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def color(stream: TextIO) -> bool:
    """Colour on a terminal that is not dumb; NO_COLOR forbids it, FORCE_COLOR asks for it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _encodes(stream: TextIO) -> bool:
    try:
        _SIGNS.encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def write(text: str) -> None:
    """Writes to stdout; what its encoding cannot spell is written as an escape.

    Raises:
        OutputUnwritable: the disk is full, or there is no stdout.
        BrokenPipeError: whoever read went away; `cli.main` ends quietly then.
    """
    stream: TextIO | None = sys.stdout  # None when the shell closed it: `compilediag show >&-`
    if stream is None:
        raise OutputUnwritable("stdout is closed; nothing could be printed")
    encoding = stream.encoding or "ascii"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        said = f"stdout cannot be written: {error.strerror or error}"
        raise OutputUnwritable(f"{said}; print to another place") from error


def abandon_stdout() -> None:
    """Points stdout at nothing: Python flushes it once more at exit and would complain then."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
