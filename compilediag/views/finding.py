"""Everything a receipt knows of one finding: what it means in this run, for `explain N`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compilediag.views import lookups
from compilediag.views.finding_rows import place, title_of, when, writer
from compilediag.views.style import RenderOptions
from compilediag.views.text import columns, hang, pad
from compilediag.views.words import count, seconds

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
    number: int, finding: FindingRecord, receipt: Receipt, look: RenderOptions
) -> str:
    """All facts of one finding, labelled, each compile on its own line."""
    title = look.text(title_of(finding))
    head = hang(f"{look.text(finding.rule, 8)} {title}", look.width, f"finding {number}: ", "  ")
    lines = [look.styled(line, "bold") for line in head] + [""]
    told = _facts(finding, receipt, look)
    width = max(_LABEL_WIDTH, *(columns(label) + 2 for label, _ in told))
    for label, value in told:
        lines += hang(value, look.width, f"  {pad(label, width)}", " " * (width + 2))
    happened = lookups.events(finding, receipt)
    if happened:
        caused = any(lookups.causes(finding, receipt))
        verb = "it caused" if caused else "it speaks of"
        lines += ["", f"  {count(len(happened), 'compile')} {verb}:"]
        lines += [_compile(item, look) for item in happened[:MOST_COMPILES]]
        if len(happened) > MOST_COMPILES:
            lines.append(f"    +{len(happened) - MOST_COMPILES} more: compilediag show --timeline")
        lines += _beside(finding, happened, look) if caused else []
    return "\n".join(lines) + "\n"


def _facts(finding: FindingRecord, receipt: Receipt, look: RenderOptions) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    if finding.variable:
        told.append(("variable", look.text(finding.variable)))
    changed = lookups.change(finding, receipt)
    if changed is not None:
        told += [("expected", look.text(changed[0])), ("met", look.text(changed[1]))]
    told += [
        ("then", f"{look.text(expected)} {look.arrow} {look.text(actual)}")
        for expected, actual in lookups.changes(finding)[1:]
    ]
    causes = list(lookups.causes(finding, receipt))
    guards = dict.fromkeys(cause.guard for cause in causes)
    if not guards and finding.evidence.get("guard") is not None:
        guards = {str(finding.evidence["guard"]): None}
    told += [("guard", look.text(guard, 2000)) for guard in guards]
    told += [("source", look.text(item)) for item in dict.fromkeys(c.source for c in causes)]
    told.append(("where", place(finding, look) or "could not be determined"))
    told += [("written by", writer(w, look, whole=True)) for w in lookups.writers(finding, receipt)]
    told.append(("when", when(finding) or "the step was not seen"))
    told.append(("cost", seconds(finding.cost_s)))
    told += _judgement(finding, look)
    for key, value in finding.evidence.items():
        if key not in _SHOWN_APART:
            told += _evidence(key, value, look)
    return told


def _evidence(key: str, value: object, look: RenderOptions) -> list[tuple[str, str]]:
    """What a rule kept beside the facts above: a line for each item of a list."""
    if value in (None, [], (), {}, "") or (key == "processes" and value == [0]):
        return []
    label = look.text(key.replace("_", " "), 30)
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    told: list[tuple[str, str]] = []
    for item in items[:MOST_ITEMS]:
        # A text of torch keeps its lines (a user stack); its padding is no information.
        text = f"{item:.3g}" if isinstance(item, float) else str(item)
        for index, line in enumerate(text.splitlines()[:MOST_LINES]):
            told.append(("" if index else label, look.text(" ".join(line.split()), 1000)))
    if len(items) > MOST_ITEMS:
        told.append((label, f"+{len(items) - MOST_ITEMS} more"))
    return told


def _judgement(finding: FindingRecord, look: RenderOptions) -> list[tuple[str, str]]:
    """Whose code it is, how sure it is, what to change."""
    owner = {"user": "your code", "third_party": "a library", "torch": "torch itself"}
    told = [("owner", owner.get(finding.ownership or "", "could not be determined"))]
    told.append(("confidence", _CONFIDENCE.get(finding.confidence, look.text(finding.confidence))))
    if finding.also:
        told.append(("seen as", look.text(", ".join(finding.also))))
    told.append(("fix", look.text(finding.fix.summary)))
    if finding.fix.caveat:
        told.append(("note", look.text(finding.fix.caveat)))
    verified = "yes, by a rerun" if finding.fix.verified else "no: change it, run again, compare"
    told.append(("verified", verified))
    return told


def _compile(item: CompileEvent, look: RenderOptions) -> str:
    step = "step not seen" if item.step is None else f"step {item.step}"
    cells = (look.text(item.compile_id, 40), step, seconds(item.seconds))
    widths = (8, 13, 12)
    told = "  ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True))
    frame = f"{look.text(item.frame.function, 60)}, {look.path(item.frame.file, 60)}"
    return look.fit(f"    {told}{frame}:{item.frame.line}", look.width)


def _beside(finding: FindingRecord, happened: list[CompileEvent], look: RenderOptions) -> list[str]:
    """Guards of other causes that were false at the same compiles: fixing one may not suffice."""
    others = [
        _named(cause, look)
        for item in happened
        for cause in item.causes
        if (cause.family, cause.variable) != (finding.family, finding.variable)
    ]
    distinct = list(dict.fromkeys(others))
    if not distinct:
        return []
    warning = "also false at those compiles (this fix alone may not prevent them all):"
    lines = ["", *hang(warning, look.width, "  ", "  ")]
    for text in distinct[:10]:
        lines += hang(text, look.width, "    ", "      ")
    return lines + ([f"    +{len(distinct) - 10} more"] if len(distinct) > 10 else [])


def _named(cause: EventCause, look: RenderOptions) -> str:
    where = f"  {look.path(cause.file, 60)}:{cause.line}" if cause.file else ""
    rule, family = look.text(cause.rule or "", 8), look.text(cause.family.replace("_", " "), 60)
    return f"{rule} {family}: {look.text(cause.variable, 120)}{where}".strip()
