"""Judges a test, or a block of it, on its receipt: counts, the lines behind them, markers. A
recompile belongs to the block in which its compile ended, with the `Recompiled` event before it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from compilediag.compare.gate.limits import Limit, get_count
from compilediag.compare.keys import NEEDS
from compilediag.compare.run_baseline import build_run_baseline, is_recompile_counted
from compilediag.diagnosis.codes import BLIND
from compilediag.pytest_plugin import details
from compilediag.pytest_plugin.marks import Requirements
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.watch import WatchResult
from compilediag.views.format import pluralize
from compilediag.views.text import clean
from compilediag_harness import wire
from compilediag_harness.redaction.redactor import Redactor, list_secret_values


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a test fails."""

    headline: str
    details: tuple[str, ...] = ()
    blind: bool = False
    """The test cannot be judged, which is no pass."""

    @classmethod
    def make_blind(cls, headline: str, details: Iterable[str] = ()) -> Problem:
        """Make the problem of a test that cannot be judged."""
        return cls(f"blind: {headline}", tuple(details), blind=True)


class CompileFailure(pytest.fail.Exception):
    """A test compiled what it must not, or cannot be judged. Shown without a traceback."""

    __module__ = "builtins"  # pytest shows the module otherwise, and cuts the sentence

    def __init__(self, text: str) -> None:
        super().__init__(text, pytrace=False)


def format_failure(problems: Sequence[Problem], block: str = "") -> str:
    """Format problems as text without secrets; `block` names the block that they are about."""
    about = f"{block}: " if block else ""
    lines: list[str] = []
    for problem in problems:
        lines.append(f"compilediag: {about}{problem.headline}")
        lines += [f"  {line}" for line in problem.details]
    return Redactor(list_secret_values(sys.argv, os.environ)).redact_text("\n".join(lines))


def describe_count(name: str, number: int) -> str:
    """Describe a count in words: "2 recompiles"."""
    return pluralize(number, _get_noun(name))


def _get_noun(name: str) -> str:
    noun = name.removesuffix("s").replace("_", " ") + " recompile" * (name in NEEDS)
    return "CUDA-graph recording" if noun == "recording" else noun


NOTHING_COMPILED = "CD901"
_NO_REASON = ("never_ran", "unknown")
"""Reasons of CD901 of which the calls say more."""


def find_blindness(receipt: Receipt, calls: int, *, may_be_quiet: bool = False) -> list[Problem]:
    """Find why this test cannot be judged. `may_be_quiet`: it may compile nothing."""
    problems: list[Problem] = []
    for finding in receipt.findings:
        if finding.rule not in BLIND or (may_be_quiet and finding.rule == NOTHING_COMPILED):
            continue
        headline = "the evidence is not complete, so the counts say nothing"
        if finding.rule == NOTHING_COMPILED:
            headline = "nothing was compiled in this test, so its counts say nothing"
        problems.append(Problem.make_blind(headline, _explain_blind(finding, calls)))
    return problems


def _explain_blind(finding: FindingRecord, calls: int) -> list[str]:
    """Explain what is missing and what to do; by the `calls` of compiled callables where it is not
    recorded why nothing compiled."""
    hint = f"{finding.fix.label}: {clean(finding.fix.summary)}"
    if AnyEvidence.parse(finding.evidence).why in _NO_REASON:
        hint = "no compiled callable was called: is torch.compile reached, is the result used?"
        if calls:
            hint = (
                f"{pluralize(calls, 'compiled call')} ran without compiling: compiled before the "
                "test began (in a fixture of a wider scope, at import), or under an eager stance? "
                "Call torch.compile inside the test, or in a fixture of its own"
            )
    return [f"{finding.rule} {clean(finding.title or finding.slug)}", f"  {hint}"]


# --- reasons -------------------------------------------------------------------------------------


class JudgedPart:
    """The part of a run that is judged. With `own_code_only`, without what lies in libraries and in
    torch: a recompile is the user's own when the line of a guard, the compiled frame or the call
    that led there is."""

    def __init__(self, run: WatchResult, *, own_code_only: bool = False) -> None:
        self.receipt = run.receipt
        self._run = build_run_baseline(run.receipt, own_code_only=own_code_only)
        counted, failed = self._run.is_file_counted, details.list_failed_recompiles(run)
        again = (event for event in run.receipt.compile.events if event.kind == "recompile")
        self.recompiles = tuple(event for event in again if is_recompile_counted(event, counted))
        self.failed_recompiles = tuple(
            event for event in failed if is_recompile_counted(event, counted)
        )
        """Attempts to compile again that left no code: in no count of recompiles, and worse."""

    def get_count(self, name: str) -> int | None:
        """Get a count by its name; None where it was not measured."""
        return get_count(self.receipt, self._run, name)

    def judge_count(self, name: str, limit: Limit, wanted: str) -> list[Problem]:
        """Judge a count by a limit that it must not exceed; `wanted`: what it was to be. A count
        that was not measured is not zero."""
        number = self.get_count(name)
        if number is None:
            what = f"{_get_noun(name)}s were not measured here"
            return [Problem.make_blind(f"{what}: skip the test where they cannot be")]
        headline = f"{describe_count(name, number)}, {wanted}"
        broken = limit.is_broken_by(number)
        return [Problem(headline, tuple(self.list_details(name)))] if broken else []

    def list_details(self, name: str) -> list[str]:
        """List what a count counts, line by line."""
        part = self.receipt.compile
        frames = [row for row in part.frames_detail if self._run.is_file_counted(row.frame.file)]
        if name == "recompiles":
            return self.list_causes((*self.recompiles, *self.failed_recompiles))
        if name in NEEDS:
            return self.list_causes(event for event in self.recompiles if event.need == name)
        if name == "graph_breaks":
            sites = [site for group in self._run.breaks.values() for site in group]
            return details.render_breaks(self.receipt, sites)
        if name == "frames":
            return details.render_frames(frames)
        if name == "compiles":
            events = [event for event in part.events if self._run.is_file_counted(event.frame.file)]
            compiles = [details.format_attempt(event, event.frame) for event in events]
            return [*compiles, *self.list_causes(self.recompiles)]
        if name == "eager_fallbacks":
            return details.render_fallbacks(self.receipt, [row for row in frames if row.ran_eager])
        return []

    def list_causes(
        self, events: Iterable[CompileEvent], only: tuple[str, str | None] | None = None
    ) -> list[str]:
        """List every cause of these recompiles; or that of a rule and a variable `only`."""
        return details.render_causes(self.receipt, events, only)


# --- a test --------------------------------------------------------------------------------------

Intervals = Sequence[tuple[float, float]]
"""Warm-ups, in which compiling is expected: begin and end of each, in seconds."""


def judge(run: WatchResult, required: Requirements, warmups: Intervals) -> list[Problem]:
    """Judge a test: all that its markers forbid, and first what makes the counts worth nothing."""
    part = JudgedPart(run, own_code_only=required.own_code_only)
    problems = find_blindness(run.receipt, run.calls)
    if required.own_code_only and not problems and not part.get_count("graphs"):
        only = "nothing of your own code was compiled, only code of libraries"
        problems = [Problem.make_blind(only)]
    if (warmup := required.warmup) is not None:
        allowed = {
            tuple(compile_.id)
            for compile_ in run.timeline.recompiles
            if any(start <= compile_.t <= end for start, end in warmups)
        }
        made, failed = (
            [
                event
                for event in events
                if (event.step or 0) >= warmup
                and (event.process, event.epoch, event.compile_id) not in allowed
            ]
            for events in (part.recompiles, part.failed_recompiles)
        )
        happened = [pluralize(len(made), "recompile")] if made else []
        if failed:
            happened.append(f"{pluralize(len(failed), 'attempt')} to recompile that left no code")
        if happened:
            after = f" after a warm-up of {pluralize(warmup, 'step')}" if warmup else ""
            headline = f"{' and '.join(happened)}{after}; zero_recompiles allows none"
            problems.append(Problem(headline, tuple(part.list_causes((*made, *failed)))))
    for name, bound in required.limits.items():
        problems += part.judge_count(name, Limit(name, ">", bound), f"the budget is {bound}")
    names = set(required.limits)
    covered = "eager_fallbacks" in names or not {"recompiles", "compiles"} & names
    if part.failed_recompiles and not covered:
        headline = (
            "torch gave up compiling again: what runs eager from then on is in no count of "
            "recompiles"
        )
        problems.append(Problem(headline, tuple(part.list_causes(part.failed_recompiles))))
    return problems


# --- a block -------------------------------------------------------------------------------------

_CONTEXT = (wire.ProcessStarted, wire.TorchSeen, wire.EnvironmentRead, wire.StepsEnded)
_LEFT_OUT = (wire.ProcessEnded, wire.HazardsChecked, wire.UnguardedChanged)
"""They are about the whole process, or about what has not happened yet."""
_SWITCHED_OFF = ("force_eager", "eager_on_recompile")
"""Stances under which nothing compiles whatever the program does."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a test, by the clock of its events."""

    name: str
    where: str
    """The line at which it began."""
    start: float
    calls: int
    """Calls of compiled callables: before the block, then, once it is closed, inside it."""
    stance: str | None = None
    """The `torch.compiler.set_stance` at the beginning, or at the end when it was none then."""
    end: float = float("inf")

    @property
    def title(self) -> str:
        """The name of the block in a failure."""
        return f"{self.name} at {self.where}"

    def close(self, end: float, calls: int, stance: str | None) -> Block:
        """Close the block at its end; `calls` counts from the beginning of the test."""
        known = self.stance if self.stance in _SWITCHED_OFF else stance
        return replace(self, end=end, calls=calls - self.calls, stance=known)


def judge_steady(run: WatchResult, block: Block) -> list[Problem]:
    """Judge a block in which nothing may compile: each compile, and whether quiet is meaningful."""
    inside = extract_part(run, block.start, block.end)
    problems = find_blindness(run.receipt, run.calls, may_be_quiet=True)
    lines = details.render_attempts(inside)
    lines += [
        f"{clean(event.trigger, limit=60)} began · step {event.step}"
        for event in list_unfinished(inside.events)
    ]
    if lines:
        lines += JudgedPart(inside).list_details("recompiles")
        title = f"{pluralize(len(inside.timeline.compiles), 'compile')} where nothing may compile"
        return [*problems, Problem(title, tuple(lines))]
    return [*problems, *_find_hollow(run, block)]


def _find_hollow(run: WatchResult, block: Block) -> list[Problem]:
    """Find the reasons for which a quiet block shows nothing."""
    receipt = run.receipt
    if not receipt.compile.graphs:
        nothing = [finding for finding in receipt.findings if finding.rule == NOTHING_COMPILED]
        reasons = [line for finding in nothing for line in _explain_blind(finding, run.calls)]
        return [Problem.make_blind("nothing has compiled in this test so far", reasons)]
    problems: list[Problem] = []
    calls_are_seen = (receipt.environment.hooks_available or {}).get("compiled_calls", True)
    if not block.calls and calls_are_seen:
        problems.append(Problem.make_blind("no compiled callable was called in the block"))
    if receipt.compile.recompile_limit_hits:
        headline = "torch gave up compiling: what runs eager compiles nothing and is not steady"
        over = [
            detail
            for detail in receipt.compile.frames_detail
            if detail.ran_eager
            and detail.headroom.limit is not None
            and detail.headroom.variants >= detail.headroom.limit
        ]
        problems.append(Problem(headline, tuple(details.render_fallbacks(receipt, over))))
    if block.stance in _SWITCHED_OFF:
        stance = f"torch.compiler.set_stance({block.stance!r}) is in force"
        problems.append(Problem.make_blind(stance))
    return problems


def judge_exact(run: WatchResult, block: Block, expected: Mapping[str, int]) -> list[Problem]:
    """Judge a block by exact counts: each that is not the expected one."""
    inside = JudgedPart(extract_part(run, block.start, block.end))
    problems = find_blindness(run.receipt, run.calls, may_be_quiet=True)
    for name, wanted in expected.items():
        problems += inside.judge_count(name, Limit(name, "!=", wanted), f"expected {wanted}")
    if not problems and not any(expected.values()):
        problems = _find_hollow(run, block)
    return problems


def judge_frames(run: WatchResult, expected: Mapping[str, int], *, others: bool) -> list[Problem]:
    """Judge each function that has not been compiled as often as expected."""
    part, frames = JudgedPart(run), run.receipt.compile.frames_detail
    counts = Counter[str]()
    for detail in frames:
        counts[detail.frame.function] += detail.compiles
    unnamed = [name for name in counts if name not in expected and not others and counts[name]]
    problems = find_blindness(run.receipt, run.calls, may_be_quiet=bool(counts))
    for name in (*expected, *unnamed):
        if counts[name] == expected.get(name, 0):
            continue
        again = (*part.recompiles, *part.failed_recompiles)
        wanted = f"expected {expected[name]}" if name in expected else "expected no other function"
        title = f"{clean(name, limit=80)} was compiled {pluralize(counts[name], 'time')}, {wanted}"
        lines = (
            *details.render_frames(detail for detail in frames if detail.frame.function == name),
            *part.list_causes(event for event in again if event.frame.function == name),
        )
        problems.append(Problem(title, lines))
    return problems


def extract_part(run: WatchResult, start: float, end: float) -> WatchResult:
    """Extract the run from `start` to `end`, both in seconds on the clock of its events."""
    part = WatchResult(run.timeline.user_roots)
    for event in select_events(run.events, start, end):
        part.keep(event)
    part.end(end - start, None)
    return part


def select_events(events: Sequence[wire.Event], start: float, end: float) -> tuple[wire.Event, ...]:
    """Select the events from `start` to `end`."""
    rows = [event for event in events if isinstance(event, wire.Compiled)]
    inside = {(row.epoch, row.compile_id) for row in rows if start <= row.t <= end}
    before = {(row.epoch, row.compile_id) for row in rows if row.t < start}

    def belongs(event: wire.Event) -> bool:
        if isinstance(event, _CONTEXT):
            return True
        if isinstance(event, _LEFT_OUT):
            return False
        if isinstance(event, wire.Recompiled):
            key = (event.epoch, event.compile_id)
            return key in inside or (key not in before and start <= event.t <= end)
        return start <= event.t <= end

    return tuple(event for event in events if belongs(event))


def list_unfinished(events: Iterable[wire.Event]) -> tuple[wire.CompileStarted, ...]:
    """List compiles that began and have no row: still going on, or none of Dynamo's (a recording of
    a CUDA graph, a tuning run of Triton)."""
    started = [event for event in events if isinstance(event, wire.CompileStarted)]
    rows = {(row.epoch, row.compile_id) for row in events if isinstance(row, wire.Compiled)}
    return tuple(event for event in started if (event.epoch, event.compile_id) not in rows)
