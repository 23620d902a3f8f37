"""Names that Dynamo gives to frames that resume a function after a graph break."""

from __future__ import annotations

import re

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)", re.DOTALL)


def find_resumed_function(name: str) -> str | None:
    """Find the function that a frame called `name` resumes after a graph break; None for others."""
    match = _RESUMED.fullmatch(name)
    return None if match is None else match["function"]


def find_resumed_line(name: str) -> int:
    """Find the line of the graph break behind which a frame goes on; 0 for others."""
    match = _RESUMED.fullmatch(name)
    return 0 if match is None else int(match["line"])


def get_whole_function(name: str) -> str:
    """Get the function of which a frame is the whole, or what is left after graph breaks."""
    while (part := find_resumed_function(name)) is not None:
        name = part
    return name
