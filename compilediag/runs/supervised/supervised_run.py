"""One supervised run, as it is known when the target starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compilediag.runs.supervised.options import Options
from compilediag.runs.supervised.target import Target
from compilediag_harness.redaction.known_values import secret_values


@dataclass(frozen=True, slots=True)
class SupervisedRun:
    """What runs where, and how."""

    words: tuple[str, ...]
    """TARGET and its arguments as they were typed."""
    target: Target
    options: Options
    variables: Mapping[str, str]
    """The environment of the target, before ours is added."""
    run_dir: str
    started_unix: float
    folder: str
    """The working directory, which the target may remove."""

    @property
    def lane_name(self) -> str:
        return self.options.name or self.target.name

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that are redacted wherever they appear."""
        return secret_values(self.words, self.variables)
