"""What is wrong with one block of a test: steady, or with exact counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from compilediag.pytest_plugin.counted import counted
from compilediag.pytest_plugin.judge import (
    Problem,
    behind,
    blind,
    number_of,
    unmeasured,
    why_nothing_compiled,
)
from compilediag.pytest_plugin.details import Listing
from compilediag.pytest_plugin.judged_events import stretch, unfinished
from compilediag.runs.pipeline import RunEvents, diagnosis_of
from compilediag.runs.watch import WatchResult
from compilediag.timeline.timeline import Timeline
from compilediag.views.text import clean
from compilediag.views.words import count

_SWITCHED_OFF = ("force_eager", "eager_on_recompile")
"""Stances under which nothing compiles whatever the program does."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a test, by the clock of its events."""

    name: str
    where: str
    """The line at which it began."""
    start: float
    calls: int
    """Calls of compiled callables: before the block, then, once it is closed, inside of it."""
    stance: str | None = None
    """Of `torch.compiler.set_stance`, at the beginning, or at the end when it was none then."""
    end: float = float("inf")

    def closed(self, end: float, calls: int, stance: str | None) -> Block:
        """The block at its end; `calls` counts from the beginning of the test."""
        known = self.stance if self.stance in _SWITCHED_OFF else stance
        return replace(self, end=end, calls=calls - self.calls, stance=known)


def judge_steady(seen: WatchResult, block: Block) -> list[Problem]:
    """Every compile of a block in which nothing may compile, and whether quiet means anything."""
    events = stretch(seen.events, block.start, block.end)
    inside, diagnosis = diagnosis_of(RunEvents([events], seen.timeline.user_roots))
    listing = Listing(inside, diagnosis)
    problems = blind(seen.timeline, seen.diagnosis, seen.calls, quiet=True)
    details = listing.compiles(inside.compiles)
    details += [
        f"{clean(event.trigger, limit=60)} began · step {event.step}"
        for event in unfinished(events)
    ]
    if details:
        details += listing.causes(inside.recompiles)
        headline = f"{count(len(inside.compiles), 'compile')} where nothing may compile"
        return [*problems, Problem(headline, tuple(details))]
    return [*problems, *_hollow(seen, block)]


def _hollow(seen: WatchResult, block: Block) -> list[Problem]:
    """Reasons for which a quiet block shows nothing."""
    timeline = seen.timeline
    if not any(frame.graphs for frame in timeline.frames):
        reasons = tuple(why_nothing_compiled(timeline, seen.calls))
        return [Problem.of_blindness("nothing has compiled in this test so far", reasons)]
    problems: list[Problem] = []
    if not block.calls and _calls_are_heard(timeline):
        problems.append(Problem.of_blindness("no compiled callable was called in the block"))
    given_up = [frame for frame in timeline.frames if frame.limit_hit_step is not None]
    if given_up:
        listing = Listing(timeline, seen.diagnosis)
        headline = "torch gave up compiling: what runs eager compiles nothing and is not steady"
        problems.append(Problem(headline, tuple(listing.eager(given_up))))
    if block.stance in _SWITCHED_OFF:
        stance = f"torch.compiler.set_stance({block.stance!r}) is in force"
        problems.append(Problem.of_blindness(stance))
    return problems


def _calls_are_heard(timeline: Timeline) -> bool:
    return all(
        process.torch is None or process.torch.hooks.get("compiled_calls", True)
        for process in timeline.processes
    )


def judge_exact(seen: WatchResult, block: Block, asked: Mapping[str, int]) -> list[Problem]:
    """Every count of the block that is not the one that was asked for."""
    events = stretch(seen.events, block.start, block.end)
    inside, diagnosis = diagnosis_of(RunEvents([events], seen.timeline.user_roots))
    listing = Listing(inside, diagnosis)
    found = counted(inside, diagnosis.causes)
    problems = blind(seen.timeline, seen.diagnosis, seen.calls, quiet=True)
    for name, expected in asked.items():
        number = found.number(name)
        if number is None:
            problems.append(unmeasured(name))
        elif number != expected:
            headline = f"{number_of(name, number)}, expected {expected}"
            problems.append(Problem(headline, tuple(behind(name, found, listing))))
    if not problems and not any(asked.values()):
        problems = _hollow(seen, block)
    return problems


def judge_frames(seen: WatchResult, asked: Mapping[str, int], *, others: bool) -> list[Problem]:
    """Every function that has not been compiled as often as was asked for."""
    timeline = seen.timeline
    listing = Listing(timeline, seen.diagnosis)
    found = Counter[str]()
    for frame in timeline.frames:
        found[frame.where.function] += frame.compiles
    names = [*asked, *(name for name in found if name not in asked and not others and found[name])]
    problems = blind(timeline, seen.diagnosis, seen.calls, quiet=bool(found))
    for name in names:
        expected = asked.get(name, 0)
        if found[name] != expected:
            frames = [frame for frame in timeline.frames if frame.where.function == name]
            again = [item for item in timeline.recompiles if item.frame.function == name]
            wanted = f"expected {expected}" if name in asked else "expected no other function"
            times = count(found[name], "time")
            headline = f"{clean(name, limit=80)} was compiled {times}, {wanted}"
            details = (*listing.frames(frames), *listing.causes(again))
            problems.append(Problem(headline, details))
    return problems
