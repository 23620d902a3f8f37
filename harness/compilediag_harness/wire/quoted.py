"""What events quote of the target: a line of its code, and text of bounded length.

Secrets leave it where it is written (`redaction/`); the outside half escapes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXT_LIMIT = 16_384
"""Longest text of the target kept in one field, in characters."""

LINES_LEFT_OUT = "    … {} lines left out"
"""Stands in torch_logs.txt for the lines in the middle of a long message."""

LOG_OVER_LIMIT = "    … the log of this process is over its limit"
"""The last line of a process in torch_logs.txt that had more to write."""


_GENERATED = re.compile(
    r"(?:^|[/\\])(?:(?:[^\W\d]\w*\.){2,}\w+_[a-z0-9_]{8}\.py$"
    r"|(?:transformers|diffusers)_modules[/\\])"
)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code. `function` is the code object's name, as torch prints it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call in a file of the program's own, below which torch compiled or recorded something."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    """Source text of the call on one line; of the whole line where the call is not known, empty
    where there is no source."""
    arguments: tuple[tuple[str, str], ...] = ()
    """What the call passes, as far as that is certain: the parameter of the compiled function as
    its guards name it ("x", "args[0]"), and the expression."""


def resumed_function(name: str) -> str | None:
    """The function of which a frame called `name` is what was left after a graph break; None where
    it is no such frame."""
    found = _RESUMED.fullmatch(name)
    return None if found is None else found["function"]


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text`, cut to `limit` characters, with a note of how many are lost."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"


def clip_middle(text: str, limit: int) -> str:
    """`text`, cut to `limit` characters of its beginning and its end, with the same note."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}… [{len(text) - 2 * half} more characters] …{text[-half:]}"


def is_generated(file: str) -> bool:
    """Whether a package wrote the file: a module that torch_geometric names after one of its own
    and puts into the temporary folder, or the code of a model that a hub sent (transformers)."""
    return _GENERATED.search(file) is not None
