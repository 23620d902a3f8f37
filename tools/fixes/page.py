"""The page of what `compilediag fix` proves: on public programs, from a file of what was measured,
and on the scenarios, from their stored results."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

GOAL = 0.8

HEAD = """\
<!-- Written by `make fixes`; change the code instead. -->
# What `compilediag fix` proves
"""

SCENARIOS = """\
## The scenarios

Every finding of at least `warning` of every `scenarios/*/broken.py`. Each proof was then followed
as its line or patch says, in a plain run without compilediag, and torch's own counters were
compared with the certificate. `make fixes FIXES="NAME NAME"` runs some again; `build/fixes` has
each finding with what was tried.
"""

OF_THE_ENVIRONMENT = ("CD613", "CD614", "CD641", "CD901", "CD902", "CD903")
"""Rules about compile caches on the machine, other ranks, what was meant to be compiled ahead of
time, and what was recorded."""


class Finding(TypedDict):
    """A finding and what became of it."""

    id: str
    rule: str
    variable: str | None
    title: str
    proof: tuple[str, str] | None
    """Kind and line of the proved change."""
    refused: list[tuple[str, str]]
    """Lines that were tried, each with the certificate's reason."""
    why: str | None
    """Why nothing was tried."""
    contradictions: list[str]
    """What a plain run with the change says against the certificate."""
    unchecked: str | None
    """Why no plain run could be made."""


class Result(TypedDict):
    """One scenario."""

    scenario: str
    program: str
    """Digest of the program that ran."""
    torch: str
    not_run: str | None
    findings: list[Finding]


class Program(TypedDict):
    """One public program and what `fix` did for it."""

    name: str
    repository: str
    commit: str
    command: str
    findings: int
    proved: int
    change: str
    """What was proved; else what was certified by hand."""
    executions: int
    wall: float
    """Seconds of `fix` by those of a plain run."""
    cpu: float


class ByHand(TypedDict):
    """One public program that an engineer mended with the tool."""

    program: str
    findings: int
    named: int
    """Findings whose sentence and line were right."""
    edit: str
    """What was edited, where the findings say, and what is left."""
    answer: str
    """Of `certify`."""


def contradictions(results: Iterable[Result]) -> list[str]:
    """Each with its scenario and finding."""
    return [
        f"{result['scenario']} {finding['id']} ({finding['rule']}): {text}"
        for result in results
        for finding in result["findings"]
        for text in finding["contradictions"]
    ]


def rendered(results: Sequence[Result], names: Sequence[str], public: Mapping[str, Any]) -> str:
    """The page. Scenarios without a result stand in it as such, where any has one.

    Args:
        results: of each scenario that ran.
        names: of all scenarios.
        public: "about", a sentence of how they were run, and "programs"; "mended", how others were
            by an engineer, and "by_hand".
    """
    known = {result["scenario"]: result for result in results}
    sections = [HEAD, _public(public["about"], public["programs"])]
    sections += [_by_hand(public["mended"], public["by_hand"])] if public.get("by_hand") else []
    if known:
        sections += [
            SCENARIOS,
            _summary(results, len(names) - len(known)),
            _listed("Contradictions", contradictions(results)),
            _listed("Proofs that no plain run could follow", list(_unchecked(results))),
            _rules(results),
            _listed("Not run", [line for name in names if (line := _not_run(known.get(name)))]),
            f"<!-- programs {digest_programs(known)} -->\n",
        ]
    return "\n".join(section for section in sections if section)


def digest_programs(known: Mapping[str, Result]) -> str:
    """A digest of what ran: a test compares it with the scenarios as they are."""
    lines = [f"{name} {known[name]['program']}" for name in sorted(known)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _public(about: str, programs: Sequence[Program]) -> str:
    lines = ["## Public programs", "", about, ""]
    lines += ["| program | findings | proved | runs | wall | CPU | change |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for its in programs:
        name = f"{its['name']} ({its['repository']} {its['commit']})"
        numbers = f"{its['findings']} | {its['proved']} | {its['executions']}"
        times = f"{its['wall']:.1f} | {its['cpu']:.1f}"
        lines += [f"| {_text(name)} | {numbers} | {times} | {its['change']} |"]
    return "\n".join([*lines, ""])


def _by_hand(about: str, programs: Sequence[ByHand]) -> str:
    lines = ["## By an engineer", "", about, ""]
    lines += ["| program | findings | line right | edit | certify |", "|---|---|---|---|---|"]
    for its in programs:
        numbers = f"{its['findings']} | {its['named']}"
        lines += [f"| {_text(its['program'])} | {numbers} | {its['edit']} | {its['answer']} |"]
    return "\n".join([*lines, ""])


def _summary(results: Sequence[Result], missing: int) -> str:
    findings = [finding for result in results for finding in result["findings"]]
    share = _proved(findings) / len(findings) if findings else 0.0
    versions = sorted({result["torch"] for result in results})
    goal = "reached" if share >= GOAL else f"missed by {GOAL - share:.0%} of the findings"
    untried = sum(each["proof"] is None and not each["refused"] for each in findings)
    apart = [each for each in findings if _is_apart(each)]
    others = len(findings) - len(apart)
    of_program = _proved(findings) / max(others, 1)
    rules = ", ".join(sorted({each["rule"] for each in apart}))
    checked = sum(bool(each["proof"]) and each["unchecked"] is None for each in findings)
    wrong = len(contradictions(results))
    proved = f"{_proved(findings)} of {len(findings)} findings ({share:.0%})"
    left = f" {missing} scenarios have no result yet." if missing else ""
    parts = "; ".join(
        f"{_proved(of_kind)} of {len(of_kind)} {name}"
        for name, of_kind in _by_kind(findings).items()
        if of_kind
    )
    return f"""\
torch {", ".join(versions)}, CPU. **{proved} have a proved change**; the goal of {GOAL:.0%}
is {goal}. By kind: {parts}.
{untried} findings have no change that could be tried; they are counted too.
{len(apart)} findings are about the environment, or of programs that fail as they are
({rules or "none"}): of the other {others}, {of_program:.0%} have a proved change.
{checked} proofs were checked in a plain run, {wrong} contradicted.{left}
"""


_KINDS = {
    "recompiles (CD1xx)": "CD1",
    "graph breaks (CD2xx)": "CD2",
    "steps and synchronisations (CD3xx)": "CD3",
    "CUDA graphs and padding (CD4xx)": "CD4",
    "evidence: nothing compiled, records lost (CD9xx)": "CD9",
}


def _by_kind(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    every = list(findings)
    return {
        name: [each for each in every if each["rule"].startswith(prefix)]
        for name, prefix in _KINDS.items()
    }


def _proved(findings: Iterable[Finding]) -> int:
    return sum(finding["proof"] is not None for finding in findings)


def _listed(title: str, lines: Sequence[str]) -> str:
    return (
        "\n".join([f"## {title}", "", *(f"- {_text(line)}" for line in lines), ""]) if lines else ""
    )


def _unchecked(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        for finding in result["findings"]:
            if finding["unchecked"] is not None:
                yield f"{result['scenario']} {finding['id']}: {finding['unchecked']}"


def _rules(results: Iterable[Result]) -> str:
    by_rule: dict[str, list[Finding]] = {}
    for result in results:
        for finding in result["findings"]:
            by_rule.setdefault(finding["rule"], []).append(finding)
    lines = ["## By rule", "", "| code | findings | proved | share | kinds of change |"]
    lines.append("|---|---|---|---|---|")
    for rule, findings in sorted(by_rule.items()):
        kinds = Counter(each["proof"][0] for each in findings if each["proof"])
        shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        proved = _proved(findings)
        share = f"{proved / len(findings):.0%}"
        lines.append(
            f"| [{rule}](../rules/{rule}.md) | {len(findings)} | {proved} | {share} | {shown} |"
        )
    return "\n".join([*lines, ""])


def _is_apart(finding: Finding) -> bool:
    """Whether no change of the program's code could be proved: it does not run, or the finding is
    about something else."""
    if finding["proof"] is not None or finding["refused"]:
        return False
    fails = (finding["why"] or "").startswith("the program itself fails")
    return fails or finding["rule"] in OF_THE_ENVIRONMENT


def _not_run(result: Result | None) -> str | None:
    if result is None or not result["not_run"]:
        return None
    return f"{result['scenario']}: {result['not_run']}"


def _text(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain.replace("<", "&lt;").replace("[", "\\[").replace("_", "\\_").replace("*", "\\*")
