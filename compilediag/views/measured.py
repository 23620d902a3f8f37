"""Measurements below the verdict: those of the program itself, whether compiling pays, what a
second start still compiles, and what the run cost."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.receipt.schema.comparisons import (
    AgainstEagerSection,
    ColdAndWarmSection,
    EagerRatio,
    NumbersSection,
)
from compilediag.receipt.schema.compiles import WriteTracingSection
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.tracked import CostSection, TrackedRecord
from compilediag.views.compiles import LABELS
from compilediag.views.document import Table
from compilediag.views.format import (
    NOT_MEASURED,
    format_metric,
    format_more,
    format_number,
    format_quantity,
    format_seconds,
    format_three_digits,
    pluralize,
)
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_table

MAX_RUNS = 2
MAX_METRICS = 3
STEP_S = "step_s"
FIGURES = ("mean", "median", "min", "max", "last")
WIDE = 90
MAX_CALLABLES, MAX_AGAIN, MAX_PHASES = 3, 4, 5
"""On the verdict screen; `show --all` has all of them."""


def render_measured(
    receipt: Receipt, options: RenderOptions, suffix: str, *, complete: bool
) -> list[str]:
    """Render whether compiling pays; tracked runs in a line each, or in tables; the cost."""
    lines: list[str] = []
    eager = receipt.against_eager
    if eager is not None:
        lines += _render_against_eager(eager, options, complete=complete)
        if eager.numbers is not None:
            sentence = options.clean(_describe_numbers(eager.numbers))
            lines += options.wrap(sentence, "  numbers: ", "    ")
            lines += _render_notes(eager.numbers.notes, options)
    if receipt.cold_and_warm is not None:
        lines += _render_second_start(receipt.cold_and_warm, receipt, options, complete=complete)
    runs = receipt.tracked
    for run in runs if complete else runs[-MAX_RUNS:]:
        name = options.clean(run.name, 60)
        parts = [f"tracked {name}: {pluralize(run.steps, 'step')} in {format_seconds(run.wall_s)}"]
        if run.state != "finished":
            state = "not finished" if run.state == "running" else options.clean(run.state, 20)
            parts[0] += f" ({state})"
        metrics = [metric for metric in run.metrics if metric.name != STEP_S]
        for metric in metrics[:MAX_METRICS]:
            lost = f", {metric.not_finite} not finite" if metric.not_finite else ""
            if metric.mean is None or metric.min is None or metric.max is None:
                shown = f"not measured{lost}"
            elif metric.min == metric.max:
                shown = f"{format_number(metric.mean)}{lost}"
            else:
                mean = format_number(metric.mean)
                shown = f"{mean} ({format_number(metric.min)} to {format_number(metric.max)}{lost})"
            parts.append(f"{options.clean(metric.name, 40)} {shown}")
        if len(metrics) > MAX_METRICS:
            parts.append(f"+{pluralize(len(metrics) - MAX_METRICS, 'metric')}")
        parts += [
            f"{options.clean(name, 40)} {format_number(value)}/s"
            for name, value in list(run.per_s.items())[:MAX_METRICS]
            if value is not None
        ]
        if run.peak_bytes is not None and run.peak_bytes != run.peak_at_start_bytes:
            parts.append(f"peak {format_quantity(run.peak_bytes, 'bytes')}")
        lines += options.wrap_parts(parts, "  ", "    ")
        lines += _render_metrics(run, options) if complete else []
    if not complete and len(runs) > MAX_RUNS:
        hidden = f"+{len(runs) - MAX_RUNS} more tracked: compilediag show --all{suffix}"
        lines += options.wrap(hidden, "  ", "    ")
    if receipt.write_tracing is not None:
        lines += options.wrap(_describe_writes(receipt.write_tracing, options), "  write tracing: ")
    if receipt.cost is not None:
        lines += options.wrap(_describe_cost(receipt.cost, options), "  cost: ")
    return lines


def list_measured_sentences(receipt: Receipt) -> list[tuple[str, str]]:
    """List what other runs beside this measured, name and sentence; texts not yet made safe."""
    sentences: list[tuple[str, str]] = []
    if receipt.against_eager is not None:
        sentences.append(("Against eager", describe_against_eager(receipt.against_eager)))
        if receipt.against_eager.numbers is not None:
            sentences.append(("Numbers", _describe_numbers(receipt.against_eager.numbers)))
    if receipt.cold_and_warm is not None:
        sentences.append(("Second start", _describe_second_start(receipt.cold_and_warm)))
    return sentences


def _describe_writes(tracing: WriteTracingSection, options: RenderOptions) -> str:
    """Describe what write tracing followed, and what that cost."""
    lines = pluralize(tracing.line_events, "line")
    values = pluralize(tracing.values, "value")
    text = f"{lines} followed, {values} watched, {format_seconds(tracing.seconds)}"
    if tracing.stopped is None:
        return text
    why = options.clean(tracing.stopped)
    if not tracing.line_events:
        return f"nothing was followed: {why}"
    return f"{text}; not traced after step {tracing.stopped_step}: {why}"


def _render_metrics(run: TrackedRecord, options: RenderOptions) -> list[str]:
    """Render every metric of one run; a narrow terminal has room for the mean only."""
    shown = FIGURES if options.width >= WIDE else FIGURES[:1]
    rows: list[tuple[str, ...]] = []
    for metric in run.metrics:
        values: list[float | None] = [getattr(metric, name) for name in shown]
        cells = ("-" if value is None else format_metric(metric.name, value) for value in values)
        rows.append((f"    {options.clean(metric.name, 40)}", f"{metric.count:,}", *cells))
    head = ("    metric", "values", *shown)
    return render_table(Table(head, rows, right=head[1:], shrink=head[0]), options) if rows else []


def _describe_cost(cost: CostSection, options: RenderOptions) -> str:
    if cost.amount is None:
        return f"not known: {options.clean(cost.note or 'nothing was priced', 200)}"
    sentence = f"{cost.amount:,.2f} {options.clean(cost.currency, 16)}"
    if cost.recompile_amount:
        sentence += f", recompiles {cost.recompile_amount:,.2f}"
    sign = "x" if options.ascii_only else chr(0xD7)
    times = f"{cost.count} {sign} " if cost.count != 1 else ""
    of = f" of {options.clean(cost.table_as_of, 40)}" if cost.table_as_of else ""
    where = f"{options.clean(cost.table or 'a price table', 80)}{of}"
    name = options.clean(cost.name or "", 80)
    return f"{sentence} ({times}{name} at {format_number(cost.per_hour or 0.0)} an hour, {where})"


def _render_notes(notes: Iterable[str], options: RenderOptions) -> list[str]:
    """Render what limits a measurement."""
    texts = map(options.clean, notes)
    return [line for text in texts for line in options.wrap(text, "    note: ", style="dim")]


# --- against eager -------------------------------------------------------------------------------


def describe_against_eager(section: AgainstEagerSection) -> str:
    """Describe the verdict: "pays after 310 steps (240 to 420): 1.8x as fast as eager (1.7x to
    1.9x)". What it quotes of the target is not made safe."""
    ratio, even = section.ratio, section.break_even
    if section.verdict == "outputs_differ":
        return f"not concluded, since the outputs differ: {section.problem}"
    if ratio is None:
        return f"not concluded: {section.problem}"
    if section.verdict == "not_resolved":
        advice = f"more pairs of runs (--rounds {2 * section.pairs}) or longer ones narrow it"
        return f"not resolved, the noise is wider than the effect: {_format_ratio(ratio)}; {advice}"
    if section.verdict == "does_not_pay":
        return f"does not pay: {_format_ratio(ratio)} as fast as eager"
    if section.verdict == "same":
        return f"does not pay: as fast as eager within 1 %, {_format_ratio(ratio)}"
    fast = f"{_format_ratio(ratio)} as fast as eager"
    if even is None:
        return f"pays in steady state; after how many steps is not known: {fast}"
    to = f"to {even.high:,}" if even.high is not None else "or more"
    sentence = f"pays after {pluralize(even.step, 'step')} ({even.low:,} {to}): {fast}"
    if section.finished < even.step:
        return f"{sentence}; the run has {section.finished:,}"
    return sentence


def _render_against_eager(
    section: AgainstEagerSection, options: RenderOptions, *, complete: bool
) -> list[str]:
    """Render the verdict, what was measured, the callables, what limits it."""
    sentence = options.clean(describe_against_eager(section))
    lines = options.wrap(sentence, "  against eager: ", "    ", style="bold")
    if section.ratio is None:
        return lines
    cold = " with empty caches" if section.caches == "fresh" else ""
    compiled = _format_time(section.compiled_step_s)
    parts = (
        f"a step {compiled} compiled, {_format_time(section.eager_step_s)} eager",
        f"compile {format_seconds(section.compile_s)}{cold}",
        f"{pluralize(section.pairs, 'pair')} of runs, {pluralize(section.steps, 'step')} each way",
    )
    lines += options.wrap_parts(parts, "    ")
    rows: list[tuple[str, ...]] = []
    for row in section.callables if complete else section.callables[:MAX_CALLABLES]:
        place = options.format_place(row.function.file, row.function.line)
        name = f"    {options.clean(row.function.function, 40)} ({place})"
        times = (_format_time(row.compiled_s), _format_time(row.eager_s), _format_ratio(row.ratio))
        rows.append((name, format_three_digits(row.calls), *times))
    head = ("    a call of", "in a step", "compiled", "eager", "as fast as eager")
    shown = Table(head, rows, right=head[1:], shrink=head[0])
    lines += render_table(shown, options) if rows else []
    lines += format_more(len(section.callables) - len(rows), ": compilediag show --all", "    ")
    return lines + _render_notes(section.notes, options)


def _format_ratio(ratio: EagerRatio) -> str:
    middle = _format_factor(ratio.middle)
    return f"{middle} ({_format_factor(ratio.low)} to {_format_factor(ratio.high)})"


def _format_factor(value: float) -> str:
    """Format a ratio, with two digits after the point near one, so that 0.98x is not 1x. The
    interval of two noisy pairs has no end worth writing."""
    if value > 1000:
        return "over 1,000x"
    return f"{value:.2f}x" if value < 9.995 else f"{format_three_digits(value)}x"


def _format_time(value: float | None) -> str:
    return NOT_MEASURED if value is None else format_quantity(value, "s")


def _describe_numbers(section: NumbersSection) -> str:
    """Describe what was compared, and the first difference."""
    if section.same is None:
        return f"not compared: {section.problem}"
    if section.same:
        calls = pluralize(section.calls, "compiled call")
        compared = f"{pluralize(section.values, 'value')} of {calls}"
        left = section.unstable + section.undetermined
        but = f"; {pluralize(left, 'other')} not judged" if left else ""
        return f"those of eager, within rounding: {compared}{but}"
    first = section.differences[0]
    return (
        f"differ from eager, first in call {first.call} (step {first.step}) of "
        f"{first.function.function}: {first.text} ({first.dtype})"
    )


# --- a second start ------------------------------------------------------------------------------

UNCACHED = "no cache holds Dynamo's tracing, the guards, and the loading of kernels"

_TO_DO = {
    "bypass": "change what torch names, and the next start takes it from the cache",
    "disabled": "leave the cache switched on",
    "failed": "see what the cache raised",
    "entry_gone": "keep the cache folder; where no entry was stored, CD613 and CD614 say why",
    "guard_miss": "compile the sizes that are used in the same order at every start",
    "not_compiled_before": "make both starts run the same code on the same sizes",
}
"""What to change; a key that changes is a finding with a fix of its own where torch records why."""


def _describe_second_start(section: ColdAndWarmSection) -> str:
    """Describe how much of the second start was in no cache, and what it paid."""
    if section.verdict == "not_concluded":
        return f"not concluded: {section.problem}"
    warm = format_seconds(section.warm_s)
    paid = f"{warm} of compiling (the first start {format_seconds(section.cold_s)})"
    if section.verdict == "from_caches":
        what = "the graph came" if section.compiles == 1 else f"all {section.compiles} graphs came"
        return f"{what} from the caches; {paid}: {UNCACHED}"
    again = len(section.again)
    compiles = pluralize(section.compiles, "compile")
    return f"{again} of {compiles} not wholly taken from a cache; {paid}"


def _render_second_start(
    section: ColdAndWarmSection, receipt: Receipt, options: RenderOptions, *, complete: bool
) -> list[str]:
    """Render the sentence, the phases, outcomes of the caches, and each compile with its reason."""
    sentence = options.clean(_describe_second_start(section), 600)
    lines = options.wrap(sentence, "  second start: ", "    ", style="bold")
    if section.verdict == "not_concluded":
        return lines
    cold, warm = section.cold_by_phase, receipt.compile.seconds
    if warm is not None and cold:
        names = sorted({*cold, *warm.by_phase}, key=lambda name: -cold.get(name, 0.0))
        rows = [
            (
                f"    {LABELS.get(name, options.clean(name, 40))}",
                format_seconds(cold.get(name, 0.0)),
                format_seconds(warm.by_phase.get(name, 0.0)),
            )
            for name in (names if complete else names[:MAX_PHASES])
        ]
        head = ("    compile seconds", "first start", "second")
        lines += render_table(Table(head, rows, right=head[1:]), options)
    # Each cache in the second start, with the first one's hits where it had any.
    parts: list[str] = []
    for use in receipt.caches.caches if receipt.caches is not None else ():
        outcomes = [pluralize(use.hits, "hit"), f"{use.misses} missed"]
        outcomes += [f"{use.bypasses} bypassed"] if use.bypasses else []
        outcomes += ["switched off"] if use.disabled else []
        outcomes += [f"{use.failed} failed"] if use.failed else []
        before = section.cold_outcomes.get(use.cache, {}).get("hits", 0)
        outcomes += [f"{pluralize(before, 'hit')} in the first start"] if before else []
        parts.append(f"{options.clean(use.cache, 40)}: {', '.join(outcomes)}")
    lines += options.wrap_parts(parts, "    ")
    shown = section.again if complete else section.again[:MAX_AGAIN]
    for record in shown:
        cost = f", {format_seconds(record.seconds)}" if record.seconds is not None else ""
        place = options.clean(record.place, 120) or "a graph"
        what = f"{options.clean(record.compile_id, 20)} {place}{cost}"
        why = options.clean(record.reason, 400)
        lines += options.wrap(f"{what}: {why}", "    again: ", "      ")
        for name, (before, after) in list(record.changes.items())[:1]:
            if before is not None or after is not None:
                change = options.format_change(before or "nothing", after or "nothing", 90)
                key = options.clean(name, 60)
                lines += options.wrap(f"{key}: {change}", "      ", "        ")
        if to_do := _TO_DO.get(record.why):
            lines += options.wrap(to_do, "      fix: ", style="cyan")
    lines += format_more(len(section.again) - len(shown), ": compilediag show --all", "    ")
    return lines + _render_notes(section.notes, options)
