"""Reasons why a test fails or cannot be judged, as values and as the text of the failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from compilediag.diagnosis.codes import info
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.format import count
from compilediag.views.text import clean
from compilediag_harness.redaction.redactor import Redactor, secret_values


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
        what = f"{_noun(name)}s were not measured here"
        return cls.of_blindness(f"{what}: skip the test where they cannot be")


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
    return Redactor(secret_values(sys.argv, os.environ)).text("\n".join(lines))


def counted(name: str, number: int) -> str:
    """A count in words: "2 recompiles"."""
    return count(number, _noun(name))


def _noun(name: str) -> str:
    noun = name.removesuffix("s").replace("_", " ")
    return "CUDA-graph recording" if noun == "recording" else noun


NOTHING_COMPILED = "CD901"
_KNOWN_REASONS = frozenset({"ahead_of_time", "failed", "interrupted", "torch_modules"})
"""Of CD901, with which there is nothing to guess."""


def blind(receipt: Receipt, calls: int, *, may_be_quiet: bool = False) -> list[Problem]:
    """Why this test cannot be judged. `may_be_quiet`: that nothing compiled is no reason, because
    it is what the test is about."""
    problems: list[Problem] = []
    for finding in receipt.findings:
        if not info(finding.rule).blinds or (may_be_quiet and finding.rule == NOTHING_COMPILED):
            continue
        hints = [f"fix: {clean(finding.fix.summary)}"]
        headline = "the evidence is not complete, so the counts say nothing"
        if finding.rule == NOTHING_COMPILED:
            headline = "nothing was compiled in this test, so its counts say nothing"
            if AnyEvidence.of(finding.evidence).why not in _KNOWN_REASONS:
                hints = why_nothing_compiled(receipt, calls)
        title = f"{finding.rule} {clean(finding.title or finding.slug)}"
        problems.append(Problem.of_blindness(headline, [title, *(f"  {hint}" for hint in hints)]))
    return problems


def why_nothing_compiled(receipt: Receipt, calls: int) -> list[str]:
    """Likely reasons, each with what to do. `calls`: of compiled callables."""
    if receipt.environment.hooks_available is None:
        return ["torch was not imported by the end of the test"]
    reasons: list[str] = []
    flags = receipt.environment.compile_flags
    if flags.get("disabled_by_environment"):
        reasons.append(
            "TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE is set: unset it for this test"
        )
    elif flags.get("disable"):
        reasons.append("torch._dynamo.config.disable is True: torch.compile is switched off")
    stance = flags.get("stance")
    if stance not in (None, "default"):
        reasons.append(f"torch.compiler.set_stance({clean(stance)!r}) is in force")
    if receipt.compile.frames:
        reasons.append("torch tried, and was left without a graph: see the frames that ran eager")
    elif calls and not reasons:
        reasons.append(
            f"{count(calls, 'compiled call')} ran without compiling: compiled before the test "
            "began (in a fixture of a wider scope, at import), or under an eager stance? Call "
            "torch.compile inside the test, or in a fixture of its own"
        )
    elif not reasons:
        reasons.append(
            "no compiled callable was called: is torch.compile reached, is the result used?"
        )
    return reasons
