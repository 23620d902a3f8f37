"""Text of the target on its way to monitoring: no secret, no control character, few values.

A label of a metric is a series of its own for as long as the monitoring keeps it: a program that
makes up names of spans must not make up series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compilediag.receipt.redact import Redactor

LABEL_LIMIT = 64
TEXT_LIMIT = 256
"""Longest label of a metric and longest attribute of a span, in characters."""

MOST_OWN_NAMES = 16
"""Names of the program's own that become labels; further ones are added up as `OTHER`."""

OTHER = "other"

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.:-]+")


class Labels:
    """Makes labels and attributes; remembers which names of the program's became labels."""

    def __init__(self, known: Sequence[str], secrets: Sequence[str] = ()) -> None:
        """`known`: labels that are ours; `secrets`: values to replace wherever they are."""
        self._known = frozenset(known)
        self._own: set[str] = set()
        self._redactor = Redactor(secrets)

    def of(self, name: str) -> str:
        """A name as a label of a metric."""
        if name in self._known:
            return name
        label = _UNUSUAL.sub("_", self._redactor.text(name))[:LABEL_LIMIT] or "_"
        if label in self._known or label in self._own:
            return label
        if len(self._own) >= MOST_OWN_NAMES:
            return OTHER
        self._own.add(label)
        return label

    def added_up(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by label: those of names that share a label are one."""
        found: dict[str, float] = {}
        for name, value in values.items():
            label = self.of(name)
            found[label] = found.get(label, 0.0) + value
        return found

    def text(self, text: str, *, place: bool = False) -> str:
        """A text as an attribute of a span; `place` says that it is a path or a name."""
        # Never cut before: half a secret is not recognised. The wire has bounded the text.
        shown = self._redactor.text(text, is_name=place)[:TEXT_LIMIT]
        return "".join(char if char.isprintable() else " " for char in shown)
