"""Why a test fails, as values and as the text of the failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from compilediag.views.format import count
from compilediag_harness.redaction.known_values import secret_values
from compilediag_harness.redaction.redactor import Redactor

_NOUNS = {
    "recompiles": "recompile",
    "graph_breaks": "graph break",
    "frames": "frame",
    "compiles": "compile",
    "eager_fallbacks": "eager fallback",
    "recordings": "CUDA-graph recording",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a test fails."""

    headline: str
    details: tuple[str, ...] = ()
    blind: bool = False
    """The test cannot be judged, which is no pass."""

    @classmethod
    def of_blindness(cls, headline: str, details: Iterable[str] = ()) -> Problem:
        """Why the test cannot be judged."""
        return cls(f"blind: {headline}", tuple(details), blind=True)

    @classmethod
    def of_unmeasured(cls, name: str) -> Problem:
        """A count has a limit and was not measured: that is not zero."""
        return cls.of_blindness(
            f"{_NOUNS[name]}s were not measured here: skip the test where they cannot be"
        )


class CompileFailure(pytest.fail.Exception):
    """A test compiled what it must not, or cannot be judged. Shown without a traceback."""

    __module__ = "builtins"  # pytest shows the module otherwise, and cuts the sentence

    def __init__(self, text: str) -> None:
        super().__init__(text, pytrace=False)


def failure_text(problems: Sequence[Problem], block: str = "") -> str:
    """The problems as text without secrets; `block` names the block of the test they are about."""
    about = f"{block}: " if block else ""
    lines: list[str] = []
    for problem in problems:
        lines.append(f"compilediag: {about}{problem.headline}")
        lines += [f"  {line}" for line in problem.details]
    return Redactor(secret_values(sys.argv, os.environ)).text("\n".join(lines), is_name=True)


def counted(name: str, number: int) -> str:
    """A count in words: "2 recompiles"."""
    return count(number, _NOUNS[name])
