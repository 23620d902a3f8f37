"""The verdict of a receipt in one sentence, with the counts behind it; shared by all views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from compilediag.views.format import count, percent, seconds

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt


class Headline(Struct, frozen=True):
    """`sentence` says what happened, `counts` are the facts behind it, in the same order always."""

    kind: Literal["bad", "good", "blind", "warn"]
    sentence: str
    counts: tuple[str, ...]


def headline(receipt: Receipt) -> Headline:
    """What happened in this run, as one sentence without a sign or colour."""
    counts = _counts(receipt)
    if receipt.verdict == "blind":
        return Headline("blind", _blind(receipt), counts)
    if receipt.verdict == "clean":
        return Headline("good", _clean(receipt), counts)
    if receipt.verdict is None:
        return Headline("blind", f"no verdict; {_other_problems(receipt)}", counts)
    errors = any(item.severity == "error" for item in receipt.findings)
    bad = errors or (receipt.compile.recompiles > 0 and not _all_in_warmups(receipt))
    return Headline("bad" if bad else "warn", _found(receipt), counts)


def _counts(receipt: Receipt) -> tuple[str, ...]:
    seen = receipt.compile
    total_s = seen.time_s.total
    counts = [
        count(seen.frames, "frame"),
        count(seen.compiles, "compile") + (f" in {seconds(total_s)}" if total_s else ""),
        count(seen.graph_breaks, "graph break"),
        count(seen.eager_fallbacks, "eager fallback"),
    ]
    if seen.recompile_limit_hits:
        counts.append(count(seen.recompile_limit_hits, "recompile limit hit"))
    ranks = receipt.ranks
    if ranks is not None and ranks.told is not None and ranks.totals is not None:
        counts.append(f"of {ranks.told:,} of {ranks.totals.ranks:,} ranks")
    return tuple(counts)


def in_steps(receipt: Receipt) -> str:
    """A blank and "in 12 steps", or nothing where no step was seen."""
    steps = receipt.steps
    return f" in {count(steps.count, 'step')}" if steps is not None and steps.count else ""


def _found(receipt: Receipt) -> str:
    seen = receipt.compile
    if not seen.recompiles or _all_in_warmups(receipt):
        return _other_problems(receipt)
    sentence = count(seen.recompiles, "recompile") + in_steps(receipt)
    cost_s = seen.time_s.recompile
    if cost_s is None:
        return f"{sentence} (their cost was not measured)"
    goodput = receipt.goodput
    share = percent(cost_s, goodput.wall_s) if goodput is not None else None
    return f"{sentence} cost {seconds(cost_s)}" + (f", {share} of wall time" if share else "")


def _other_problems(receipt: Receipt) -> str:
    """Without recompiles that nobody wanted: what else was found, worst first."""
    seen = receipt.compile
    problems: list[str] = []
    if seen.eager_fallbacks:
        problems.append(count(seen.eager_fallbacks, "frame") + " ran eager, without compiled code")
    if seen.graph_breaks:
        problems.append(count(seen.graph_breaks, "graph break"))
    if not problems:
        wanted = _all_in_warmups(receipt)
        parts = [item for item in receipt.findings if not (wanted and item.severity == "info")]
        problems.append(count(len(parts), "finding"))
    return f"{', '.join(problems)}{in_steps(receipt)}; {_recompiles(receipt)}"


def _recompiles(receipt: Receipt) -> str:
    sentence = count(receipt.compile.recompiles, "recompile")
    return f"{sentence}, all in warm-ups" if _all_in_warmups(receipt) else sentence


def _all_in_warmups(receipt: Receipt) -> bool:
    """Every recompile is one of a warm-up for several sizes: wanted, and reported as information.
    One may have several causes, so their ids are counted."""
    wanted: set[str] = set()
    for finding in receipt.findings:
        compile_ids = finding.evidence.get("compile_ids", ())
        if (finding.rule, finding.severity) == ("CD105", "info"):
            wanted.update(compile_ids)
        elif compile_ids:
            return False
    return 0 < receipt.compile.recompiles == len(wanted)


def _clean(receipt: Receipt) -> str:
    frames = [item for item in receipt.compile.frames_detail if item.compiles]
    if frames and all(item.compiles == 1 for item in frames):
        compiled = count(len(frames), "frame") + " compiled once"
        compiled += " each" if len(frames) > 1 else ""
    else:
        compiled = f"{count(receipt.compile.compiles, 'compile')} seen"
    return f"clean: {compiled}, {_recompiles(receipt)}{in_steps(receipt)}"


def _blind(receipt: Receipt) -> str:
    seen = receipt.compile.recompiles
    if seen:
        return f"blind: at least {count(seen, 'recompile')}, but the evidence is not complete"
    return "blind: this run cannot be called clean, because compilediag could not see enough"
