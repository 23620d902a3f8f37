"""Everything a receipt knows of one finding: what it means in this run, for `explain N`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compilediag.views import lookups
from compilediag.views.finding_rows import place, title_of, when, writer
from compilediag.views.format import count, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width, hanging_indent, pad

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause, FindingRecord
    from compilediag.receipt.schema.receipt import Receipt

_SHOWN_APART = frozenset(
    {"compile_ids", "expected", "actual", "values", "writers", "guard", "source", "roles"}
)
MOST_LINES = 12
MOST_ITEMS = 8
"""Of one list in the evidence; `show --json` has them all."""
_LABEL_WIDTH = 12
MOST_COMPILES = 50

_CONFIDENCE = {
    "exact": "exact: observed inside torch while the program ran",
    "text": "from the text of torch's log; what it stands for was not seen",
    "static": "from the source code alone; no run has confirmed it",
}


def render_finding(
    number: int, finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> str:
    """All facts of one finding, labelled, each compile on its own line."""
    title = options.text(title_of(finding))
    head = hanging_indent(
        f"{options.text(finding.rule, 8)} {title}", options.width, f"finding {number}: ", "  "
    )
    lines = [options.styled(line, "bold") for line in head] + [""]
    facts = _facts(finding, receipt, options)
    width = max(_LABEL_WIDTH, *(display_width(label) + 2 for label, _ in facts))
    for label, value in facts:
        lines += hanging_indent(value, options.width, f"  {pad(label, width)}", " " * (width + 2))
    happened = lookups.events(finding, receipt)
    if happened:
        caused = any(lookups.causes(finding, receipt))
        verb = "it caused" if caused else "it speaks of"
        lines += ["", f"  {count(len(happened), 'compile')} {verb}:"]
        lines += [_compile(item, options) for item in happened[:MOST_COMPILES]]
        if len(happened) > MOST_COMPILES:
            lines.append(f"    +{len(happened) - MOST_COMPILES} more: compilediag show --timeline")
        lines += _beside(finding, happened, options) if caused else []
    return "\n".join(lines) + "\n"


def _facts(
    finding: FindingRecord, receipt: Receipt, options: RenderOptions
) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    if finding.variable:
        parts.append(("variable", options.text(finding.variable)))
    changed = lookups.change(finding, receipt)
    if changed is not None:
        parts += [("expected", options.text(changed[0])), ("met", options.text(changed[1]))]
    parts += [
        ("then", f"{options.text(expected)} {options.arrow} {options.text(actual)}")
        for expected, actual in lookups.changes(finding)[1:]
    ]
    causes = list(lookups.causes(finding, receipt))
    guards = dict.fromkeys(cause.guard for cause in causes)
    if not guards and finding.evidence.get("guard") is not None:
        guards = {str(finding.evidence["guard"]): None}
    parts += [("guard", options.text(guard, 2000)) for guard in guards]
    parts += [("source", options.text(item)) for item in dict.fromkeys(c.source for c in causes)]
    parts.append(("where", place(finding, options) or "could not be determined"))
    parts += [
        ("written by", writer(w, options, whole=True)) for w in lookups.writers(finding, receipt)
    ]
    parts.append(("when", when(finding) or "the step was not seen"))
    parts.append(("cost", seconds(finding.cost_s)))
    parts += _judgement(finding, options)
    for key, value in finding.evidence.items():
        if key not in _SHOWN_APART:
            parts += _evidence(key, value, options)
    return parts


def _evidence(key: str, value: object, options: RenderOptions) -> list[tuple[str, str]]:
    """What a rule kept beside the facts above: a line for each item of a list."""
    if value in (None, [], (), {}, "") or (key == "processes" and value == [0]):
        return []
    label = options.text(key.replace("_", " "), 30)
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    parts: list[tuple[str, str]] = []
    for item in items[:MOST_ITEMS]:
        # A text of torch keeps its lines (a user stack); its padding is no information.
        text = f"{item:.3g}" if isinstance(item, float) else str(item)
        for index, line in enumerate(text.splitlines()[:MOST_LINES]):
            parts.append(("" if index else label, options.text(" ".join(line.split()), 1000)))
    if len(items) > MOST_ITEMS:
        parts.append((label, f"+{len(items) - MOST_ITEMS} more"))
    return parts


def _judgement(finding: FindingRecord, options: RenderOptions) -> list[tuple[str, str]]:
    """Whose code it is, how sure it is, what to change."""
    owner = {"user": "your code", "third_party": "a library", "torch": "torch itself"}
    parts = [("owner", owner.get(finding.ownership or "", "could not be determined"))]
    parts.append(
        ("confidence", _CONFIDENCE.get(finding.confidence, options.text(finding.confidence)))
    )
    if finding.also:
        parts.append(("seen as", options.text(", ".join(finding.also))))
    parts.append(("fix", options.text(finding.fix.summary)))
    if finding.fix.caveat:
        parts.append(("note", options.text(finding.fix.caveat)))
    verified = "yes, by a rerun" if finding.fix.verified else "no: change it, run again, compare"
    parts.append(("verified", verified))
    return parts


def _compile(item: CompileEvent, options: RenderOptions) -> str:
    step = "step not seen" if item.step is None else f"step {item.step}"
    cells = (options.text(item.compile_id, 40), step, seconds(item.seconds))
    widths = (8, 13, 12)
    sentence = "  ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True))
    frame = f"{options.text(item.frame.function, 60)}, {options.path(item.frame.file, 60)}"
    return options.truncate(f"    {sentence}{frame}:{item.frame.line}", options.width)


def _beside(
    finding: FindingRecord, happened: list[CompileEvent], options: RenderOptions
) -> list[str]:
    """Guards of other causes that were false at the same compiles: fixing one may not suffice."""
    others = [
        _named(cause, options)
        for item in happened
        for cause in item.causes
        if (cause.family, cause.variable) != (finding.family, finding.variable)
    ]
    distinct = list(dict.fromkeys(others))
    if not distinct:
        return []
    warning = "also false at those compiles (this fix alone may not prevent them all):"
    lines = ["", *hanging_indent(warning, options.width, "  ", "  ")]
    for text in distinct[:10]:
        lines += hanging_indent(text, options.width, "    ", "      ")
    return lines + ([f"    +{len(distinct) - 10} more"] if len(distinct) > 10 else [])


def _named(cause: EventCause, options: RenderOptions) -> str:
    where = f"  {options.path(cause.file, 60)}:{cause.line}" if cause.file else ""
    rule, family = (
        options.text(cause.rule or "", 8),
        options.text(cause.family.replace("_", " "), 60),
    )
    return f"{rule} {family}: {options.text(cause.variable, 120)}{where}".strip()
