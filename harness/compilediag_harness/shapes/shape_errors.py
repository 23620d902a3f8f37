"""What `FixedShape` raises: wrong input, padding that is not harmless, compiles after warm-up.

Any function of this room may raise `ShapeUnusable`: wherever an argument, an output or a setting is
found that cannot be padded.
"""

from __future__ import annotations


class ShapeUnusable(ValueError):
    """Arguments, outputs or settings that cannot be padded, with the leaf and what to do."""


class PaddingContaminates(ValueError):
    """Results depend on rows that are only padding."""


class CompiledAfterWarmup(RuntimeError):
    """A call compiled, or recorded a CUDA graph, though everything was warmed up."""
