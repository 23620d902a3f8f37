"""The view of `fix`: changes tried for each finding, with what each did, and those proved."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.diagnosis.codes import UNCHANGEABLE
from compilediag.fixes.proof_types import FindingResult, ListedChanges, TriedChange
from compilediag.receipt.schema.compiles import FindingRecord, ProofFigure
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import NEEDS_LIBCST, ProgramChange
from compilediag.views.findings import build_card
from compilediag.views.format import format_seconds, pluralize
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import INDENT, render_title

_MAX_IMPOSSIBLE = 2
_OTHER_FORM = "no change is known for code of this form"
NOTHING = "no finding of at least `warning`: nothing to fix"


def render_fixes(
    receipt: Receipt,
    fixes: Sequence[FindingResult],
    environment: Sequence[str],
    changes: Sequence[ProgramChange],
    notes: Sequence[str],
    options: RenderOptions,
) -> str:
    """Render each finding with what was tried; the lines for a shell and the changes that are
    proved in one run; notes on what was not done, and why."""
    proved = [fix for fix in fixes if fix.proof is not None]
    have = "has" if len(fixes) == 1 else "have"
    head = f"{len(proved)} of {pluralize(len(fixes), 'finding')} {have} a proved change"
    lines = [*options.wrap(head if fixes else NOTHING), ""]
    for fix in fixes:
        number = int(fix.finding.id[1:])
        lines += render_title(build_card(number, fix.finding, receipt, options), options)
        for trial in fix.tried:
            lines += _render_outcome(trial, options)
        if not any(trial.certificate.holds for trial in fix.tried):
            why = "no change to try" if not fix.listed.possible else "not tried"
            why = "none of them works" if fix.tried else why
            text = f"{why}: compilediag explain {number} says what to edit"
            lines.append(f"{INDENT}{options.get_sign('warn')} {text}")
            if fix.tried or not fix.listed.possible:
                lines += _explain_none(fix.finding, fix.listed, options)
        lines.append("")
    # What to type and what to write, once for all findings.
    edits = [change.line for change in changes if change.edits]
    written = [change.line for change in changes if change.needs_edit and not change.edits]
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
    if proved:
        lines += ["", *options.wrap_commands([f"explain {proved[0].finding.id[1:]}"])]
    return "\n".join(lines).rstrip() + "\n"


def render_candidates(
    receipt: Receipt,
    plans: Sequence[tuple[FindingRecord, ListedChanges]],
    options: RenderOptions,
) -> str:
    """Render the changes that would be tried."""
    lines: list[str] = []
    for finding, listed in plans:
        lines += render_title(build_card(int(finding.id[1:]), finding, receipt, options), options)
        for change in listed.possible:
            lines.append(f"{INDENT}{options.dot.strip()} {options.clean(change.line, 4096)}")
            lines += options.wrap(options.clean(change.risk), f"{INDENT}  ", style="dim")
        if not listed.possible:
            lines.append(f"{INDENT}no change to try")
            lines += _explain_none(finding, listed, options)
    return "\n".join(lines) + "\n"


def _explain_none(finding: FindingRecord, plan: ListedChanges, options: RenderOptions) -> list[str]:
    """Explain what prevents the edits that would remove the finding, in its program or, where there
    are none, for its rule."""
    # Whether these would fit the files is not known.
    unknown = sum(edit.reason == NEEDS_LIBCST for edit in plan.impossible)
    words = [f"{pluralize(unknown, 'edit')} not tried: {NEEDS_LIBCST}"] if unknown else []
    words += [
        f"not possible: {edit.change}: {edit.reason}"
        for edit in plan.impossible
        if edit.reason != NEEDS_LIBCST
    ]
    if not words and not plan.possible:
        words = [UNCHANGEABLE.get(finding.rule, _OTHER_FORM)]
    return [
        line
        for text in words[:_MAX_IMPOSSIBLE]
        for line in options.wrap(options.clean(text, 600), f"{INDENT}  ", style="dim")
    ]


def _render_outcome(trial: TriedChange, options: RenderOptions) -> list[str]:
    """Render a change that holds with the figures that changed, and those that everybody looks for;
    one that was refused with the reason."""
    line, certificate = options.clean(trial.change.line, 4096), trial.certificate
    if not certificate.holds:
        first = options.paint(f"{options.get_sign('bad')} refused", "red")
        reason = options.wrap(options.clean(certificate.reason, 600), f"{INDENT}  ")
        return [f"{INDENT}{first}  {line}", *reason]
    word = "proved" if trial.proved else "holds in one run, not proved:"
    sign = options.get_sign("good" if trial.proved else "warn")
    first = options.paint(f"{sign} {word}", "green" if trial.proved else "yellow")
    sentences = {point.name: point.sentence for point in certificate.points}
    step = sentences.get("time", "")
    changed = [
        _format_figure(figure, options)
        for figure in certificate.figures
        if figure.name not in _LEFT_OUT
        and (figure.name == "compile" or (figure.before != figure.after and figure.unit != "µs"))
    ]
    facts = [
        *dict.fromkeys(changed),
        *([options.clean(step)] if step.startswith("step") else []),
        *([options.clean(sentences["padding"])] if "padding" in sentences else []),
        options.clean(sentences.get("answers", ""), 600),
        pluralize(certificate.runs, "run"),
    ]
    return [
        f"{INDENT}{first}  {line}",
        *options.wrap_parts(facts, f"{INDENT}  "),
        *options.wrap(options.clean(trial.risk), f"{INDENT}  note: ", style="dim"),
    ]


_LEFT_OUT = ("values compared", "first compiles", "step", "host memory", "steps")


def _format_figure(figure: ProofFigure, options: RenderOptions) -> str:
    def format_value(value: float | None) -> str:
        if value is None:
            return "unknown"
        if figure.unit == "s":
            return format_seconds(value)
        return f"{value:g} {figure.unit}" if figure.unit else f"{value:g}"

    before, after = format_value(figure.before), format_value(figure.after)
    return f"{figure.name} {before} {options.arrow} {after}"
