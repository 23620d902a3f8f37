"""Limits as they are typed, `--fail-on 'recompiles>0,graph_breaks>2'`, and the counts over them.

A limit is what must not be: the gate fails where it holds. Counts are the same on every machine.
Only the times of compiling can be limited, as a ceiling that is far from what is usual.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from compilediag.compare.gate.judgement import Issue, Kind, build_finding_issue, build_issue
from compilediag.compare.keys import COUNTS, NEEDS
from compilediag.compare.run_baseline import RunBaseline
from compilediag.errors import UsageError
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt

SECONDS = {"compile_s": "total", "first_compile_s": "first_compile", "recompile_s": "recompile"}
"""Times that a limit can be about, and their fields of `receipt.compile.time_s`."""

NAMES = (*COUNTS, *NEEDS, "recordings", "replays", "findings", *SECONDS)
"""Names that a limit can be about, beside the codes of rules."""

EXAMPLE = "recompiles>0,CD201>0"
_CEILINGS = (">", ">=")  #: Operators of a limit on a time: no two runs take the same.

_OPERATORS: dict[str, Callable[[float, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_PART = re.compile(r"([A-Za-z_][A-Za-z_0-9.]{0,59})\s{0,9}(>=|<=|==|!=|>|<)\s{0,9}(-?[0-9]{1,9})")
_CODE = r"CD[0-9]{3}"
_TIMINGS = (
    r"(?:.*_(?:s|ms|us|ns|seconds|time)|(?:.*_)?(?:time|seconds|wall|latency|duration|overhead)(?:_.*)?"
    r"|goodput.*|badput.*|mean|median|min|max|p\d+|steps?_.*|throughput.*|tokens.*)"
)
_SHOWN = 60


class Limit(NamedTuple):
    """One count, and what it must not be."""

    name: str  #: One of `NAMES`, or the code of a rule.
    operator: str
    bound: int

    def is_broken_by(self, count: float) -> bool:
        """True if a count, or seconds, is what it must not be."""
        return _OPERATORS[self.operator](count, self.bound)

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.bound}"


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Parse the limits of an expression, in its order: parts separated by commas.

    Raises:
        UsageError: a part does not parse, names no count, or could not ever decide anything.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise UsageError("the limits are empty: write for example 'recompiles>0,graph_breaks>2'")
    return tuple(_parse_limit(part, nth, len(parts)) for nth, part in enumerate(parts, start=1))


def _parse_limit(part: str, number: int, of: int) -> Limit:
    where = f"limit {number} of {of}, {part[:_SHOWN]!r}," if of > 1 else f"limit {part[:_SHOWN]!r}"
    match = _PART.fullmatch(part)
    if match is None:
        raise UsageError(f"{where} {_explain_unreadable(part)}")
    name, sign, digits = match.groups()
    limit = Limit(_resolve_name(name, where), sign, int(digits))
    if limit.bound < 0:
        raise UsageError(f"{where}: a count is never below 0, so the number must be 0 or more")
    if limit.name in SECONDS and sign not in _CEILINGS:
        raise UsageError(f"{where}: a time can only have a ceiling: write '{name}>{limit.bound}'")
    if limit.bound == 0 and sign in (">=", "<"):
        always = "always" if sign == ">=" else "never"
        raise UsageError(f"{where} would {always} fail: no count is below 0")
    return limit


def _explain_unreadable(part: str) -> str:
    if not part:
        return "is empty: there is a comma too many"
    if re.fullmatch(r"[A-Za-z_0-9.]+\s*=\s*-?[0-9]+", part):
        return "has '=': write '==' for equal, or '>' for more than"
    if re.fullmatch(r"[A-Za-z_0-9.]+", part):
        return f"has no number: write for example '{part[:_SHOWN]}>0'"
    if re.search(r"[<>=]\s*[0-9]+\.[0-9]*$|[<>=]\s*[0-9]{10,}$", part):
        return "needs a whole number of at most nine digits"
    return (
        "does not parse: write a name, one of > >= < <= == !=, and a whole number, separated by "
        "commas, for example 'recompiles>0,graph_breaks>2'"
    )


def _resolve_name(name: str, where: str) -> str:
    if name in NAMES:
        return name
    if re.fullmatch(_CODE, name, re.IGNORECASE):
        from compilediag.diagnosis.codes import REGISTER

        if name.upper() in REGISTER:
            return name.upper()
        raise UsageError(f"{where}: there is no rule {name.upper()}; `compilediag explain --list`")
    from difflib import get_close_matches

    close = get_close_matches(name.lower().replace("-", "_"), NAMES, n=1, cutoff=0.75)
    if not close and re.fullmatch(_TIMINGS, name.lower()):
        raise UsageError(
            f"{where} is about a time: times differ between machines and runs, so only counts and "
            f"the seconds of compiles ({', '.join(SECONDS)}) are limited"
        )
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise UsageError(
        f"{where}: there is no count {name!r}{meant} (names: {', '.join(NAMES)}, and the codes of "
        "rules such as CD201)"
    )


_SHOWN_BY: dict[str, tuple[Kind, ...]] = {
    "compiles": ("cause",),
    "recompiles": ("cause",),
    **dict.fromkeys(NEEDS, ("cause",)),
    "graphs": ("cause", "break"),
    "frames": ("break",),
    "graph_breaks": ("break",),
    "eager_fallbacks": ("fallback",),
    "recompile_limit_hits": ("fallback", "cause"),
    "findings": ("cause", "break", "fallback"),
    "recompile_s": ("cause",),
}
"""Kinds of issues that show where a count comes from."""


def describe_unmeasured(receipt: Receipt, run: RunBaseline, limits: Sequence[Limit]) -> list[str]:
    """Describe limits on what this run did not count; nothing may pass by them."""
    sentences: list[str] = []
    for limit in limits:
        if _get_value(receipt, run, limit.name) is None:
            # Counts of the receipt are always there, but not each of them for one's own code.
            by_file = limit.name in COUNTS or limit.name in SECONDS
            why = "cannot be split by whose code it is" if by_file else "was not measured"
            sentences.append(f"the limit {limit} cannot be held: what it counts {why}")
    return sentences


def _get_value(receipt: Receipt, run: RunBaseline, name: str) -> float | None:
    """Get the count or seconds that a limit of this name is about; None where not measured."""
    if name not in SECONDS:
        return get_count(receipt, run, name)
    # Compile seconds belong to no file: what only one's own code took is not known.
    whole = run.baseline.counts.keys() >= set(COUNTS)
    return getattr(receipt.compile.time_s, SECONDS[name]) if whole else None


def get_count(receipt: Receipt, run: RunBaseline, name: str) -> int | None:
    """Get the count that a limit of this name is about; None where it was not measured."""
    if name in COUNTS:
        return run.baseline.counts.get(name)
    if name in NEEDS:
        whole: int | None = getattr(receipt.compile, name)
        return whole if whole is None or not run.own_code_only else run.count_needed(receipt, name)
    if name in ("recordings", "replays"):
        part = receipt.cudagraph
        # Without a CUDA device there is nothing to record into: that is known to be none.
        if part is None or part.applicable is False:
            return None if part is None else 0
        return part.replays if name == "replays" else part.recordings
    return len(_list_findings(receipt, run, name))


def find_broken(receipt: Receipt, run: RunBaseline, limits: Sequence[Limit]) -> list[Issue]:
    """Find the broken limits, each after the issues that show where its count comes from."""
    issues: list[Issue] = []
    for limit in limits:
        count = _get_value(receipt, run, limit.name)
        if count is None or not limit.is_broken_by(count):
            continue
        if limit.operator not in ("<", "<="):  # what was counted is to blame
            about = _list_findings(receipt, run, limit.name)
            kinds = _SHOWN_BY.get(limit.name, ())
            candidates = [build_issue(receipt, run, known, None) for known in run.baseline.allowed]
            shown = [i for i in candidates if (i.kind in kinds if kinds else i.rule == limit.name)]
            if limit.name == "findings":
                ids = {finding.id for finding in about}
                shown = [issue for issue in shown if issue.finding in ids]
            met = {issue.finding for issue in shown}
            issues += [*shown, *(build_finding_issue(receipt, i) for i in about if i.id not in met)]
        timed = limit.name in SECONDS  # only the message has the fraction
        number = f"{count:.1f}" if timed else f"{count}"
        words = limit.name.removesuffix("_s").replace("_", " ") + " seconds" * timed
        message = f"{words}: {number}, and the limit is {limit}"
        before, after = (None, None) if timed else (limit.bound, int(count))
        issues.append(Issue("limit", limit.name, message, before=before, after=after))
    return issues


def _list_findings(receipt: Receipt, run: RunBaseline, name: str) -> list[FindingRecord]:
    """List the findings that a limit is about: those of a rule, or all but mere information."""
    findings = [finding for finding in receipt.findings if run.is_finding_counted(finding)]
    if name == "findings":
        return [finding for finding in findings if finding.severity != "info"]
    return [
        finding
        for finding in findings
        if name in (finding.rule, *finding.also, *(part.rule for part in finding.parts))
    ]
