"""One finding in the verdict screen: what happened, where and when and by whom, what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views import lookups
from compilediag.views.format import seconds, steps
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, hanging_indent, pad, wrap_items

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

INDENT = "     "
_SEVERITY = {"error": "red", "warning": "yellow", "info": "dim"}
_NOT_YOURS = {"third_party": "in a library", "torch": "in torch itself"}
_TEXT_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""


def finding_rows(
    number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> list[str]:
    """The lines of one finding; its number is the one `compilediag explain` takes."""
    return [
        *_what(number, finding, receipt, options),
        *_where(finding, receipt, options),
        *_fix(finding, options),
    ]


def _what(
    number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> list[str]:
    """Line one: number, code, title, variable, its change; what it cost at the right edge."""
    cost = seconds(finding.cost_s) if finding.cost_s is not None else ""
    rule = options.text(finding.rule, 8)
    prefix = f"{number:>3}  {rule} "
    room = options.width - len(prefix) - (len(cost) + 2 if cost else 0)
    title = options.text(title_of(finding), _TEXT_CHARS)
    detail = _detail(finding, receipt, options)
    joined = f"{title}: {detail}" if detail else title
    first = (
        f"{pad(options.truncate(joined, room), room)}  {cost}"
        if cost
        else options.truncate(joined, room)
    )
    styled = (
        options.styled(f"{number:>3}", "bold")
        + "  "
        + options.styled(rule, _SEVERITY.get(finding.severity, "bold"))
        + " "
    )
    if display_width(joined) <= room:
        return [styled + options.styled(title, "bold") + first[len(title) :]]
    # Too long for one line: the change gets its own, where more of it can be read.
    head = pad(options.truncate(title, room), room) + (f"  {cost}" if cost else "")
    below = hanging_indent(detail, options.width, INDENT, INDENT)
    return [styled + options.styled(head, "bold"), *below[:2]]


def title_of(finding: FindingRecord) -> str:
    """What was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def _detail(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """The variable and how it changed: `pos.pe  [1, 16] → [8, 16]`."""
    variable = finding.variable
    name = options.text(variable, _TEXT_CHARS) if variable else ""
    changed = lookups.change(finding, receipt)
    if changed is None:
        return name
    expected, actual = (options.text(value, _TEXT_CHARS) for value in changed)
    others = " (and others)" if len(lookups.changes(finding)) > 1 else ""
    return f"{name}  {expected} {options.arrow} {actual}{others}".strip()


def _where(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> list[str]:
    """Line two: file and line, when, who writes it."""
    parts = [text for text in (place(finding, options), when(finding)) if text]
    parts += [
        f"written by {writer(item, options)}" for item in lookups.writers(finding, receipt)[:2]
    ]
    if finding.ownership in _NOT_YOURS:
        parts.append(_NOT_YOURS[finding.ownership])
    return wrap_items(parts, options.dot, options.width, INDENT, INDENT)


def place(finding: FindingRecord, options: RenderOptions) -> str:
    """`model.py:7 in forward`, or nothing where no line is to blame."""
    location = finding.location
    if location is None:
        return ""
    line = f":{location.line}" if location.line else ""
    function = f" in {options.text(location.function, 60)}" if location.function else ""
    return f"{options.path(location.file, 60)}{line}{function}"


def writer(item: lookups.WrittenBy, options: RenderOptions, *, whole: bool = False) -> str:
    """`setc, model.py:23`; the whole qualified name on request."""
    name = item.function if whole else item.function.rpartition("<locals>.")[2]
    where = f", {options.path(item.file, 60)}:{item.line}" if item.file else ""
    return options.text(name, 120) + where


def when(finding: FindingRecord) -> str:
    """The steps, with how often where that is more than once a step."""
    sentence = steps(finding.steps)
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {sentence}" if sentence else f"{finding.count} times"
    return sentence


def _fix(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """Line three: what to change, and what that costs."""
    fix = finding.fix
    sentence = options.text(fix.summary) + (" (verified by a rerun)" if fix.verified else "")
    lines = hanging_indent(sentence, options.width, f"{INDENT}fix: ", f"{INDENT}     ")
    if fix.caveat:
        caveat = options.text(fix.caveat)
        short = (
            len(lines) == 1 and display_width(lines[0]) + display_width(caveat) + 3 <= options.width
        )
        if short and "(" not in caveat:
            lines = [f"{lines[0]} ({caveat})"]
        else:
            lines += hanging_indent(caveat, options.width, f"{INDENT}note: ", f"{INDENT}      ")
    return [options.styled(line, "cyan") for line in lines]
