"""Files of the program's that a package wrote while it ran."""

from __future__ import annotations

import re

_GENERATED = re.compile(
    r"(?:^|[/\\])(?:(?:[^\W\d]\w*\.){2,}\w+_[a-z0-9_]{8}\.py$"
    r"|(?:transformers|diffusers)_modules[/\\])"
)


_INDUCTOR = re.compile(
    r"[/\\]torchinductor_[^/\\]*[/\\]\w\w[/\\]|[/\\]([a-z2-7]{2})[/\\]c\1[a-z2-7]{40,}\.[\w.]+$"
)


def is_inductor_code(file: str) -> bool:
    """True for code that inductor wrote: "c" and a hash in base 32, in a folder named by the first
    two letters of the hash, wherever the cache lies (`torch._inductor.codecache.get_path`)."""
    return _INDUCTOR.search(file) is not None


def is_generated(file: str) -> bool:
    """True if a package wrote the file: inductor, torch_geometric, which names a module after one
    of its own and puts it into the temporary folder, or a hub that sent the code of a model
    (transformers)."""
    return _GENERATED.search(file) is not None or is_inductor_code(file)
