"""Renders the result of a cadence probe: the costs, and a picture of each variant's steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import LineChart, Preformatted, Section, Table
from compilediag.views.format import NOT_MEASURED, count, ordinal, seconds, sparkline
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import table
from compilediag.views.text import clean, display_width

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


PHASES = ("data_wait", "forward", "backward", "optimizer", "spans", "rest")
HEAD = ("group", "firing", "total", "compile", "metric", "sync", "by phase")
MAX_PHASES = 2
MAX_NAMES = 3
MIN_ROOM = 8
_STYLE = {"bad": "red", "good": "green", "warn": "yellow"}
SLOWER = 1.5
"""A variant whose quiet steps are longer than the control's by this factor is named."""


def section(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Build the section of the probe: a chart of every variant's steps on one scale, and the costs;
    None for a receipt without a probe."""
    found = receipt.cadence
    if found is None:
        return None
    cells = [size for item in found.variants if item.picture for size in item.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    pictures = list[LineChart]()
    for item in found.variants:
        if item.picture is None:
            continue
        middle = seconds(None if item.steps is None else item.steps.median)
        most = seconds(None if item.steps is None else item.steps.max)
        caption = f"median {middle}, longest {most}"
        name = options.text(item.name, NAME_CHARS)
        pictures.append(LineChart(name, caption, item.picture.cells_s, low, high))
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
        return "no cadence probe: compilediag run SCRIPT --cadence-probe\n"
    sign, sentence = _conclusion(section, options)
    lines = options.wrap(
        f"cadence probe: {sentence}", options.sign(sign) + " ", "  ", style=_STYLE[sign]
    )
    facts = [count(len(section.variants), "variant")]
    if section.steps is not None:
        facts.append(f"{section.steps} steps each, {section.warmup} of them warm-up")
    fresh = "empty caches for each variant" if section.caches == "fresh" else "caches kept"
    commands = [f"show{suffix}"]
    worst = _costliest(section)
    if worst is not None and worst.causes and worst.causes[0].rule:
        commands.insert(0, f"explain {options.text(worst.causes[0].rule, 8)}")
    elif not section.groups:
        commands.insert(0, "run --cadence-probe --group 'NAME=--its-option {n}' ...")
    blocks = [
        [*lines, *options.wrap_items([*facts, fresh], "  ", style="dim")],
        _costs(section, options),
        _remarks(section, options),
        variant_rows(section, options),
        _periods(section, options),
        [line for note in section.notes for line in options.warning(options.text(note, 1000))],
        options.next_commands(commands) if more else [],
    ]
    lines = [line for block in blocks if block for line in (*block, "")]
    return "\n".join(line.rstrip() for line in lines[:-1]) + "\n"


def _conclusion(section: CadenceSection, options: RenderOptions) -> tuple[str, str]:
    """Describe the conclusion: the sign of the headline and its sentence."""
    costs = section.attribution
    if not section.groups:
        if section.periods:
            return "bad", _rhythm(section.periods[0])
        return "warn", "no group of periodic work was moved"
    worst = _costliest(section)
    if worst is None or not section.variants[1:]:
        return "warn", "the probe is not complete"
    if worst.recompiles:
        recompiling = [item for item in costs if item.recompiles]
        names = ", ".join(options.text(item.group, NAME_CHARS) for item in recompiling[:MAX_NAMES])
        names += ", ..." if recompiling[MAX_NAMES:] else ""
        recompiles = count(sum(item.recompiles or 0 for item in recompiling), "recompile")
        total = seconds(sum(item.compile_s or 0.0 for item in recompiling))
        verb = "makes" if len(recompiling) == 1 else "make"
        return "bad", f"{names} {verb} torch compile again: {recompiles}, {total}"
    if any(item.compile_s is None for item in costs):
        return "warn", "which group the compiles belong to could not be determined"
    if any(item.problem is not None for item in section.variants):
        return "warn", "no group makes torch compile again, as far as the variants went"
    return "good", "no group makes torch compile again: what they cost is the metric itself"


def _costliest(section: CadenceSection) -> Attribution | None:
    return max(section.attribution, key=lambda item: item.compile_s or 0.0, default=None)


# --- what groups cost --------------------------------------------------------------------------


def _costs(section: CadenceSection, options: RenderOptions) -> list[str]:
    costs = [(options.text(item.group), item) for item in section.attribution]
    rows = [row for name, item in costs for row in _cost_rows(name, item, options)]
    if section.collision is not None:
        rows += _cost_rows("(collision)", section.collision, options)
    if not rows:
        return []
    widths = [max(display_width(row[index]) for row in (HEAD, *rows)) + 2 for index in range(6)]
    room = max(options.width - sum(widths) - 2, MIN_ROOM)
    fitted = [(*row[:6], options.truncate(row[6], room)) for row in rows]
    return table(Table(HEAD, fitted, right=("total", "compile", "metric", "sync")), options)


def _cost_rows(
    name: str, costs: Attribution | CollisionRecord, options: RenderOptions
) -> list[tuple[str, ...]]:
    name, fires = options.truncate(name, NAME_CHARS), costs.fires
    first, later = costs.first_hit, costs.recurring
    if first is None and later is None:
        return [(name, "none seen", "-", "-", "-", "-", "")]
    rows: list[tuple[str, ...]] = []
    if first is not None:
        rows.append((name, "first hit", *_cells(first), _by_phase(first.by_phase, options)))
    if later is not None:
        label = f"{fires}, each" if first is None else f"{max(fires - 1, 1)} more, each"
        group = name if first is None else ""
        rows.append((group, label, *_cells(later), _by_phase(later.by_phase, options)))
    return rows


def _cells(split: CostSplit) -> tuple[str, str, str, str]:
    """Format total, compile, metric, sync; what noise could explain is shown as its bound."""
    below = f"< {seconds(split.noise_s)}" if split.noise_s is not None else "?"
    compiling = "?" if split.compile_s is None else seconds(split.compile_s)
    return (
        below if split.total_s is None else seconds(split.total_s),
        compiling,
        below if split.metric_s is None else seconds(split.metric_s),
        "-" if split.sync_s is None else seconds(split.sync_s),
    )


def _by_phase(phases: ExtraByPhase, options: RenderOptions) -> str:
    """Format the phases that stand out most."""
    known = {name: getattr(phases, name) for name in PHASES}
    parts = [(name, value) for name, value in known.items() if value is not None]
    parts.sort(key=lambda pair: -abs(pair[1]))
    return options.dot.join(
        f"{name.replace('_', ' ')} {_signed(value)}" for name, value in parts[:MAX_PHASES]
    )


def _signed(value: float) -> str:
    return f"-{seconds(-value)}" if value < 0 else seconds(value)


def _remarks(section: CadenceSection, options: RenderOptions) -> list[str]:
    """List per group its periods, why it compiles, what it costs between its firings, and what
    could not be determined."""
    lines: list[str] = []
    for item in section.attribution:
        name = options.truncate(options.text(item.group), NAME_CHARS)
        lines += options.wrap_items([*_remarks_of(item, section, options)], f"  {name}: ", "    ")
    lines += _collision_remark(section, options)
    control = _control(section)
    if control is not None and control.counts is not None and control.counts.recompiles:
        # No period explains them.
        number = count(control.counts.recompiles, "recompile")
        line = f"control: {number} with every group off, so not because of a period"
        if any(group.origin != "code" for group in section.groups):
            line += "; or a group fires at step 0 whatever its period is"
        lines += options.wrap(line, "  ", "    ")
    splits = [s for item in section.attribution for s in (item.first_hit, item.recurring) if s]
    if splits and all(split.sync_s is None for split in splits):
        parts = [f"sync: {NOT_MEASURED}; synchronising is part of the metric"]
        if any(split.noise_s is not None and split.metric_s is None for split in splits):
            parts.append("<: within the noise, not resolved")
        lines += options.wrap_items(parts, "  ", style="dim")
    return lines


def _remarks_of(
    item: Attribution, section: CadenceSection, options: RenderOptions
) -> Iterable[str]:
    own = next((group.own_every for group in section.groups if group.name == item.group), None)
    in_code = "; the program's own period is not known"
    if own is not None:
        in_code = f", every {own} in the code"
    yield f"every {item.every} steps alone{in_code}"
    if item.recompiles:
        yield f"{count(item.recompiles, 'recompile')} that the control does not have"
    for cause in item.causes:
        place = f" {options.place(cause.file, cause.line)}" if cause.file else ""
        code = f"{options.text(cause.rule, 8)} " if cause.rule else ""
        yield f"{code}{options.text(cause.variable, 60)}{place}"
    if item.between_s is not None:
        yield f"{_signed(item.between_s)} in every step that does not fire"
    # What each later firing does more often than a quiet step: true on any machine.
    work = [
        f"{number:+,} {noun}{'s' if abs(number) != 1 else ''}"
        for number, noun in ((item.extra_reads, "tensor read"), (item.extra_calls, "compiled call"))
        if number
    ]
    if work:
        unresolved = item.recurring is not None and item.recurring.metric_s is None
        doubt = " (its seconds are within the noise)" if unresolved else ""
        yield f"each firing: {', '.join(work)}{doubt}"
    if item.fires_from in ("step times", "counts", "compiles"):
        yield f"its steps were found from the {item.fires_from}"
    if item.problem is not None:
        yield options.text(item.problem)
    # Quiet steps that were longer than the control's: then its costs may be too.
    control = _control(section)
    usual = control.steps.median if control is not None and control.steps is not None else None
    if usual and item.quiet_s and item.between_s is None and item.quiet_s > SLOWER * usual:
        yield (
            f"its quiet steps took {seconds(item.quiet_s)}, the control's {seconds(usual)}: the "
            "machine was slower then, and its firings too"
        )


def _collision_remark(section: CadenceSection, options: RenderOptions) -> list[str]:
    found = section.collision
    if found is None:
        return []
    parts: list[str] = []
    unknown: list[str] = []
    for name, value, when in (
        ("first_hit", found.extra_first_hit_s, "the first time"),
        ("recurring", found.extra_recurring_s, "each later time"),
    ):
        if value is not None:
            parts.append(f"{seconds(abs(value))} {'more' if value > 0 else 'less'} {when}")
        elif any(getattr(item, name) is None for item in (found, *section.attribution)):
            unknown.append(when)
    if found.extra_recompiles:
        more = "more" if found.extra_recompiles > 0 else "fewer"
        parts.append(f"{count(abs(found.extra_recompiles), 'recompile')} {more}")
    if unknown:
        parts.append(f"not known {' and '.join(unknown)}, because a part of the sum is not")
    costs = ", ".join(parts) or "nothing beyond the noise"
    groups = "both groups" if len(found.groups) == 2 else f"all {len(found.groups)} groups"
    line = f"collision: {groups} in one step cost, against their sum: {costs}"
    return options.wrap(line, "  ", "    ")


def _control(section: CadenceSection) -> VariantRecord | None:
    return next((item for item in section.variants if item.kind == "control"), None)


# --- periods -----------------------------------------------------------------------------------


def _periods(section: CadenceSection, options: RenderOptions) -> list[str]:
    if section.periods:
        where = "with every group off" if section.groups else "in the step times"
        lines: list[str] = []
        for item in section.periods:
            lines += options.wrap(f"{where}: {_rhythm(item)}", "  ", "    ")
        return lines
    if section.groups or section.longest_period is None:
        return []
    sentence = f"no rhythm in the step times; among {section.steps} steps, periods up to "
    sentence += f"{section.longest_period} can be found: --steps N for longer ones"
    return options.wrap(sentence, "  ", "    ")


def _rhythm(item: PeriodRecord) -> str:
    sentence = f"every {ordinal(item.every)} step from step {item.first_step} takes "
    sentence += f"{seconds(item.extra_s)} longer ({item.count} times)"
    if item.compile_s > item.extra_s * item.count / 2:
        return f"{sentence}: torch compiles there, {seconds(item.compile_s)} in all"
    return sentence


def variant_rows(section: CadenceSection, options: RenderOptions) -> list[str]:
    """Render one row a variant, the scale of the pictures, and what went wrong with a variant."""
    cells = [value for item in section.variants if item.picture for value in item.picture.cells_s]
    low, high = min(cells, default=0.0), max(cells, default=0.0)
    head = ("variant", "median", "longest", "frames", "recompiles", "breaks", "exit", "steps")
    rows: list[tuple[str, ...]] = []
    for item in section.variants:
        steps, counts = item.steps, item.counts
        name = options.truncate(options.text(item.name), NAME_CHARS)
        numbers: Iterable[str] = ("-", "-", "-")
        if counts is not None:
            numbers = map(str, (counts.frames, counts.recompiles, counts.graph_breaks))
        rows.append(
            (
                f"{name} alone" if item.kind == "alone" else name,
                *(("-", "-") if steps is None else map(seconds, (steps.median, steps.max))),
                *numbers,
                "-" if item.exit_code is None else str(item.exit_code),
            )
        )
    taken = sum(max(display_width(row[i]) for row in (head[:-1], *rows)) + 2 for i in range(7)) + 4
    width = min(PICTURE_COLUMNS, max(MIN_PICTURE, options.width - taken))
    full: list[tuple[str, ...]] = []
    for item, row in zip(section.variants, rows, strict=True):
        values = item.picture.cells_s if item.picture is not None else None
        bars = "no step"
        if values is not None:
            bars = sparkline(values, low, high, width, ascii_only=options.ascii_only)
        full.append((*row, bars))
    lines = table(Table(head, full, right=head[1:6]), options)
    if high > 0:
        scale = f"steps: those after warm-up, from {seconds(low)} to {seconds(high)}, logarithmic"
        lines += options.wrap(scale, "  ", "    ", style="dim")
    for item in section.variants:
        if item.problem is not None:
            sentence = f"{options.text(item.name, NAME_CHARS)}: {options.text(item.problem)}"
            lines += options.wrap(sentence, "  ! ", style="yellow")
    return lines


def variant_sentence(number: int, total: int | None, kind: str, names: Sequence[str]) -> str:
    """Describe a variant for the line that is printed before it starts; `total` None: not known."""
    description = {
        "configured": "configured, as the code says",
        "control": "control, every group off",
        "collision": "collision, all groups in the same steps",
    }.get(kind, f"{clean(names[0], limit=NAME_CHARS) if names else ''} alone")
    place = f"variant {number}" if total is None else f"variant {number} of {total}"
    return f"compilediag · {place}: {description}"
