"""The view of ranks: all side by side, what some do that most do not, and slow ones."""

from __future__ import annotations

from compilediag.receipt.schema.comparisons import RankDivergence, RanksSection
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.document import Block, Paragraph, Preformatted, Table
from compilediag.views.format import NOT_MEASURED, pluralize
from compilediag.views.style import RenderOptions

HEAD = ("rank", "compiles", "recompiles", "breaks", "ran eager", "compile", "cache hits", "step")
MAX_ROWS = 64
MAX_RUNS = 12
"""Of consecutive ranks in one sentence."""

_ASPECTS = {
    "compile_ids": "compiled otherwise",
    "recompile_causes": "recompiled for other causes",
    "graph_breaks": "broke graphs elsewhere",
    "cache_hits": "had other hits and misses of the compile caches",
    "collectives": "run collectives in another order",
}


def show_ranks(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the table of ranks, then what diverges, then stragglers."""
    section = receipt.ranks
    if section is None:
        return [Paragraph("this run has no ranks to compare: fewer than two were seen")]
    notes, totals = (), section.totals
    if totals is not None and section.reported is not None:
        together = (
            f"all ranks together: {pluralize(totals.compiles, 'compile')}, "
            f"{pluralize(totals.recompiles, 'recompile')}; the other screens show "
            f"{section.reported:,} of the {totals.ranks:,} ranks, "
            "one for each behaviour and then the lowest"
        )
        notes = (together,)
    rows = section.rows[:MAX_ROWS]
    hidden = _count_ranks(section) - MAX_ROWS
    cells: list[tuple[str, ...]] = []
    for row in rows:
        counts = (row.rank, row.compiles, row.recompiles, row.graph_breaks, row.eager_fallbacks)
        compiling = NOT_MEASURED if row.compile_s is None else f"{row.compile_s:.2f} s"
        hits, lookups = row.cache_hits, (row.cache_hits or 0) + (row.cache_misses or 0)
        hit_text = "?" if hits is None else f"{hits} of {lookups}"
        step = row.step_median_s
        took = NOT_MEASURED if step is None else f"{step * 1000:.2f} ms"
        cells.append((*map(str, counts), compiling, hit_text, took))
    blocks: list[Block] = [
        Paragraph(describe_ranks(section), notes),
        Table(
            HEAD,
            cells,
            right=HEAD,
            notes=(f"… {hidden} more ranks: compilediag show --json",) if hidden > 0 else (),
        ),
    ]
    blocks += [Preformatted(_render_divergence(diff, options)) for diff in section.divergences]
    if section.divergences_left_out:
        groups = pluralize(section.divergences_left_out, "more group")
        blocks.append(Paragraph(notes=(f"… and {groups} of ranks that differ",)))
    if section.stragglers:
        slow = ", ".join(
            f"rank {straggler.rank} {straggler.seconds:.3g} s ({straggler.ratio:.2f} × the median)"
            for straggler in section.stragglers[:5]
        )
        what = "a step" if section.stragglers[0].what == "step" else "compiling"
        blocks.append(Paragraph(notes=(f"slowest in {what}: {slow}",)))
    return blocks


def describe_ranks(section: RanksSection) -> str:
    """Describe all ranks in one sentence."""
    expected = "" if section.expected is None else f" of {section.expected:,}"
    sentence = f"{_count_ranks(section):,}{expected} ranks"
    if section.missing:
        sentence += f", missing: {format_ranks(section.missing)}"
    if differing := section.differing:
        differ = "1 rank differs" if differing == 1 else f"{differing} ranks differ"
        return f"{sentence}; {differ} from the others"
    return f"{sentence}; all of them do the same" if _count_ranks(section) > 1 else sentence


def _count_ranks(section: RanksSection) -> int:
    """Count the ranks of which something arrived; older receipts only list them."""
    return len(section.rows) if section.totals is None else section.totals.ranks


def format_ranks(ranks: tuple[int, ...]) -> str:
    """Format ranks, consecutive ones drawn together: "0, 3-7"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    names = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(names[:MAX_RUNS]) + (" …" if len(names) > MAX_RUNS else "")


def _render_divergence(diff: RankDivergence, options: RenderOptions) -> list[str]:
    who = "rank" if len(diff.ranks) == 1 else "ranks"
    what = _ASPECTS.get(diff.aspect, options.clean(diff.aspect, 60))
    total = "" if diff.count in {None, len(diff.ranks)} else f" ({diff.count} in all)"
    ranks = format_ranks(diff.ranks)
    sentence = f"{who} {ranks}{total} {what}, compared with rank {diff.like_rank}"
    lines = options.wrap(sentence, options.get_sign("warn") + " ")
    for label, texts in (("only there", diff.only_here), ("lacks", diff.only_there)):
        for text in texts:
            lines += options.wrap(f"{label}: {options.clean(text, 200)}", "     ", "       ")
    if diff.more:
        lines.append(f"     and {pluralize(diff.more, 'more difference')}")
    return lines
