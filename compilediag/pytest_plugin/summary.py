"""The section of the terminal summary: a line for each watched test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compilediag.pytest_plugin.lanes import UPDATE, update_messages
from compilediag.pytest_plugin.marks import COUNTED, COUNTS
from compilediag.pytest_plugin.problems import counted
from compilediag.pytest_plugin.settings import report_folder
from compilediag.views.format import count
from compilediag.views.text import clean

_ALWAYS = ("frames", "compiles", "recompiles", "graph_breaks")
"""Counts that are shown when they are zero too."""


def write(terminal: Any, reports: Sequence[Any]) -> None:
    """Writes the section. A test that was run again counts as it was the last time."""
    watched = {report.nodeid: dict(report.user_properties) for report in reports}
    compiled = {nodeid: found for nodeid, found in watched.items() if _compiled(found)}
    terminal.section("compilediag")
    for nodeid, found in compiled.items():
        terminal.line(line(nodeid, found))
    if len(watched) > len(compiled):
        terminal.line(f"{count(len(watched) - len(compiled), 'watched test')} compiled nothing")
    better = sum(1 for found in watched.values() if found.get("compilediag.improvements"))
    if better:
        word = "lane is" if better == 1 else "lanes are"
        terminal.line(f"{better} {word} better than the baseline: {UPDATE} keeps that")
    for text in update_messages(terminal.config):
        terminal.line(clean(text, limit=1000))
    folder = report_folder(terminal.config)
    if folder is not None and watched:
        terminal.line(clean(_page(list(watched), folder), limit=1000))


def _page(nodeids: Sequence[str], folder: Path) -> str:
    """Writes the page of all tests; the sentence about it."""
    from compilediag.errors import CompilediagError
    from compilediag.pytest_plugin.receipt_files import write_page_of

    try:
        return f"wrote {write_page_of(nodeids, folder)}: the receipts of all tests on one page"
    except CompilediagError as error:
        return f"no page of the receipts: {error}"


def _compiled(properties: Mapping[str, object]) -> bool:
    failed = properties.get("compilediag.judged") == "failed"
    return failed or bool(properties.get("compilediag.frames"))


def line(nodeid: str, properties: Mapping[str, object]) -> str:
    """The counts of one test, in the order of its budget, behind its name."""
    counts: list[str] = []
    for name in sorted(COUNTS, key=lambda name: (name not in _ALWAYS, COUNTS.index(name))):
        number = properties.get(f"compilediag.{name}")
        if isinstance(number, int) and (number or name in _ALWAYS):
            counts.append(counted(name, number))
    verdict = " · blind" if properties.get(COUNTED) == "blind" else ""
    return f"{clean(nodeid, limit=200)}: {' · '.join(counts)}{verdict}"
