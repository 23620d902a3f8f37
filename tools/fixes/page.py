"""The page of what `compilediag fix` proves on the scenarios, from their stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

from compilediag.diagnosis.codes import UNCHANGEABLE

GOAL = 0.8

HEAD = """\
<!-- Written by `make fixes`; change the code instead. -->
# What `compilediag fix` proves on the scenarios

Every finding of at least `warning` of every `scenarios/*/broken.py`: the change that
[fix](../reference/fix.md) proves, or why there is none. Each proof was then followed as its
line or patch says, in a plain run without compilediag, and torch's own counters were compared with
the certificate.
`make fixes FIXES="NAME NAME"` runs some scenarios again; results are stored in `build/fixes`.
"""


OF_THE_ENVIRONMENT = ("CD613", "CD614", "CD641", "CD901", "CD902", "CD903")
"""Rules about compile caches on the machine, other ranks, what was meant to be compiled ahead of
time, and what was recorded."""

NO_LONGER = "No longer proved since 2026-11-26: edits that had one scenario and no foreign proof"


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


class Former(TypedDict):
    """A proof that a finding had, by an edit that `fix` no longer makes."""

    scenario: str
    rule: str
    about: str
    """The variable of the finding, or its title."""
    change: str


def contradictions(results: Iterable[Result]) -> list[str]:
    """Each with its scenario and finding."""
    return [
        f"{result['scenario']} {finding['id']} ({finding['rule']}): {text}"
        for result in results
        for finding in result["findings"]
        for text in finding["contradictions"]
    ]


def rendered(results: Sequence[Result], names: Sequence[str], former: Sequence[Former] = ()) -> str:
    """The page. Scenarios without a result stand in it as such.

    Args:
        results: of each scenario that ran.
        names: of all scenarios.
        former: proofs by edits that are gone; those are listed whose finding has no proof now.
    """
    known = {result["scenario"]: result for result in results}
    sections = [
        HEAD,
        _summary(results, len(names) - len(known)),
        _listed("Contradictions", contradictions(results)),
        _listed("Proofs that no plain run could follow", list(_unchecked(results))),
        _rules(results),
        _listed(NO_LONGER, list(_no_longer(results, former))),
        _rows(results),
        _listed("Not run", [line for name in names if (line := _not_run(name, known.get(name)))]),
        _programs(known, names),
    ]
    return "\n".join(section for section in sections if section)


def _summary(results: Sequence[Result], missing: int) -> str:
    findings = [finding for result in results for finding in result["findings"]]
    share = _proved(findings) / len(findings) if findings else 0.0
    versions = sorted({result["torch"] for result in results})
    goal = "reached" if share >= GOAL else f"missed by {GOAL - share:.0%} of the findings"
    outside = sum((_why(each) or "").startswith("cannot be changed") for each in findings)
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
{outside} findings have no change that could be tried, for the reasons below; they are counted too.
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


def _no_longer(results: Iterable[Result], former: Iterable[Former]) -> Iterator[str]:
    """The former proofs of findings that have none now."""
    proved = {
        (result["scenario"], finding["rule"], finding["variable"] or finding["title"])
        for result in results
        for finding in result["findings"]
        if finding["proof"] is not None
    }
    for each in former:
        if (each["scenario"], each["rule"], each["about"]) not in proved:
            yield f"{each['scenario']}, {each['rule']} {each['about']}: {each['change']}"


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


def _rows(results: Iterable[Result]) -> str:
    lines = ["## By finding", "", "| scenario | finding | | change, or why there is none |"]
    lines.append("|---|---|---|---|")
    for result in results:
        for finding in result["findings"]:
            about = " ".join(
                filter(None, [finding["rule"], finding["variable"] or finding["title"]])
            )
            mark = "proved" if finding["proof"] else ("refused" if finding["refused"] else "")
            cell = "<br>".join(_outcome(finding))
            lines.append(f"| {result['scenario']} | {_text(about)} | {mark} | {cell} |")
    return "\n".join([*lines, ""])


def _why(finding: Finding) -> str | None:
    """Why nothing was tried, in words."""
    if finding["why"] != "no candidate":
        return finding["why"]
    words = UNCHANGEABLE.get(finding["rule"])
    return f"cannot be changed: {words}" if words else finding["why"]


def _is_apart(finding: Finding) -> bool:
    """Whether no change of the program's code could be proved: it does not run, or the finding is
    about something else."""
    if finding["proof"] is not None or finding["refused"]:
        return False
    fails = (finding["why"] or "").startswith("the program itself fails")
    return fails or finding["rule"] in OF_THE_ENVIRONMENT


def _outcome(finding: Finding) -> Iterator[str]:
    if finding["proof"] is not None:
        yield _code(finding["proof"][1])
        return
    for line, reason in finding["refused"]:
        yield f"{_code(line)}: {_text(reason)}"
    if (why := _why(finding)) is not None:
        yield _text(why)


def _not_run(name: str, result: Result | None) -> str | None:
    if result is None:
        return f"{name}: no result"
    return f"{name}: {result['not_run']}" if result["not_run"] else None


def _programs(known: Mapping[str, Result], names: Iterable[str]) -> str:
    """What the results belong to: a test compares it with the scenarios as they are."""
    lines = [f"{name} {known[name]['program'] if name in known else '-'}" for name in names]
    return "\n".join(["<!-- programs that ran, by digest", *lines, "-->", ""])


def _code(text: str) -> str:
    """A line in a cell: a bar would end it."""
    return f"`` {' '.join(text.split())} ``".replace("|", "\\|")


def _text(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain.replace("<", "&lt;").replace("[", "\\[").replace("_", "\\_").replace("*", "\\*")
