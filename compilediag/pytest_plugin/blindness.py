"""Why a test cannot be judged: nothing compiled, or evidence was lost."""

from __future__ import annotations

from compilediag.diagnosis.codes import info
from compilediag.pytest_plugin.problems import Problem
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.format import count
from compilediag.views.text import clean

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
        details = [f"{finding.rule} {clean(finding.title or finding.slug)}"]
        if finding.rule == NOTHING_COMPILED:
            if AnyEvidence.of(finding.evidence).why in _KNOWN_REASONS:
                details.append(f"  fix: {clean(finding.fix.summary)}")
            else:
                details += [f"  {reason}" for reason in why_nothing_compiled(receipt, calls)]
            headline = "nothing was compiled in this test, so its counts say nothing"
        else:
            details.append(f"  fix: {clean(finding.fix.summary)}")
            headline = "the evidence is not complete, so the counts say nothing"
        problems.append(Problem.of_blindness(headline, details))
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
