"""The marker `compile_baseline`: judges a test by its configuration in the checked-in baseline, or
writes it there. With pytest-xdist the workers judge, and the controller alone writes, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compilediag.compare.gate.baseline import Baseline, format_lock, parse_lock
from compilediag.compare.gate.baseline_file import read_lock, write_lock
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.gate.judgement import Judgement
from compilediag.errors import BaselineUnreadable, CompilediagError
from compilediag.pytest_plugin.judge import JudgedPart, Problem
from compilediag.pytest_plugin.marks import Requirements
from compilediag.pytest_plugin.settings import SessionSettings, read_settings
from compilediag.runs.watch import WatchResult
from compilediag.views.format import format_seconds, pluralize
from compilediag.views.text import clean

UPDATE = "pytest --compilediag-update"
_BASELINE = pytest.StashKey[Baseline]()
_CHANGED = pytest.StashKey[dict[str, str]]()
"""Configurations to be written, each as the text of a baseline that holds it alone."""
_MESSAGES = pytest.StashKey[list[str]]()


def open_baseline(config: pytest.Config, settings: SessionSettings) -> None:
    """Read the baseline; one that is not there yet has no configurations.

    Raises:
        pytest.UsageError: the file is no baseline, or is damaged.
    """
    exists = settings.baseline.exists()
    try:
        config.stash[_BASELINE] = read_lock(settings.baseline) if exists else Baseline()
    except BaselineUnreadable as error:
        raise pytest.UsageError(f"compile_baseline: {error}") from None


def judge_config(
    config: pytest.Config, run: WatchResult, required: Requirements, settings: SessionSettings
) -> tuple[list[Problem], int]:
    """Judge a test by its configuration: what is worse than it allows, and how many improvements;
    in an update nothing is worse, and the configuration is stored to be written."""
    name = str(required.configuration)
    known = config.stash[_BASELINE].find_configuration(name)
    if settings.update:
        made = record_baseline(run.receipt, known, configuration=name)
        if made.inconclusive:
            why, *more = (clean(reason) for reason in made.inconclusive)
            return [Problem(f"configuration {clean(name)!r} is not written: {why}", tuple(more))], 0
        text = format_lock(Baseline((made.baseline,)))
        if hasattr(config, "workeroutput"):
            output: dict[str, dict[str, str]] = getattr(config, "workeroutput")  # noqa: B009
            output.setdefault("compilediag_lanes", {})[name] = text
        else:
            store_configurations(config, {name: text})
        return [], 0
    judgement = judge(
        run.receipt,
        baseline=known,
        baseline_name=settings.baseline.name,
        strict=settings.strict,
        own_code_only=required.own_code_only,
        configuration=name,
    )
    return _list_problems(judgement, run, absent=known is None), len(judgement.improvements)


def judge_limits(run: WatchResult, settings: SessionSettings) -> list[Problem]:
    """Judge a test by the limits of `compilediag_fail_on`."""
    return _list_problems(judge(run.receipt, limits=settings.limits), run, absent=False)


def _list_problems(judgement: Judgement, run: WatchResult, *, absent: bool) -> list[Problem]:
    if judgement.passed:
        return []
    about, against = "", f" by compilediag_fail_on ({', '.join(judgement.limits)})"
    if judgement.baseline is not None:
        about = f"configuration {clean(judgement.configuration)!r}: "
        against = f" against {clean(judgement.baseline)}"
    issues = judgement.failures or judgement.improvements
    part = JudgedPart(run)
    again = (*part.recompiles, *part.failed_recompiles)
    details: list[str] = []
    for issue in issues:
        # Each in full; a cause with everything that is behind it.
        key = (issue.rule, issue.variable)
        caused = part.list_causes(again, key) if issue.kind == "cause" else []
        if caused:
            was = "" if issue.before is None else f" (the baseline has {issue.before})"
            details += [f"{caused[0]}{was}", *caused[1:]]
            continue
        details.append(clean(issue.message))
        if issue.file is not None:
            line = f":{issue.line}" if issue.line else ""
            function = f" in {clean(issue.function)}" if issue.function else ""
            cost = f" · {format_seconds(issue.cost_s)}" if issue.cost_s is not None else ""
            details.append(f"  {clean(issue.file)}{line}{function}{cost}")
        details += [f"  guard: {clean(issue.guard)}"] if issue.guard else []
        details += [f"  fix: {clean(issue.fix)}"] if issue.fix else []
    if not judgement.judged:
        hint = [f"  {UPDATE} writes it"] if absent else []
        rest = details[1:] if len(issues) == 1 else details
        return [Problem.make_blind(f"{about}{clean(issues[0].message)}", [*rest, *hint])]
    word = "reason to fail" if len(issues) == 1 else "reasons to fail"
    if not judgement.failures:
        word = "improvement" if len(issues) == 1 else "improvements"
        against += f", not written yet (compilediag_strict_improvement): {UPDATE}"
    return [Problem(f"{about}{len(issues)} {word}{against}", tuple(details))]


# --- writing ---------------------------------------------------------------------------------


def store_configurations(config: pytest.Config, configs: Mapping[str, str]) -> None:
    """Store the configurations that were recorded, here or by a worker."""
    config.stash.setdefault(_CHANGED, {}).update(configs)


def write_baseline(session: pytest.Session) -> None:
    """Put the recorded configurations into the baseline; those of tests that did not run stay. A
    file that cannot be read or written is left as it is, and the session fails."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    path, texts = read_settings(config).baseline, config.stash.setdefault(_CHANGED, {})
    if not texts:
        config.stash[_MESSAGES] = [f"{path.name}: no configuration was recorded"]
        return
    try:
        known = read_lock(path) if path.exists() else Baseline()
        configs = [config for text in texts.values() for config in parse_lock(text).configurations]
        different = write_lock(path, known.replace_configurations(configs))
    except CompilediagError as error:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        config.stash[_MESSAGES] = [f"nothing was written: {error}"]
        return
    how = "written to" if different else "already in"
    messages = [f"{pluralize(len(configs), 'configuration')} {how} {path.name}"]
    silent = sum(not allowed.reason for config in configs for allowed in config.allowed)
    if silent:
        added = f'{pluralize(silent, "item")} allowed without a reason: add "reason" in the file'
        messages.append(added)
    config.stash[_MESSAGES] = messages


def get_update_messages(config: pytest.Config) -> list[str]:
    """Get the result of the update, for the end of the session."""
    return config.stash.setdefault(_MESSAGES, [])
