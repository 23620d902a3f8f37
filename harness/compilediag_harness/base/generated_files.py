"""Files of the program's that a package wrote while it ran."""

from __future__ import annotations

import re

_GENERATED = re.compile(
    r"(?:^|[/\\])(?:(?:[^\W\d]\w*\.){2,}\w+_[a-z0-9_]{8}\.py$"
    r"|(?:transformers|diffusers)_modules[/\\])"
)


def is_generated(file: str) -> bool:
    """True if a package wrote the file: a module that torch_geometric names after one of its own
    and puts into the temporary folder, or the code of a model that a hub sent (transformers)."""
    return _GENERATED.search(file) is not None
