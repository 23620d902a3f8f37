"""What mkdocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

import re

_NAMED_FENCE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """A block that is a file, "```python train.py", gets that name as its title."""
    return _NAMED_FENCE.sub(r'```\1 title="\2"', markdown)
