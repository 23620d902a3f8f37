"""`compile_baseline`: a test judged by its lane of the checked-in baseline, or written into it.

With pytest-xdist the workers judge, and hand what is to be written to the controller, which alone
writes, once, at the end of the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from compilediag.compare.gate.baseline import Baseline, read, text_of
from compilediag.compare.run_baseline import LaneBaseline
from compilediag.compare.gate.baseline_file import read_lock, write_lock
from compilediag.compare.gate.judge import judge
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.compare.gate.update import recorded
from compilediag.errors import BaselineUnreadable, CompilediagError
from compilediag.pytest_plugin.details import Listing
from compilediag.pytest_plugin.judge_test import Problem
from compilediag.pytest_plugin.marks import Demands
from compilediag.pytest_plugin.settings import Settings, baseline_of
from compilediag.runs.watch import WatchResult
from compilediag.views.text import clean
from compilediag.views.words import count, seconds

UPDATE = "pytest --compilediag-update"
_LOCK = pytest.StashKey[Baseline]()
_CHANGED = pytest.StashKey[dict[str, str]]()
"""Lanes to be written, each as the text of a baseline that holds it alone."""
_TOLD = pytest.StashKey[list[str]]()


def open_baseline(config: pytest.Config, settings: Settings) -> None:
    """Reads the baseline; one that is not there yet has no lanes.

    Raises:
        pytest.UsageError: the file is no baseline, or is damaged.
    """
    try:
        config.stash[_LOCK] = (
            read_lock(settings.baseline) if settings.baseline.exists() else Baseline()
        )
    except BaselineUnreadable as error:
        raise pytest.UsageError(f"compile_baseline: {error}") from None


@dataclass(frozen=True, slots=True)
class AgainstLane:
    """What a lane says of a test: what is worse, and how much is better."""

    problems: list[Problem]
    improvements: int = 0


def judge_lane(
    config: pytest.Config, seen: WatchResult, demands: Demands, settings: Settings
) -> AgainstLane:
    """What is worse than the lane allows; in an update nothing is, and the lane is kept to be
    written."""
    lock, name = config.stash[_LOCK], str(demands.lane)
    if settings.update:
        return AgainstLane(_keep(config, seen, lock, name))
    judgement = judge(
        seen.receipt,
        baseline=lock.lane(name),
        baseline_name=settings.baseline.name,
        strict=settings.strict,
        own_code_only=demands.own_code_only,
        lane=name,
    )
    problems = _problems(judgement, seen, absent=lock.lane(name) is None)
    return AgainstLane(problems, len(judgement.improvements))


def judge_limits(seen: WatchResult, settings: Settings) -> list[Problem]:
    """What breaks the limits of `compilediag_fail_on`."""
    return _problems(judge(seen.receipt, limits=settings.limits), seen, absent=False)


def _problems(judgement: Judgement, seen: WatchResult, *, absent: bool) -> list[Problem]:
    if judgement.passed:
        return []
    about = f"lane {clean(judgement.lane)!r}: " if judgement.baseline is not None else ""
    against = f" against {clean(judgement.baseline)}" if judgement.baseline is not None else ""
    items = judgement.failures or judgement.improvements
    details = [line for item in items for line in _lines(item, seen)]
    if not judgement.judged:
        headline = f"{about}{clean(items[0].message)}"
        hint = [f"  {UPDATE} writes it"] if absent else []
        rest = details[1:] if len(items) == 1 else details
        return [Problem.of_blindness(headline, [*rest, *hint])]
    word = "reason to fail" if len(items) == 1 else "reasons to fail"
    if not judgement.failures:
        word = "improvement, which" if len(items) == 1 else "improvements, which"
        word += f" compilediag_strict_improvement wants written: {UPDATE}"
    if judgement.baseline is None:
        against = f" by compilediag_fail_on ({', '.join(judgement.limits)})"
    return [Problem(f"{about}{len(items)} {word}{against}", tuple(details))]


def _lines(item: Item, seen: WatchResult) -> Iterable[str]:
    """An item in full; a cause with everything the events know of it."""
    if item.kind == "cause":
        told = Listing(seen.timeline, seen.diagnosis).cause_of(item.rule, item.variable)
        if told:
            was = "" if item.before is None else f" (the baseline has {item.before})"
            return [f"{told[0]}{was}", *told[1:]]
    lines = [clean(item.message)]
    if item.file is not None:
        line = f":{item.line}" if item.line else ""
        function = f" in {clean(item.function)}" if item.function else ""
        cost = f" · {seconds(item.cost_s)}" if item.cost_s is not None else ""
        lines.append(f"  {clean(item.file)}{line}{function}{cost}")
    lines += [f"  guard: {clean(item.guard)}"] if item.guard else []
    lines += [f"  fix: {clean(item.fix)}"] if item.fix else []
    return lines


# --- writing ---------------------------------------------------------------------------------


def _keep(config: pytest.Config, seen: WatchResult, lock: Baseline, name: str) -> list[Problem]:
    made = recorded(seen.receipt, lock.lane(name), lane=name)
    if made.inconclusive:
        doubts = tuple(clean(doubt) for doubt in made.inconclusive[1:])
        return [Problem(f"lane {clean(name)!r} is not written: {clean(made.inconclusive[0])}", doubts)]
    text = text_of(Baseline((made.lane,)))
    if hasattr(config, "workeroutput"):
        output: dict[str, dict[str, str]] = getattr(config, "workeroutput")  # noqa: B009
        output.setdefault("compilediag_lanes", {})[name] = text
    else:
        config.stash.setdefault(_CHANGED, {})[name] = text
    return []


def receive(config: pytest.Config, lanes: Mapping[str, str]) -> None:
    """The lanes that a worker has recorded."""
    config.stash.setdefault(_CHANGED, {}).update(lanes)


def write(session: pytest.Session) -> None:
    """Puts the recorded lanes into the baseline; lanes of tests that did not run stay. A file that
    cannot be read or written is left as it is, and the session fails."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    path, changed = baseline_of(config), config.stash.setdefault(_CHANGED, {})
    if not changed:
        config.stash[_TOLD] = [f"{path.name}: no lane was recorded"]
        return
    try:
        known = read_lock(path) if path.exists() else Baseline()
        lanes = [lane for text in changed.values() for lane in read(text).lanes]
        different = write_lock(path, known.with_lanes(lanes))
    except CompilediagError as error:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        config.stash[_TOLD] = [f"nothing was written: {error}"]
        return
    said = "written to" if different else "already in"
    config.stash[_TOLD] = [f"{count(len(lanes), 'lane')} {said} {path.name}", *_unexplained(lanes)]


def _unexplained(lanes: Sequence[LaneBaseline]) -> list[str]:
    """What the baseline now allows although nobody has said why."""
    silent = [
        item
        for lane in lanes
        for item in (*lane.causes, *lane.breaks, *lane.fallbacks)
        if not item.reason
    ]
    if not silent:
        return []
    return [f'{count(len(silent), "item")} allowed without a reason: add "reason" in the file']


def written_lanes(config: pytest.Config) -> list[str]:
    """What to say of the update at the end of the session."""
    return config.stash.setdefault(_TOLD, [])
