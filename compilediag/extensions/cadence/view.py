"""Renders the result of a cadence probe: the costs, and a picture of each variant's steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import LineChart, Preformatted, Section, Table
from compilediag.views.format import (
    NOT_MEASURED,
    draw_sparkline,
    format_ordinal,
    format_seconds,
    pluralize,
)
from compilediag.views.steps import PHASES
from compilediag.views.style import COLORS, RenderOptions
from compilediag.views.terminal import render_table
from compilediag.views.text import clean, measure_width

if TYPE_CHECKING:
    from compilediag.receipt.schema.cadence import (
        Attribution,
        CadenceSection,
        CollisionRecord,
        CostSplit,
        ExtraByPhase,
        PeriodRecord,
        VariantRecord,
    )


NAME_CHARS = 24
PICTURE_COLUMNS = 32
MIN_PICTURE = 8


HEAD = ("group", "firing", "total", "compile", "metric", "sync", "by phase")
MAX_PHASES = 2
MAX_NAMES = 3
MIN_ROOM = 8
SLOWER = 1.5
"""A variant whose quiet steps are longer than the control's by this factor is named."""


def build_section(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Build the section of the probe: a chart of every variant's steps on one scale, and the costs;
    None for a receipt without a probe."""
    cadence = receipt.cadence
    if cadence is None:
        return None
    cells = [size for v in cadence.variants if v.picture for size in v.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    pictures = list[LineChart]()
    for variant in cadence.variants:
        if variant.picture is None:
            continue
        middle = format_seconds(None if variant.steps is None else variant.steps.median)
        most = format_seconds(None if variant.steps is None else variant.steps.max)
        caption = f"median {middle}, longest {most}"
        name = options.clean(variant.name, NAME_CHARS)
        pictures.append(LineChart(name, caption, variant.picture.cells_s, low, high))
    return Section(
        "cadence",
        "Cadence",
        "Cadence probe",
        pictures=tuple(pictures),
        blocks=(Preformatted(render_cadence(receipt, options, more=False).splitlines()),),
    )


def render_cadence(
    receipt: Receipt, options: RenderOptions, suffix: str = "", *, more: bool = True
) -> str:
    """Render the probe of a receipt as text with a newline at its end.

    Args:
        receipt: what to show.
        options: how to draw.
        suffix: what the next commands need to find this receipt again, such as its path.
        more: whether to name the next commands.
    """
    section = receipt.cadence
    if section is None:
        return "no cadence probe: compilediag measure periodic SCRIPT\n"
    sign, sentence = _describe_conclusion(section, options)
    title = f"cadence probe: {sentence}"
    lines = options.wrap(title, options.get_sign(sign) + " ", "  ", style=COLORS[sign])
    facts = [pluralize(len(section.variants), "variant")]
    if section.steps is not None:
        facts.append(f"{section.steps} steps each, {section.warmup} of them warm-up")
    fresh = "empty caches for each variant" if section.caches == "fresh" else "caches kept"
    commands = [f"show{suffix}"]
    worst = _find_costliest(section)
    if worst is not None and worst.causes and worst.causes[0].rule:
        commands.insert(0, f"explain {options.clean(worst.causes[0].rule, 8)}")
    elif not section.groups:
        commands.insert(0, "measure periodic --group 'NAME=--its-option {n}' ...")
    blocks = [
        [*lines, *options.wrap_parts([*facts, fresh], "  ", style="dim")],
        _render_costs(section, options),
        _list_remarks(section, options),
        render_variants(section, options),
        _render_periods(section, options),
        [row for note in section.notes for row in options.wrap_warning(options.clean(note, 1000))],
        options.wrap_commands(commands) if more else [],
    ]
    lines = [line for block in blocks if block for line in (*block, "")]
    return "\n".join(line.rstrip() for line in lines[:-1]) + "\n"


def _describe_conclusion(section: CadenceSection, options: RenderOptions) -> tuple[str, str]:
    """Describe the conclusion: the sign of the headline and its sentence."""
    costs = section.attribution
    if not section.groups:
        if section.periods:
            return "bad", _describe_rhythm(section.periods[0])
        return "warn", "no group of periodic work was moved"
    worst = _find_costliest(section)
    if worst is None or not section.variants[1:]:
        return "warn", "the probe is not complete"
    if worst.recompiles:
        recompiling = [cost for cost in costs if cost.recompiles]
        names = ", ".join(options.clean(cost.group, NAME_CHARS) for cost in recompiling[:MAX_NAMES])
        names += ", ..." if recompiling[MAX_NAMES:] else ""
        recompiles = pluralize(sum(cost.recompiles or 0 for cost in recompiling), "recompile")
        total = format_seconds(sum(cost.compile_s or 0.0 for cost in recompiling))
        verb = "makes" if len(recompiling) == 1 else "make"
        return "bad", f"{names} {verb} torch compile again: {recompiles}, {total}"
    if any(cost.compile_s is None for cost in costs):
        return "warn", "which group the compiles belong to could not be determined"
    if any(variant.problem is not None for variant in section.variants):
        return "warn", "no group makes torch compile again, as far as the variants went"
    return "good", "no group makes torch compile again: what they cost is the metric itself"


def _find_costliest(section: CadenceSection) -> Attribution | None:
    return max(section.attribution, key=lambda cost: cost.compile_s or 0.0, default=None)


# --- what groups cost --------------------------------------------------------------------------


def _render_costs(section: CadenceSection, options: RenderOptions) -> list[str]:
    costs = [(options.clean(cost.group), cost) for cost in section.attribution]
    rows = [row for name, cost in costs for row in _build_cost_rows(name, cost, options)]
    if section.collision is not None:
        rows += _build_cost_rows("(collision)", section.collision, options)
    if not rows:
        return []
    widths = [max(measure_width(row[index]) for row in (HEAD, *rows)) + 2 for index in range(6)]
    room = max(options.width - sum(widths) - 2, MIN_ROOM)
    fitted = [(*row[:6], options.truncate(row[6], room)) for row in rows]
    return render_table(Table(HEAD, fitted, right=("total", "compile", "metric", "sync")), options)


def _build_cost_rows(
    name: str, costs: Attribution | CollisionRecord, options: RenderOptions
) -> list[tuple[str, ...]]:
    name, fires = options.truncate(name, NAME_CHARS), costs.fires
    first, later = costs.first_hit, costs.recurring
    if first is None and later is None:
        return [(name, "none seen", "-", "-", "-", "-", "")]
    rows: list[tuple[str, ...]] = []
    if first is not None:
        rows.append((name, "first hit", *_format_cells(first, options)))
    if later is not None:
        label = f"{fires}, each" if first is None else f"{max(fires - 1, 1)} more, each"
        group = name if first is None else ""
        rows.append((group, label, *_format_cells(later, options)))
    return rows


def _format_cells(split: CostSplit, options: RenderOptions) -> tuple[str, ...]:
    """Format total, compile, metric, sync, phases; what noise could explain is shown as a bound."""
    below = f"< {format_seconds(split.noise_s)}" if split.noise_s is not None else "?"
    compiling = "?" if split.compile_s is None else format_seconds(split.compile_s)
    return (
        below if split.total_s is None else format_seconds(split.total_s),
        compiling,
        below if split.metric_s is None else format_seconds(split.metric_s),
        "-" if split.sync_s is None else format_seconds(split.sync_s),
        _format_phases(split.by_phase, options),
    )


def _format_phases(phases: ExtraByPhase, options: RenderOptions) -> str:
    """Format the phases that stand out most."""
    known = {name: getattr(phases, name) for name in PHASES}
    parts = [(name, value) for name, value in known.items() if value is not None]
    parts.sort(key=lambda pair: -abs(pair[1]))
    return options.dot.join(
        f"{name.replace('_', ' ')} {_format_signed(value)}" for name, value in parts[:MAX_PHASES]
    )


def _format_signed(value: float) -> str:
    return f"-{format_seconds(-value)}" if value < 0 else format_seconds(value)


def _list_remarks(section: CadenceSection, options: RenderOptions) -> list[str]:
    """List per group its periods, why it compiles, what it costs between its firings, and what
    could not be determined."""
    lines: list[str] = []
    for cost in section.attribution:
        name = options.truncate(options.clean(cost.group), NAME_CHARS)
        lines += options.wrap_parts([*_describe(cost, section, options)], f"  {name}: ", "    ")
    lines += _describe_collision(section, options)
    control = _find_control(section)
    if control is not None and control.counts is not None and control.counts.recompiles:
        # No period explains them.
        number = pluralize(control.counts.recompiles, "recompile")
        line = f"control: {number} with every group off, so not because of a period"
        if any(group.origin != "code" for group in section.groups):
            line += "; or a group fires at step 0 whatever its period is"
        lines += options.wrap(line, "  ", "    ")
    splits = [s for cost in section.attribution for s in (cost.first_hit, cost.recurring) if s]
    if splits and all(split.sync_s is None for split in splits):
        parts = [f"sync: {NOT_MEASURED}; synchronising is part of the metric"]
        if any(split.noise_s is not None and split.metric_s is None for split in splits):
            parts.append("<: within the noise, not resolved")
        lines += options.wrap_parts(parts, "  ", style="dim")
    return lines


def _describe(cost: Attribution, section: CadenceSection, options: RenderOptions) -> Iterable[str]:
    own = next((group.own_every for group in section.groups if group.name == cost.group), None)
    in_code = "; the program's own period is not known"
    if own is not None:
        in_code = f", every {own} in the code"
    yield f"every {cost.every} steps alone{in_code}"
    if cost.recompiles:
        yield f"{pluralize(cost.recompiles, 'recompile')} that the control does not have"
    for cause in cost.causes:
        place = f" {options.format_place(cause.file, cause.line)}" if cause.file else ""
        code = f"{options.clean(cause.rule, 8)} " if cause.rule else ""
        yield f"{code}{options.clean(cause.variable, 60)}{place}"
    if cost.between_s is not None:
        yield f"{_format_signed(cost.between_s)} in every step that does not fire"
    # What each later firing does more often than a quiet step: true on any machine.
    work = [
        f"{number:+,} {noun}{'s' if abs(number) != 1 else ''}"
        for number, noun in ((cost.extra_reads, "tensor read"), (cost.extra_calls, "compiled call"))
        if number
    ]
    if work:
        unresolved = cost.recurring is not None and cost.recurring.metric_s is None
        doubt = " (its seconds are within the noise)" if unresolved else ""
        yield f"each firing: {', '.join(work)}{doubt}"
    if cost.fires_from in ("step times", "counts", "compiles"):
        yield f"its steps were found from the {cost.fires_from}"
    if cost.problem is not None:
        yield options.clean(cost.problem)
    # Quiet steps that were longer than the control's: then its costs may be too.
    control = _find_control(section)
    usual = control.steps.median if control is not None and control.steps is not None else None
    if usual and cost.quiet_s and cost.between_s is None and cost.quiet_s > SLOWER * usual:
        yield (
            f"its quiet steps took {format_seconds(cost.quiet_s)}, the control's "
            f"{format_seconds(usual)}: the machine was slower then, and its firings too"
        )


def _describe_collision(section: CadenceSection, options: RenderOptions) -> list[str]:
    collision = section.collision
    if collision is None:
        return []
    parts: list[str] = []
    unknown: list[str] = []
    for name, value, when in (
        ("first_hit", collision.extra_first_hit_s, "the first time"),
        ("recurring", collision.extra_recurring_s, "each later time"),
    ):
        if value is not None:
            parts.append(f"{format_seconds(abs(value))} {'more' if value > 0 else 'less'} {when}")
        elif any(getattr(part, name) is None for part in (collision, *section.attribution)):
            unknown.append(when)
    if collision.extra_recompiles:
        more = "more" if collision.extra_recompiles > 0 else "fewer"
        parts.append(f"{pluralize(abs(collision.extra_recompiles), 'recompile')} {more}")
    if unknown:
        parts.append(f"not known {' and '.join(unknown)}, because a part of the sum is not")
    costs = ", ".join(parts) or "nothing beyond the noise"
    groups = "both groups" if len(collision.groups) == 2 else f"all {len(collision.groups)} groups"
    line = f"collision: {groups} in one step cost, against their sum: {costs}"
    return options.wrap(line, "  ", "    ")


def _find_control(section: CadenceSection) -> VariantRecord | None:
    return next((variant for variant in section.variants if variant.kind == "control"), None)


# --- periods -----------------------------------------------------------------------------------


def _render_periods(section: CadenceSection, options: RenderOptions) -> list[str]:
    if section.periods:
        where = "with every group off" if section.groups else "in the step times"
        lines: list[str] = []
        for period in section.periods:
            lines += options.wrap(f"{where}: {_describe_rhythm(period)}", "  ", "    ")
        return lines
    if section.groups or section.longest_period is None:
        return []
    sentence = f"no rhythm in the step times; among {section.steps} steps, periods up to "
    sentence += f"{section.longest_period} can be found: --steps N for longer ones"
    return options.wrap(sentence, "  ", "    ")


def _describe_rhythm(period: PeriodRecord) -> str:
    sentence = f"every {format_ordinal(period.every)} step from step {period.first_step} takes "
    sentence += f"{format_seconds(period.extra_s)} longer ({period.count} times)"
    if period.compile_s > period.extra_s * period.count / 2:
        return f"{sentence}: torch compiles there, {format_seconds(period.compile_s)} in all"
    return sentence


def render_variants(section: CadenceSection, options: RenderOptions) -> list[str]:
    """Render one row a variant, the scale of the pictures, and what went wrong with a variant."""
    cells = [value for v in section.variants if v.picture for value in v.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    head = ("variant", "median", "longest", "frames", "recompiles", "breaks", "exit", "steps")
    rows: list[tuple[str, ...]] = []
    for variant in section.variants:
        steps, counts = variant.steps, variant.counts
        name = options.truncate(options.clean(variant.name), NAME_CHARS)
        numbers: Iterable[str] = ("-", "-", "-")
        if counts is not None:
            numbers = map(str, (counts.frames, counts.recompiles, counts.graph_breaks))
        rows.append(
            (
                f"{name} alone" if variant.kind == "alone" else name,
                *(("-", "-") if steps is None else map(format_seconds, (steps.median, steps.max))),
                *numbers,
                "-" if variant.exit_code is None else str(variant.exit_code),
            )
        )
    taken = sum(max(measure_width(row[i]) for row in (head[:-1], *rows)) + 2 for i in range(7)) + 4
    width = min(PICTURE_COLUMNS, max(MIN_PICTURE, options.width - taken))
    full: list[tuple[str, ...]] = []
    for variant, row in zip(section.variants, rows, strict=True):
        values = variant.picture.cells_s if variant.picture is not None else None
        bars = "no step"
        if values is not None:
            bars = draw_sparkline(values, low, high, width, ascii_only=options.ascii_only)
        full.append((*row, bars))
    lines = render_table(Table(head, full, right=head[1:6]), options)
    if high > 0:
        bounds = f"from {format_seconds(low)} to {format_seconds(high)}"
        scale = f"steps: those after warm-up, {bounds}, logarithmic"
        lines += options.wrap(scale, "  ", "    ", style="dim")
    for variant in section.variants:
        if variant.problem is not None:
            problem = f"{options.clean(variant.name, NAME_CHARS)}: {options.clean(variant.problem)}"
            lines += options.wrap(problem, "  ! ", style="yellow")
    return lines


def describe_variant(number: int, total: int | None, kind: str, names: Sequence[str]) -> str:
    """Describe a variant for the line that is printed before it starts; `total` None: not known."""
    description = {
        "configured": "configured, as the code says",
        "control": "control, every group off",
        "collision": "collision, all groups in the same steps",
    }.get(kind, f"{clean(names[0], limit=NAME_CHARS) if names else ''} alone")
    place = f"variant {number}" if total is None else f"variant {number} of {total}"
    return f"compilediag · {place}: {description}"
