"""Whether compiling pays: the verdict in one line, and what it is concluded from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import NOT_MEASURED, count, quantity, seconds, three_figures
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.comparisons import (
        AgainstEagerSection,
        CallableAgainstEager,
        EagerRatio,
        NarrowedRecord,
        NumberDifference,
        NumbersSection,
    )


_LAYERS = {
    "backend": "the backend (graph passes, code generation)",
    "decompositions": "decompositions, before code is generated",
    "aot_autograd": "AOTAutograd",
    "dynamo": "what Dynamo captures",
}


MAX_CALLABLES = 3
"""On the verdict screen; `show --all` has all of them."""


def against_eager_sentence(section: AgainstEagerSection) -> str:
    """The verdict: "pays after 310 steps (240 to 420): 1.8x as fast as eager (1.7x to 1.9x)". What
    it quotes of the target is not made safe."""
    ratio, even = section.ratio, section.break_even
    if section.verdict == "outputs_differ":
        return f"not concluded, since the outputs differ: {section.problem}"
    if ratio is None:
        return f"not concluded: {section.problem}"
    if section.verdict == "not_resolved":
        more = f"more pairs of runs (--rounds {2 * section.pairs}) or longer ones narrow it"
        return f"not resolved, the noise is wider than the effect: {_ratio(ratio)}; {more}"
    if section.verdict == "does_not_pay":
        return f"does not pay: {_ratio(ratio)} as fast as eager"
    if section.verdict == "same":
        return f"does not pay: as fast as eager within 1 %, {_ratio(ratio)}"
    fast = f"{_ratio(ratio)} as fast as eager"
    if even is None:
        return f"pays in steady state; after how many steps is not known: {fast}"
    to = f"to {even.high:,}" if even.high is not None else "or more"
    sentence = f"pays after {count(even.step, 'step')} ({even.low:,} {to}): {fast}"
    if section.finished < even.step:
        return f"{sentence}; the run has {section.finished:,}"
    return sentence


def against_eager_lines(
    section: AgainstEagerSection, options: RenderOptions, *, complete: bool
) -> list[str]:
    """The verdict, what was measured, the callables, what limits it."""
    sentence = options.text(against_eager_sentence(section))
    lines = options.wrap(sentence, "  against eager: ", "    ", style="bold")
    if section.ratio is None:
        return lines
    cold = " with empty caches" if section.caches == "fresh" else ""
    measured = (
        f"a step {_time(section.compiled_step_s)} compiled, {_time(section.eager_step_s)} eager",
        f"compile {seconds(section.compile_s)}{cold}",
        f"{count(section.pairs, 'pair')} of runs, {count(section.steps, 'step')} each way",
    )
    lines += options.wrap_items(measured, "    ")
    shown = section.callables if complete else section.callables[:MAX_CALLABLES]
    lines += _callables(shown, options)
    if len(section.callables) > len(shown):
        lines.append(f"    +{len(section.callables) - len(shown)} more: compilediag show --all")
    for note in section.notes:
        lines += options.wrap(options.text(note), "    note: ", style="dim")
    return lines


def _callables(items: tuple[CallableAgainstEager, ...], options: RenderOptions) -> list[str]:
    places = [options.place(each.function.file, each.function.line) for each in items]
    rows = [
        (
            f"    {options.text(each.function.function, 40)} ({place})",
            three_figures(each.calls),
            _time(each.compiled_s),
            _time(each.eager_s),
            _ratio(each.ratio),
        )
        for each, place in zip(items, places, strict=True)
    ]
    head = ("    a call of", "in a step", "compiled", "eager", "as fast as eager")
    return table(head, rows, options, right=head[1:], shrink=head[0]) if rows else []


_FAR = 1000


def _ratio(ratio: EagerRatio) -> str:
    return f"{_times(ratio.middle)} ({_times(ratio.low)} to {_times(ratio.high)})"


def _times(value: float) -> str:
    """Two digits after the point where the ratio is near one, so that 0.98x is not 1x. The interval
    of two noisy pairs has no end worth writing."""
    if value > _FAR:
        return f"over {_FAR:,}x"
    return f"{value:.2f}x" if value < 9.995 else f"{three_figures(value)}x"


def _time(value: float | None) -> str:
    return NOT_MEASURED if value is None else quantity(value, "s")


def numbers_sentence(section: NumbersSection) -> str:
    """What was compared, and the first difference. What it quotes of the target is not made
    safe."""
    if section.same is None:
        return f"not compared: {section.problem}"
    compared = f"{count(section.values, 'value')} of {count(section.calls, 'compiled call')}"
    if section.same:
        left = section.unstable + section.undetermined
        but = f"; {count(left, 'other')} not judged" if left else ""
        return f"those of eager, within rounding: {compared}{but}"
    first = section.differences[0]
    what = f", {first.path.lstrip('.')}" if first.path else ""
    return (
        f"differ from eager, first in call {first.call} (step {first.step}) of "
        f"{first.function.function}{what}: {first.text} ({first.dtype})"
    )


def numbers_lines(section: NumbersSection, options: RenderOptions, *, complete: bool) -> list[str]:
    """The sentence, the errors of the first difference, frame and layer, what limits it."""
    lines = options.wrap(options.text(numbers_sentence(section)), "  numbers: ", "    ")
    for found in section.differences[: None if complete else 1]:
        if found.eager_error is not None and found.compiled_error is not None:
            lines += options.wrap(options.text(_errors(found)), "    ")
    if section.narrowed is not None:
        lines += options.wrap(options.text(narrowed_sentence(section.narrowed)), "    ")
    for note in section.notes:
        lines += options.wrap(options.text(note), "    note: ", style="dim")
    return lines


def _errors(found: NumberDifference) -> str:
    assert found.eager_error is not None
    assert found.compiled_error is not None
    return (
        f"{found.function.function}: error against float64 {three_figures(found.compiled_error)} "
        f"compiled, {three_figures(found.eager_error)} eager"
    )


def narrowed_sentence(narrowed: NarrowedRecord) -> str:
    """Frame and layer, and with what the difference vanishes."""
    if narrowed.layer is None:
        return f"frame and layer not found: {narrowed.problem}"
    frames = f", frame {' and '.join(narrowed.frames)}" if narrowed.frames else ""
    found = f"it is in {_LAYERS[narrowed.layer]}{frames}"
    if narrowed.override is not None:
        found = f"{found}: gone with TORCH_COMPILE_OVERRIDE_BACKENDS={narrowed.override}"
    return f"{found} ({narrowed.problem})" if narrowed.problem else found
