"""The terminal: its width, colour and encoding, and the only place that writes to it.

stdout has what a command was called for, and fails loudly when it cannot be written. stderr has
notes beside it, and a stderr that is gone changes no exit code.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from compilediag.errors import OutputUnwritable
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.json_document import Document
    from compilediag.views.style import RenderOptions

PIPE_WIDTH = 100
"""Columns where a stream is no terminal and COLUMNS does not say."""
MAX_WIDTH = 120
MESSAGE_LIMIT = 2000
"""Longest line of a message, in characters."""
_SIGNS = "✗✓→·…▁█▸│"


def reserve_descriptors() -> None:
    """Reserve the first three descriptors: where the shell closed one (`2>&-`), no file or pipe of
    ours gets its number. Programs that we start find it closed, as they would without us."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, and is not inherited


def get_render_options(stream: TextIO | None = None) -> RenderOptions:
    """Return how views may draw on a stream, stdout by default: width, colour, ASCII or not."""
    from compilediag.views.style import RenderOptions  # help and errors need none

    stream = stream or sys.stdout
    if stream is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the shell
        return RenderOptions()
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    ascii_only = _escape_unencodable(_SIGNS, stream) != _SIGNS
    demanded = bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)
    color = demanded and not os.environ.get("NO_COLOR")
    return RenderOptions(min(_get_width(stream), MAX_WIDTH), color, ascii_only, folder)


def is_terminal(stream: TextIO | None) -> bool:
    """True where the stream is a terminal that can be drawn on."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _get_width(stream: TextIO) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:6]) > 0:
        return int(columns[:6])
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError):
        return PIPE_WIDTH


def _escape_unencodable(text: str, stream: TextIO) -> str:
    """Escape every character that the stream's encoding lacks."""
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def write(text: str) -> None:
    """Writes to stdout.

    Raises:
        OutputUnwritable: the disk is full, or there is no stdout.
        BrokenPipeError: the reader went away; `cli.main` ends quietly then.
    """
    stream: TextIO | None = sys.stdout  # None when the shell closed it: `compilediag show >&-`
    if stream is None:
        raise OutputUnwritable("stdout is closed; nothing could be printed")
    try:
        stream.write(_escape_unencodable(text, stream))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        mute_stdout()
        why = f"stdout cannot be written: {error.strerror or error}"
        raise OutputUnwritable(f"{why}; print to another place") from error


def format_json(value: Any) -> str:
    """Format JSON in printable ASCII: text of the target in it does not act on a terminal."""
    import json  # not needed by most commands

    return json.dumps(value, indent=1, default=str) + "\n"


def format_document(document: Document) -> str:
    """Format a document as `format_json` does."""
    from compilediag.json_document import convert_to_builtins

    return format_json(convert_to_builtins(document))


def write_document(document: Document) -> None:
    """Write a document to stdout as `format_json` does."""
    write(format_document(document))


def write_paged(text: str) -> None:
    """Write a long text to stdout, on a terminal a page at a time.

    Raises:
        OutputUnwritable, BrokenPipeError: as `write`.
    """
    if is_terminal(sys.stdout) and text.count("\n") >= os.get_terminal_size().lines:
        import click

        click.echo_via_pager(text, color=True)
    else:
        write(text)


def write_stderr(text: str) -> None:
    """Writes to stderr, if it is there."""
    try:
        sys.stderr.write(_escape_unencodable(text, sys.stderr))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # full, closed, or None: `2>&-`
        pass


def write_message(message: str) -> None:
    """Write a sentence of compilediag to stderr; text of the target in it is made safe by line."""
    lines = [clean(line, limit=MESSAGE_LIMIT) for line in message.splitlines()]
    write_stderr("compilediag: " + "\n".join(lines) + "\n")


def mute_stdout() -> None:
    """Point stdout at nothing: Python flushes it once more at exit and would complain then."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
