"""One finding in the verdict screen: what happened, where and when and by whom, what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.receipt.proofs import effect_of
from compilediag.receipt.schema.compiles import Writer
from compilediag.receipt.user_line import leading_call
from compilediag.views import lookups
from compilediag.views.format import count, seconds, steps
from compilediag.views.place import first_line, library_line, passed_at
from compilediag.views.settings import export_line
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import ChangedAt, FindingRecord, PartRecord
    from compilediag.receipt.schema.receipt import Receipt

INDENT = "     "
_SEVERITY = {"error": "red", "warning": "yellow", "info": "dim"}
_MAX_PARTS = 4
"""Named on the screen; `explain` has them all."""
_TEXT_CHARS = 120
"""Of one value, such as a shape or the text of a guard; `explain` shows more."""


def finding_rows(
    number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> list[str]:
    """The lines of one finding; its number is the one `compilediag explain` takes."""
    return [
        *_what(number, finding, receipt, options),
        *_where(finding, receipt, options),
        *_parts(finding, options),
        *_fix(finding, options),
        *_setting(finding, options),
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
    detail = detail_of(finding, receipt, options)
    joined = f"{title}: {detail}" if detail else title
    styled = f"{options.styled(f'{number:>3}', 'bold')}  "
    styled += options.styled(rule, _SEVERITY.get(finding.severity, "bold")) + " "
    if display_width(joined) <= room:
        line = f"{pad(joined, room)}  {cost}" if cost else joined
        return [styled + options.styled(title, "bold") + line[len(title) :]]
    # Too long for one line: the change gets its own, where more of it can be read.
    head = pad(options.truncate(title, room), room) + (f"  {cost}" if cost else "")
    return [styled + options.styled(head, "bold"), *options.wrap(detail, INDENT)[:2]]


def title_of(finding: FindingRecord) -> str:
    """What was found, in plain words; older receipts have the slug only."""
    return finding.title or finding.slug.replace("-", " ")


def detail_of(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """The variable and how it changed: `pos.pe  [1, 16] → [8, 16]`."""
    variable = finding.variable
    name = options.text(variable, _TEXT_CHARS) if variable else ""
    changed = lookups.change(finding, receipt)
    if changed is None:
        return name
    others = " (and others)" if len(lookups.changes(finding)) > 1 else ""
    return f"{name}  {options.change(*changed, _TEXT_CHARS)}{others}".strip()


def _where(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> list[str]:
    """Line two: file and line, when, who writes it. Of what is in a library the program's own line
    comes first, and the library's behind it on a line of its own."""
    library = library_line(finding, options)
    written = [
        f"written by {writer(item, options)}" for item in lookups.guessed(finding, receipt)[:2]
    ]
    seen = changed_by(finding, receipt, options)
    first = [seen, first_line(finding, options), when(finding), passed_at(finding, options)]
    others = len(lookups.calls(finding, receipt)) - 1
    if leading_call(finding) is not None and others > 0:
        first.insert(2, f"and from {count(others, 'other line')}")
    if leading_call(finding) is None or not library:
        parts = [*first, *written, *library]
        return options.wrap_items([text for text in parts if text], INDENT)
    parts = [text for text in first if text]
    return [
        *options.wrap_items(parts, INDENT),
        *options.wrap_items([*library, *written], f"{INDENT}at ", f"{INDENT}   "),
    ]


def _parts(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """What else the same act changed: other variables than the one above."""
    named = [part_text(part, options) for part in finding.parts]
    named = list(dict.fromkeys(text for text in named if text))
    if not named:
        return []
    more = [f"+{len(named) - _MAX_PARTS} more"] if len(named) > _MAX_PARTS else []
    return options.wrap(f"with {', '.join([*named[:_MAX_PARTS], *more])}", INDENT, INDENT + "  ")


def part_text(part: PartRecord, options: RenderOptions) -> str:
    """The variable of another cause and its change: `two.active 'en' → 'de'`."""
    name = options.text(part.variable, _TEXT_CHARS)
    if not name or part.expected is None or part.actual is None:
        return name
    return f"{name} {options.change(part.expected, part.actual, _TEXT_CHARS)}"


def finding_line(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """What the first two lines of the screen say, as one, while the program runs."""
    what = options.text(title_of(finding), _TEXT_CHARS)
    detail = detail_of(finding, receipt, options)
    parts = [f"{what}: {detail}" if detail else what, changed_by(finding, receipt, options)]
    parts.append(first_line(finding, options))
    parts += [
        f"written by {writer(item, options)}" for item in lookups.guessed(finding, receipt)[:1]
    ]
    parts += [seconds(finding.cost_s)] if finding.cost_s is not None else []
    return " · ".join(part for part in parts if part)


def changed_by(finding: FindingRecord, receipt: Receipt, options: RenderOptions) -> str:
    """`changed by arm, train.py:34, called from train.py:49 (seen)`; nothing where no change was
    seen."""
    changed = finding.changed_at
    if changed is None:
        return ""
    line = options.place(changed.file, changed.line)
    writers = lookups.writers(finding, receipt)
    known = any(w.evidence == "witnessed" and w.line == changed.line for w in writers)
    if changed.in_call and not known:
        return f"changed inside the compiled call, {line} (seen)"
    text = f"changed by {writer(_line_of(changed), options)}"
    if len(changed.stack) > 1:
        caller = options.place(changed.stack[1].file, changed.stack[1].line)
        text += f", inside the call {caller}" if changed.in_call else f", called from {caller}"
    return f"{text} (seen)"


def _line_of(changed: ChangedAt) -> Writer:
    return Writer(function=changed.function, file=changed.file, line=changed.line)


def writer(item: Writer, options: RenderOptions, *, whole: bool = False) -> str:
    """`setc, model.py:23`; the whole qualified name on request."""
    name = item.function if whole else item.function.rpartition("<locals>.")[2]
    if name == "<module>" and item.file:
        return options.place(item.file, item.line)
    return options.text(name, 120) + (
        f", {options.place(item.file, item.line)}" if item.file else ""
    )


def when(finding: FindingRecord) -> str:
    """The steps, with how often where that is more than once a step."""
    sentence = steps(finding.steps)
    if finding.count > max(len(finding.steps), 1):
        return f"{finding.count} times, {sentence}" if sentence else f"{finding.count} times"
    return sentence


def _fix(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """Line three: what to change, and what that costs."""
    fix = finding.fix
    sentence = options.text(fix.summary)
    lines = options.wrap(sentence, f"{INDENT}fix: ", style="cyan")
    if not fix.caveat:
        return lines
    caveat = options.text(fix.caveat)
    joined = options.wrap(f"{sentence} ({caveat})", f"{INDENT}fix: ", style="cyan")
    if len(joined) == 1 and "(" not in caveat:
        return joined
    return lines + options.wrap(caveat, f"{INDENT}note: ", style="cyan")


def _setting(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """Line four: the change that is proved to remove it and what it did, else what should without
    an edit; one line, however long, to be copied."""
    proof = finding.fix.proof
    if proof is not None:
        line = options.styled(f"{INDENT}proved: {options.text(proof.change, 4096)}", "green")
        effect = effect_of(proof).replace("→", options.arrow)
        seen = [options.text(effect), count(proof.runs, "run")]
        return [line, *options.wrap_items([text for text in seen if text], f"{INDENT}        ")]
    best = finding.fix.candidates[:1]
    lines = [f"{INDENT}no edit: {options.text(export_line(item), 4096)}" for item in best]
    return [options.styled(line, "cyan") for line in lines]
