"""What is wrong with a test that was watched, as sentences with everything behind them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from compilediag.diagnosis.diagnose import Diagnosis
from compilediag.pytest_plugin.counted import Counted, counted
from compilediag.pytest_plugin.details import Listing
from compilediag.pytest_plugin.marks import Demands
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag.views.lookups import BLIND_RULES
from compilediag.views.text import clean
from compilediag.views.words import count

_NOUNS = {
    "recompiles": "recompile",
    "graph_breaks": "graph break",
    "frames": "frame",
    "compiles": "compile",
    "eager_fallbacks": "eager fallback",
    "recordings": "CUDA-graph recording",
}

NOTHING_COMPILED = "CD901"

Windows = Sequence[tuple[float, float]]
"""Stretches of time in which compiling is expected: begin and end of each."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a test fails."""

    headline: str
    details: tuple[str, ...] = ()
    blind: bool = False
    """Nothing can be said, which is no pass."""

    @classmethod
    def of_blindness(cls, headline: str, details: Iterable[str] = ()) -> Problem:
        """Why nothing can be said."""
        return cls(f"blind: {headline}", tuple(details), blind=True)


def number_of(name: str, number: int) -> str:
    """A count in words: "2 recompiles"."""
    return count(number, _NOUNS[name])


def judge(
    timeline: Timeline, diagnosis: Diagnosis, demands: Demands, warmups: Windows, calls: int
) -> list[Problem]:
    """Everything that markers forbid, and first whatever makes the counts worth nothing."""
    seen = counted(timeline, diagnosis.causes, own_code_only=demands.own_code_only)
    listing = Listing(timeline, diagnosis)
    problems = blind(timeline, diagnosis, calls)
    if demands.own_code_only and not problems and not any(frame.graphs for frame in seen.frames):
        only = "nothing of your own code was compiled, only code of libraries"
        problems = [Problem.of_blindness(only)]
    if demands.warmup is not None:
        problems += _after_warmup(seen, listing, demands.warmup, warmups)
    problems += over_limits(seen, listing, demands.limits)
    return problems


def _after_warmup(
    seen: Counted, listing: Listing, warmup: int, warmups: Windows
) -> Iterable[Problem]:
    late = [
        item
        for item in sorted((*seen.recompiles, *seen.given_up), key=lambda item: item.t)
        if item.step >= warmup and not any(start <= item.t <= end for start, end in warmups)
    ]
    if late:
        after = f" after a warm-up of {count(warmup, 'step')}" if warmup else ""
        headline = f"{_again(late)}{after}; zero_recompiles allows none"
        yield Problem(headline, tuple(listing.causes(late)))


def _again(recompiles: Sequence[Recompile]) -> str:
    """How often torch compiled again, and how often it gave up instead."""
    made = sum(1 for item in recompiles if item.produced)
    left = len(recompiles) - made
    told = [count(made, "recompile")] if made else []
    if left:
        told.append(f"{count(left, 'attempt')} to recompile that left no code")
    return " and ".join(told)


def over_limits(seen: Counted, listing: Listing, limits: Mapping[str, int]) -> list[Problem]:
    """Each count above its limit, and each that cannot be told."""
    problems: list[Problem] = []
    for name, limit in limits.items():
        number = seen.number(name)
        if number is None:
            problems.append(unmeasured(name))
        elif number > limit:
            headline = f"{number_of(name, number)}, the budget is {limit}"
            problems.append(Problem(headline, tuple(behind(name, seen, listing))))
    if (
        seen.given_up
        and "eager_fallbacks" not in limits
        and {"recompiles", "compiles"} & set(limits)
    ):
        headline = (
            "torch gave up compiling again: what runs eager from then on is in no count of "
            "recompiles"
        )
        problems.append(Problem(headline, tuple(listing.causes(seen.given_up))))
    return problems


def unmeasured(name: str) -> Problem:
    """A count that was asked for and that nobody has measured: no number is no zero."""
    return Problem.of_blindness(
        f"{_NOUNS[name]}s were not measured here: skip the test where they cannot be"
    )


def behind(name: str, seen: Counted, listing: Listing) -> list[str]:
    """What a count counts, line by line."""
    if name == "recompiles":
        return listing.causes((*seen.recompiles, *seen.given_up))
    if name == "graph_breaks":
        return listing.breaks(seen.graph_breaks)
    if name == "frames":
        return listing.frames(seen.frames)
    if name == "compiles":
        return [*listing.compiles(seen.compiles), *listing.causes(seen.recompiles)]
    if name == "eager_fallbacks":
        return listing.eager(seen.eager_fallbacks)
    return []


# --- blindness -------------------------------------------------------------------------------


def blind(
    timeline: Timeline, diagnosis: Diagnosis, calls: int, *, quiet: bool = False
) -> list[Problem]:
    """Why nothing can be said of this test: nothing compiled, or evidence lost. `quiet`: that
    nothing compiled is no reason, because it is what was asked for."""
    problems: list[Problem] = []
    for finding in diagnosis.findings:
        if finding.rule not in BLIND_RULES or (quiet and finding.rule == NOTHING_COMPILED):
            continue
        details = [f"{finding.rule} {clean(finding.title)}"]
        if finding.rule == NOTHING_COMPILED:
            details += [f"  {reason}" for reason in why_nothing_compiled(timeline, calls)]
            headline = "nothing was compiled in this test, so its counts say nothing"
        else:
            details.append(f"  fix: {clean(finding.fix.summary)}")
            headline = "the evidence is not complete, so the counts say nothing"
        problems.append(Problem.of_blindness(headline, details))
    return problems


def why_nothing_compiled(timeline: Timeline, calls: int) -> list[str]:
    """Likely reasons, from what was seen; each says what to do."""
    if not any(process.torch is not None for process in timeline.processes):
        return ["torch was not imported by the end of the test"]
    told: list[str] = []
    settings: dict[str, object] = {}
    for process in timeline.processes:
        settings.update(cast("dict[str, object]", process.facts.get("compile") or {}))
    if settings.get("disabled_by_environment"):
        told.append("TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE is set: unset it for this test")
    elif settings.get("disable"):
        told.append("torch._dynamo.config.disable is True: torch.compile is switched off")
    stance = settings.get("stance")
    if stance not in (None, "default"):
        told.append(f"torch.compiler.set_stance({clean(stance)!r}) is in force")
    if timeline.frames:
        told.append("torch tried, and was left without a graph: see the frames that ran eager")
    elif calls and not told:
        told.append(
            f"{count(calls, 'compiled call')} ran without compiling: compiled before the test "
            "began (in a fixture of a wider scope, at import), or under an eager stance? Call "
            "torch.compile inside the test, or in a fixture of its own"
        )
    elif not told:
        told.append(
            "no compiled callable was called: is torch.compile reached, is the result used?"
        )
    return told
