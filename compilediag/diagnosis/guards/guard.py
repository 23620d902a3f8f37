"""What one guard checks, of which value, expecting what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compilediag.diagnosis.guards.source import Path

Check = Literal[
    "backend",  # another backend object
    "dead",  # the cache entry died with an object it guarded
    "unexpected",  # torch itself could not determine it
    "state",  # global state; `aspect` is the component
    "aliasing",
    "marking",  # mark_dynamic and the like
    "shape",  # a symbolic shape condition; `aspect` is the kind
    "tensor",  # metadata of a tensor; `aspect` is what differs
    "tensor_type",  # something else where a tensor was
    "tensor_item",  # the value of a 0-dim tensor used as a Python number
    "value",
    "none",
    "not_none",
    "identity",
    "type",
    "length",
    "members",  # contains a key or an item, equals a set
    "keys",  # key positions and orders
    "attribute",  # an attribute is there, or is not
    "missing",  # reading an item failed
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard expression, understood as far as its text goes."""

    check: Check
    path: Path | None
    """Of the value the check reads."""
    aspect: str | None = None
    """Refinement of the check, such as "size" or "grad_mode"."""
    key: str | None = None
    """The member a "members", "attribute" or "missing" check is about; a dimension of a size."""
    expected: str | None = None
    actual: str | None = None
    type_name: str | None = None
    """Type torch printed: the one expected, or found for "tensor_type"."""

    @property
    def subject(self) -> Path | None:
        """The variable that changed: the attribute itself, where the check reads its object."""
        path = self.path
        if path is None or self.key is None:
            return path
        if self.check == "attribute":
            if path.member == "__dict__":
                path = Path(path.root, path.scope, path.hops[:-1])
            return path.then("attr", self.key)
        if self.check == "members" and path.member in ("_buffers", "_parameters", "_modules"):
            return path.then("item", repr(self.key))
        return path
