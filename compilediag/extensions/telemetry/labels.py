"""Text of the target on its way to monitoring: no secret, no control character, few values.

Monitoring keeps a series for every label value: a program that makes up span names must not make
up series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compilediag_harness.redaction.redactor import Redactor

LABEL_LIMIT = 64
TEXT_LIMIT = 256
"""Longest label of a metric and longest attribute of a span, in characters."""

MAX_OWN_NAMES = 16
"""Names made up by the program that become labels; further ones are summed as `OTHER`."""

OTHER = "other"

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.:-]+")


class Labels:
    """Makes labels and attributes; remembers which of the program's names became labels."""

    def __init__(self, known: Sequence[str], secrets: Sequence[str] = ()) -> None:
        """`known`: labels that are ours; `secrets`: values to redact."""
        self._known = frozenset(known)
        self._own: set[str] = set()
        self._redactor = Redactor(secrets)

    def label(self, name: str) -> str:
        """A name as a label of a metric."""
        if name in self._known:
            return name
        label = _UNUSUAL.sub("_", self._redactor.text(name))[:LABEL_LIMIT] or "_"
        if label in self._known or label in self._own:
            return label
        if len(self._own) >= MAX_OWN_NAMES:
            return OTHER
        self._own.add(label)
        return label

    def sum_by_label(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by label; those of names that share a label are summed."""
        sums: dict[str, float] = {}
        for name, value in values.items():
            label = self.label(name)
            sums[label] = sums.get(label, 0.0) + value
        return sums

    def text(self, text: str) -> str:
        """A text as an attribute of a span."""
        # Truncated only after redaction: half a secret is not recognised. The wire limits the text.
        shown = self._redactor.text(text)[:TEXT_LIMIT]
        return "".join(char if char.isprintable() else " " for char in shown)
