"""The view of `fix`: changes tried for each finding, with what each did, and those proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compilediag.certify.points import JudgedPoint, Verdict
from compilediag.fixes.proof_types import FindingResult, ListedChanges, TriedChange
from compilediag.receipt.schema.compiles import FindingRecord, ProofFigure
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import ProgramChange
from compilediag.views.document import Card
from compilediag.views.findings import build_card
from compilediag.views.format import format_seconds, pluralize
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import INDENT, render_title

_MAX_IMPOSSIBLE = 2
NOTHING = "no finding of at least `warning`: nothing to fix"


def render_fixes(
    receipt: Receipt,
    fixes: Sequence[FindingResult],
    environment: Sequence[str],
    changes: Sequence[ProgramChange],
    notes: Sequence[str],
    following: Sequence[str],
    options: RenderOptions,
) -> str:
    """Render each finding with what was tried, or with what to edit; the lines for a shell and the
    changes that are proved in one run; notes on what was not done, and why. `following`: what
    checks an edit, and what leads on from here, as commands."""
    proved = [fix for fix in fixes if fix.proof is not None]
    have = "has" if len(fixes) == 1 else "have"
    head = f"{len(proved)} of {pluralize(len(fixes), 'finding')} {have} a proved change"
    lines = [*options.wrap(head if fixes else NOTHING), ""]
    for fix in fixes:
        card = build_card(int(fix.finding.id[1:]), fix.advised, receipt, options)
        lines += render_title(card, options)
        for trial in fix.tried:
            lines += _render_outcome(trial, options)
        if all(trial.certificate.verdict == "refused" for trial in fix.tried):
            why = "no change to try" if not fix.listed.possible else "not tried"
            why = "none of them works" if fix.tried else why
            lines.append(f"{INDENT}{options.get_sign('warn')} {why}")
            lines += _render_impossible(fix.listed, options)
            lines += _render_edit(card, options)
            if fix.asks_for_edit:
                check = f"{INDENT}then check the edit: compilediag {following[0]}"
                lines.append(options.paint(check, "cyan"))
        lines.append("")
    lines += _render_certificates(fixes, options)
    # What to type and what to write, once for all findings.
    edits = [change.line for change in changes if change.edits]
    written = [its.line for its in changes if its.kind != "environment" and not its.edits]
    to_do: list[str] = []
    for heading, shown in (
        ("type this before you start the program:", environment),
        ("write this into the program:", written),
        ("edits, made by `compilediag fix --apply`:", edits),
    ):
        if shown:
            to_do += [f"  {heading}", *(f"    {options.clean(line, 4096)}" for line in shown)]
    lines += [*to_do, ""] if to_do else []
    for note in notes:
        lines += options.wrap(f"note: {options.clean(note, 600)}", "  ", "        ")
    ends = ["", f"  next: compilediag {following[-1]}"] if fixes else []
    return "\n".join([*lines, *ends[not lines[-1] :]]).rstrip() + "\n"


def render_candidates(
    receipt: Receipt,
    plans: Sequence[tuple[FindingRecord, ListedChanges]],
    options: RenderOptions,
) -> str:
    """Render the changes that would be tried."""
    lines: list[str] = []
    for finding, listed in plans:
        card = build_card(int(finding.id[1:]), finding, receipt, options)
        lines += render_title(card, options)
        for change in listed.possible:
            lines.append(f"{INDENT}{options.dot.strip()} {options.clean(change.line, 4096)}")
            lines += options.wrap(options.clean(change.risk), f"{INDENT}  ", style="dim")
        if not listed.possible:
            lines.append(f"{INDENT}no change to try")
            lines += _render_impossible(listed, options) + _render_edit(card, options)
    return "\n".join(lines) + "\n"


def _render_impossible(plan: ListedChanges, options: RenderOptions) -> list[str]:
    """Render edits that cannot be tried, each with what it needs."""
    edits = [f"{options.clean(its.change, 160)}: {its.reason}" for its in plan.impossible]
    shown = [f"not possible: {text}" for text in edits[:_MAX_IMPOSSIBLE]]
    shown += [f"and {len(edits) - len(shown)} more"] if len(shown) < len(edits) else []
    return [
        line
        for text in shown
        for line in options.wrap(options.clean(text, 600), f"{INDENT}  ", style="dim")
    ]


def _render_edit(card: Card, options: RenderOptions) -> list[str]:
    """Render what to edit, at which line, and what else is known of that."""
    line = card.line.partition(": ")[0]  # without the source of the call
    where = f" at {line}" if line else ""
    known = [*card.library, card.changed, *card.written]
    lines = options.wrap(f"{card.label}{where}: {card.fix}", INDENT, f"{INDENT}  ")
    return lines + options.wrap_parts([text for text in known if text], f"{INDENT}  ")


def _render_outcome(trial: TriedChange, options: RenderOptions) -> list[str]:
    """Render a change that holds with what it did for its finding, and another with the reason."""
    line, certificate = options.clean(trial.change.line, 4096), trial.certificate
    word, sign, colour = _WORDS[certificate.verdict]
    if certificate.verdict == "proved" and not trial.is_final:
        word, sign, colour = "found, not certified:", "warn", "yellow"
    shown = f"{INDENT}{options.paint(f'{options.get_sign(sign)} {word}', colour)}  {line}"
    if certificate.verdict != "proved":
        failed = [point.sentence for point in certificate.points if point.outcome == "fails"]
        reasons = [options.clean(text, 600) for text in failed or [certificate.reason]]
        return [shown, *options.wrap_parts(reasons, f"{INDENT}  ")]
    own = [point.sentence for point in certificate.points if point.name in ("finding", "padding")]
    return [
        shown,
        *options.wrap_parts([options.clean(text, 600) for text in own], f"{INDENT}  "),
        *options.wrap(options.clean(trial.risk), f"{INDENT}  note: ", style="dim"),
    ]


def _render_certificates(fixes: Sequence[FindingResult], options: RenderOptions) -> list[str]:
    """Render what is common to the findings that were proved by one execution, once for each."""
    groups: dict[tuple[JudgedPoint, ...], list[str]] = {}
    for fix in fixes:
        if fix.proof is not None:
            points = [x for x in fix.proof.certificate.points if x.name in _COMMON]
            groups.setdefault(tuple(points), []).append(fix.finding.id[1:])
    lines: list[str] = []
    for points, numbers in groups.items():
        heading = f"certified in one run of the whole program: {', '.join(numbers)}"
        figures = [
            _format_figure(figure, options)
            for point in points
            for figure in point.figures
            if figure.name == "compile" or (point.name == "better" and figure.before)
        ]
        sentences = [options.clean(x.sentence, 600) for x in points if x.name not in _FIGURES]
        lines += [
            f"  {heading}",
            *options.wrap_parts(figures, "    "),
            *(line for text in sentences for line in options.wrap(text, "    ")),
        ]
    return [*lines, ""] if lines else []


_FIGURES = ("better", "cost")
_COMMON = (*_FIGURES, "results", "other inputs")
"""Points of a certificate that are shown: of the former two their figures."""

_WORDS: Mapping[Verdict, tuple[str, str, str]] = {
    "proved": ("proved", "good", "green"),
    "refused": ("refused", "bad", "red"),
    "not decided": ("not decided", "warn", "yellow"),
}


def _format_figure(figure: ProofFigure, options: RenderOptions) -> str:
    def format_value(value: float | None) -> str:
        if value is None:
            return "unknown"
        if figure.unit == "s":
            return format_seconds(value)
        return f"{value:g} {figure.unit}" if figure.unit else f"{value:g}"

    before, after = format_value(figure.before), format_value(figure.after)
    return f"{figure.name} {before} {options.arrow} {after}"
