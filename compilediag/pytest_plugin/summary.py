"""The section of the terminal summary: a line for each watched test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compilediag.pytest_plugin import COUNTED
from compilediag.pytest_plugin.judge_test import number_of
from compilediag.pytest_plugin.lanes import UPDATE, written_lanes
from compilediag.pytest_plugin.marks import COUNTS
from compilediag.views.text import clean
from compilediag.views.words import count

_ALWAYS = ("frames", "compiles", "recompiles", "graph_breaks")
"""Counts that are told when they are zero too."""


def write(terminal: Any, reports: Sequence[Any]) -> None:
    """Writes the section. A test that was run again counts as it was the last time."""
    watched = {report.nodeid: dict(report.user_properties) for report in reports}
    compiled = {name: told for name, told in watched.items() if _compiled(told)}
    terminal.section("compilediag")
    for nodeid, told in compiled.items():
        terminal.line(line(nodeid, told))
    silent = len(watched) - len(compiled)
    if silent:
        terminal.line(f"{count(silent, 'watched test')} compiled nothing")
    better = sum(1 for told in watched.values() if told.get("compilediag.improvements"))
    if better:
        word = "lane is" if better == 1 else "lanes are"
        terminal.line(f"{better} {word} better than the baseline: {UPDATE} keeps that")
    for text in written_lanes(terminal.config):
        terminal.line(clean(text, limit=1000))


def _compiled(told: dict[str, object]) -> bool:
    return told.get("compilediag.judged") == "failed" or bool(told.get("compilediag.frames"))


def line(nodeid: str, told: dict[str, object]) -> str:
    """The counts of one test, in the order of its budget, behind its name."""
    counts: list[str] = []
    for name in sorted(COUNTS, key=lambda name: (name not in _ALWAYS, COUNTS.index(name))):
        number = told.get(f"compilediag.{name}")
        if isinstance(number, int) and (number or name in _ALWAYS):
            counts.append(number_of(name, number))
    verdict = " · blind" if told.get(COUNTED) == "blind" else ""
    return f"{clean(nodeid, limit=200)}: {' · '.join(counts)}{verdict}"
