"""Limits as they are typed: `--fail-on 'recompiles>0,graph_breaks>2,CD103>0'`.

A limit is what must not be: the gate fails where it holds. Counts are the same on every machine.
Of times only those of compiling can be limited, as a ceiling that is far from what is usual.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from compilediag.compare.keys import COUNTS
from compilediag.errors import UsageError

SECONDS = {
    "compile_s": "total",
    "first_compile_s": "first_compile",
    "recompile_s": "recompile",
}
"""Times that a limit can be about, and their fields of `receipt.compile.time_s`."""

NAMES = (*COUNTS, "recordings", "replays", "findings", *SECONDS)
"""What a limit can be about, beside the codes of rules."""

_CEILINGS = (">", ">=")
"""Operators of a limit on a time: no two runs take the same."""

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

    name: str
    """One of `NAMES`, or the code of a rule."""
    operator: str
    bound: int

    def is_broken_by(self, count: float) -> bool:
        """Whether a count, or seconds, is what it must not be."""
        return _OPERATORS[self.operator](count, self.bound)

    @property
    def forbids_more(self) -> bool:
        """Whether what was counted is to blame, and not that something is missing."""
        return self.operator in (">", ">=", "!=", "==")

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.bound}"


def parse_limits(text: str) -> tuple[Limit, ...]:
    """The limits of an expression, in its order: parts separated by commas.

    Raises:
        UsageError: a part does not parse, names no count, or could not ever decide anything.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise UsageError("the limits are empty: write for example 'recompiles>0,graph_breaks>2'")
    return tuple(_limit(part, number, len(parts)) for number, part in enumerate(parts, start=1))


def _limit(part: str, number: int, of: int) -> Limit:
    where = f"limit {number} of {of}, {part[:_SHOWN]!r}," if of > 1 else f"limit {part[:_SHOWN]!r}"
    found = _PART.fullmatch(part)
    if found is None:
        raise UsageError(f"{where} {_why_not(part)}")
    name, sign, digits = found.groups()
    limit = Limit(_name(name, where), sign, int(digits))
    if limit.bound < 0:
        raise UsageError(f"{where}: a count is never below 0, so the number must be 0 or more")
    if limit.name in SECONDS and sign not in _CEILINGS:
        raise UsageError(f"{where}: a time can only have a ceiling: write '{name}>{limit.bound}'")
    if limit.bound == 0 and sign in (">=", "<"):
        always = "always" if sign == ">=" else "never"
        raise UsageError(f"{where} would {always} fail: no count is below 0")
    return limit


def _why_not(part: str) -> str:
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


def _name(name: str, where: str) -> str:
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
            f"the seconds of compiles ({', '.join(SECONDS)}) are limited; "
            "`compilediag gate --ab 'CMD_A' 'CMD_B'` measures two commands side by side"
        )
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise UsageError(
        f"{where}: there is no count {name!r}{meant} (names: {', '.join(NAMES)}, and the codes of "
        "rules such as CD103)"
    )
