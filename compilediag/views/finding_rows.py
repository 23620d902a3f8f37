"""One finding in the verdict screen: what happened, where and when and by whom, what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views import lookups
from compilediag.views.style import RenderOptions
from compilediag.views.text import columns, flow, hang, pad
from compilediag.views.words import seconds, steps

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

INDENT = "     "
_SEVERITY = {"error": "red", "warning": "yellow", "info": "dim"}
_NOT_YOURS = {"third_party": "in a library", "torch": "in torch itself"}
_TEXT_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""


def finding_rows(
    number: int, finding: FindingRecord, receipt: Receipt, look: RenderOptions
) -> list[str]:
    """The lines of one finding; its number is the one `compilediag explain` takes."""
    return [
        *_what(number, finding, receipt, look),
        *_where(finding, receipt, look),
        *_fix(finding, look),
    ]


def _what(number: int, finding: FindingRecord, receipt: Receipt, look: RenderOptions) -> list[str]:
    """Line one: number, code, title, variable, its change; what it cost at the right edge."""
    cost = seconds(finding.cost_s) if finding.cost_s is not None else ""
    rule = look.text(finding.rule, 8)
    prefix = f"{number:>3}  {rule} "
    room = look.width - len(prefix) - (len(cost) + 2 if cost else 0)
    title = look.text(title_of(finding), _TEXT_CHARS)
    detail = _detail(finding, receipt, look)
    joined = f"{title}: {detail}" if detail else title
    first = f"{pad(look.fit(joined, room), room)}  {cost}" if cost else look.fit(joined, room)
    styled = (
        look.styled(f"{number:>3}", "bold")
        + "  "
        + look.styled(rule, _SEVERITY.get(finding.severity, "bold"))
        + " "
    )
    if columns(joined) <= room:
        return [styled + look.styled(title, "bold") + first[len(title) :]]
    # Too long for one line: the change gets its own, where more of it can be read.
    head = pad(look.fit(title, room), room) + (f"  {cost}" if cost else "")
    below = hang(detail, look.width, INDENT, INDENT)
    return [styled + look.styled(head, "bold"), *below[:2]]


def title_of(finding: FindingRecord) -> str:
    """What was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def _detail(finding: FindingRecord, receipt: Receipt, look: RenderOptions) -> str:
    """The variable and how it changed: `pos.pe  [1, 16] → [8, 16]`."""
    variable = finding.variable
    told = look.text(variable, _TEXT_CHARS) if variable else ""
    changed = lookups.change(finding, receipt)
    if changed is None:
        return told
    expected, actual = (look.text(value, _TEXT_CHARS) for value in changed)
    others = " (and others)" if len(lookups.changes(finding)) > 1 else ""
    return f"{told}  {expected} {look.arrow} {actual}{others}".strip()


def _where(finding: FindingRecord, receipt: Receipt, look: RenderOptions) -> list[str]:
    """Line two: file and line, when, who writes it."""
    told = [text for text in (place(finding, look), when(finding)) if text]
    told += [f"written by {writer(item, look)}" for item in lookups.writers(finding, receipt)[:2]]
    if finding.ownership in _NOT_YOURS:
        told.append(_NOT_YOURS[finding.ownership])
    return flow(told, look.dot, look.width, INDENT, INDENT)


def place(finding: FindingRecord, look: RenderOptions) -> str:
    """`model.py:7 in forward`, or nothing where no line is to blame."""
    location = finding.location
    if location is None:
        return ""
    line = f":{location.line}" if location.line else ""
    function = f" in {look.text(location.function, 60)}" if location.function else ""
    return f"{look.path(location.file, 60)}{line}{function}"


def writer(item: lookups.WrittenBy, look: RenderOptions, *, whole: bool = False) -> str:
    """`setc, model.py:23`; the whole qualified name on request."""
    name = item.function if whole else item.function.rpartition("<locals>.")[2]
    where = f", {look.path(item.file, 60)}:{item.line}" if item.file else ""
    return look.text(name, 120) + where


def when(finding: FindingRecord) -> str:
    """The steps, with how often where that is more than once a step."""
    told = steps(finding.steps)
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {told}" if told else f"{finding.count} times"
    return told


def _fix(finding: FindingRecord, look: RenderOptions) -> list[str]:
    """Line three: what to change, and what that costs."""
    fix = finding.fix
    told = look.text(fix.summary) + (" (verified by a rerun)" if fix.verified else "")
    lines = hang(told, look.width, f"{INDENT}fix: ", f"{INDENT}     ")
    if fix.caveat:
        caveat = look.text(fix.caveat)
        short = len(lines) == 1 and columns(lines[0]) + columns(caveat) + 3 <= look.width
        if short and "(" not in caveat:
            lines = [f"{lines[0]} ({caveat})"]
        else:
            lines += hang(caveat, look.width, f"{INDENT}note: ", f"{INDENT}      ")
    return [look.styled(line, "cyan") for line in lines]
