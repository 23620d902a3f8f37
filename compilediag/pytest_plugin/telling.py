"""The text of a failure: every problem with everything behind it, its sentence first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from compilediag.pytest_plugin.judging import Problem
from compilediag.receipt.redact import Redactor, secret_values


class CompileFailure(pytest.fail.Exception):
    """A test compiled what it must not, or nothing can be said of it. Shown without a traceback."""

    __module__ = "builtins"  # pytest shows the module otherwise, and cuts the sentence

    def __init__(self, text: str) -> None:
        super().__init__(text, pytrace=False)


def tell(problems: Sequence[Problem], block: str = "") -> str:
    """The problems as text without secrets; `block` names the block of the test they are about."""
    about = f"{block}: " if block else ""
    lines: list[str] = []
    for problem in problems:
        lines.append(f"compilediag: {about}{problem.headline}")
        lines += [f"  {line}" for line in problem.details]
    return Redactor(secret_values(sys.argv, os.environ)).text("\n".join(lines), is_name=True)
