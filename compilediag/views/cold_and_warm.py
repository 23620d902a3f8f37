"""What a second start still compiles: one line, the phases of both starts, and each reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.compile_time import LABELS
from compilediag.views.format import count, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.comparisons import ColdAndWarmSection, CompiledAgainRecord
    from compilediag.receipt.schema.receipt import Receipt

MAX_AGAIN, MAX_PHASES = 4, 5
"""On the verdict screen; `show --all` has all of them."""

UNCACHED = "no cache holds Dynamo's tracing, the guards, and the loading of kernels"

_TO_DO = {
    "bypass": "change what torch names, and the next start takes it from the cache",
    "disabled": "leave the cache switched on",
    "failed": "see what the cache raised",
    "entry_gone": "let nothing delete or limit the cache folder between two starts",
    "guard_miss": "compile the sizes that are used in the same order at every start",
    "not_compiled_before": "make both starts run the same code on the same sizes",
}
"""What to change; a key that changes is a finding with a fix of its own where torch records why."""


def cold_and_warm_sentence(section: ColdAndWarmSection) -> str:
    """How much of the second start was in no cache, and what it paid. What it quotes of the target
    is not made safe."""
    if section.verdict == "not_concluded":
        return f"not concluded: {section.problem}"
    paid = f"{seconds(section.warm_s)} of compiling (the first start {seconds(section.cold_s)})"
    if section.verdict == "from_caches":
        what = "the graph came" if section.compiles == 1 else f"all {section.compiles} graphs came"
        return f"{what} from the caches; {paid}: {UNCACHED}"
    again = len(section.again)
    return f"{again} of {count(section.compiles, 'compile')} not wholly taken from a cache; {paid}"


def cold_and_warm_lines(receipt: Receipt, options: RenderOptions, *, complete: bool) -> list[str]:
    """The sentence, the phases, what the caches answered, and each compile with its reason."""
    section = receipt.cold_and_warm
    if section is None:
        return []
    sentence = options.text(cold_and_warm_sentence(section), 600)
    lines = options.wrap(sentence, "  second start: ", "    ", style="bold")
    if section.verdict == "not_concluded":
        return lines
    lines += _phases(receipt, section, options, complete=complete)
    lines += _answers(receipt, section, options)
    shown = section.again if complete else section.again[:MAX_AGAIN]
    for each in shown:
        lines += _again(each, options)
    if len(section.again) > len(shown):
        lines.append(f"    +{len(section.again) - len(shown)} more: compilediag show --all")
    for note in section.notes:
        lines += options.wrap(options.text(note, 400), "    note: ", style="dim")
    return lines


def _phases(
    receipt: Receipt, section: ColdAndWarmSection, options: RenderOptions, *, complete: bool
) -> list[str]:
    warm = receipt.compile.seconds
    if warm is None or not section.cold_by_phase:
        return []
    cold = section.cold_by_phase
    names = sorted({*cold, *warm.by_phase}, key=lambda name: -cold.get(name, 0.0))
    rows = [
        (
            f"    {LABELS.get(name, options.text(name, 40))}",
            seconds(cold.get(name, 0.0)),
            seconds(warm.by_phase.get(name, 0.0)),
        )
        for name in (names if complete else names[:MAX_PHASES])
    ]
    head = ("    compile seconds", "first start", "second")
    return table(head, rows, options, right=head[1:])


def _answers(receipt: Receipt, section: ColdAndWarmSection, options: RenderOptions) -> list[str]:
    """Each cache in the second start, with the first one's hits where it had any."""
    parts: list[str] = []
    for use in receipt.caches.caches if receipt.caches is not None else ():
        told = [count(use.hits, "hit"), f"{use.misses} missed"]
        told += [f"{use.bypasses} bypassed"] if use.bypasses else []
        told += ["switched off"] if use.disabled else []
        told += [f"{use.failed} failed"] if use.failed else []
        before = section.cold_answers.get(use.cache, {}).get("hits", 0)
        told += [f"{count(before, 'hit')} in the first start"] if before else []
        parts.append(f"{options.text(use.cache, 40)}: {', '.join(told)}")
    return options.wrap_items(parts, "    ")


def _again(each: CompiledAgainRecord, options: RenderOptions) -> list[str]:
    cost = f", {seconds(each.seconds)}" if each.seconds is not None else ""
    place = options.text(each.place, 120) or "a graph"
    what = f"{options.text(each.compile_id, 20)} {place}{cost}: {options.text(each.reason, 400)}"
    lines = options.wrap(what, "    again: ", "      ")
    for name, (before, after) in list(each.changes.items())[:1]:
        if before is not None or after is not None:
            change = options.change(before or "nothing", after or "nothing", 90)
            lines += options.wrap(f"{options.text(name, 60)}: {change}", "      ", "        ")
    to_do = _TO_DO.get(each.why)
    return lines + (options.wrap(to_do, "      fix: ", style="cyan") if to_do else [])
