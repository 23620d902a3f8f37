"""The one place where a rule's finding is built, with what the register holds for its code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.codes import REGISTER, Severity
from compilediag.diagnosis.findings import (
    CauseId,
    Confidence,
    Finding,
    HasCaller,
    add_caller,
    make_place,
)
from compilediag.receipt.schema.compiles import FixRecord, Place
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.ownership import classify_ownership, find_installed
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location


class Advice(NamedTuple):
    """Advice about a finding: a recipe in the imperative, where all that it takes for granted
    was established, else why torch guards on the value and which choices there are. Names in braces
    are filled in."""

    fix: str
    caveat: str | None = None
    """The price."""
    recipe: str | None = None
    """The name of the recipe; None for choices."""

    def fill(self, **names: str) -> Advice:
        """Fill in some of its names."""
        fix, caveat = self.fix, self.caveat
        for name, value in names.items():
            fix = fix.replace(f"{{{name}}}", value)
            caveat = None if caveat is None else caveat.replace(f"{{{name}}}", value)
        return Advice(fix, caveat, self.recipe)


def make_finding(
    timeline: Timeline,
    code: str,
    title: str,
    fix: str,
    *,
    caveat: str | None = None,
    recipe: str | None = None,
    location: Location | Place | None = None,
    variable: str | None = None,
    severity: Severity | None = None,
    confidence: Confidence = "exact",
    count: int = 1,
    steps: Iterable[int] = (),
    cost_s: float | None = None,
    evidence: dict[str, object],
    also: tuple[str, ...] = (),
    about: tuple[CauseId | BreakLine, ...] = (),
    called_from: HasCaller | None = None,
) -> Finding:
    """Make a finding of `code` with what the register holds for it: its severity unless another is
    given, owned by whom `location` belongs to; without one by the user. `called_from`: what it is
    about, where neither `about` nor `location` is a frame, cause or break of the timeline."""
    register = REGISTER[code]
    finding = Finding(
        rule=code,
        slug=register.slug,
        severity=severity or register.severity,
        confidence=confidence,
        family=register.family,
        variable=variable,
        title=title,
        location=make_place(location),
        ownership="user"
        if location is None
        else classify_ownership(location.file, timeline.user_roots),
        count=count,
        steps=tuple(sorted(set(steps))),
        cost_s=cost_s,
        fix=FixRecord(summary=fix, recipe=recipe, how=register.how, caveat=caveat),
        evidence=evidence,
        also=also,
        about=about,
    )
    return finding if called_from is None else add_caller(finding, called_from)


def replace_advice(finding: Finding, advice: Advice) -> Finding:
    """Replace what a finding says to do."""
    fix = replace(finding.fix, summary=advice.fix, caveat=advice.caveat, recipe=advice.recipe)
    return replace(finding, fix=fix)


def pick(record: object, *names: str) -> dict[str, object]:
    """Pick attributes of a record by name, for the evidence: tuples as lists."""
    attributes = {name: getattr(record, name) for name in names}
    return {n: [*value] if isinstance(value, tuple) else value for n, value in attributes.items()}


def format_place(file: str, line: int | str) -> str:
    """Format a line for a sentence: "train.py:3", of a package "einops/_backends.py:3"."""
    file = file.replace("\\", "/")
    name, installed = file.rpartition("/")[2], find_installed(file)
    package, inside, _ = file[installed:].partition("/") if installed else ("", "", "")
    return f"{package}{inside}{name}:{line}" if inside else f"{name}:{line}"


def format_count(count: int, noun: str) -> str:
    """Format a count and its noun: "1 call", "3 calls"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_more(count: int) -> str:
    """Format what follows the first of `count` things in a title: ", and 2 more"; empty for one."""
    return f", and {count - 1} more" if count > 1 else ""


def shorten(text: str, limit: int) -> str:
    """Shorten a text to its first line, in at most `limit` characters."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
