"""The report of a session: a receipt of each test as a file whose name is safe whatever the test is
called, a page of them all, and a line for each test in the terminal summary."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilediag.errors import CompilediagError, OutputUnwritable
from compilediag.pytest_plugin.configurations import UPDATE, get_update_messages
from compilediag.pytest_plugin.judge import describe_count
from compilediag.pytest_plugin.marks import COUNTED, COUNTS
from compilediag.pytest_plugin.settings import read_settings
from compilediag.views.format import pluralize
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.runs.watch import WatchResult


_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_CHARS = 100


def make_file_name(nodeid: str) -> str:
    """Make the name of a test's receipt: readable, and different for each test. No part of it leads
    out of the folder, hides the file, or is too long."""
    readable = _UNSAFE.sub("-", nodeid).strip("-.")[-_MAX_CHARS:].lstrip("-.") or "test"
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable}-{digest}.json"


def write_test_receipt(run: WatchResult, nodeid: str, folder: Path) -> Path:
    """Write the receipt of a test into the folder, which is made where it is missing.

    Raises:
        OutputUnwritable: the folder or the file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputUnwritable(
            f"--compilediag-report: cannot write into {folder}: {error}"
        ) from error
    return run.save(folder / make_file_name(nodeid))


def write_session_page(failed: Mapping[str, bool], folder: Path) -> Path:
    """Write a page of the receipts that tests of this session have left in the folder, and the page
    of each that compiled or failed. `failed`: by the id of each watched test.

    Raises:
        CompilediagError: a receipt cannot be read, or a page cannot be written.
    """
    from compilediag.receipt.file import read_receipt
    from compilediag.runs.offline.html_file import load_assets, write_page, write_report
    from compilediag.views.html.page import render_overview
    from compilediag.views.html.report import SessionTest, build_session_page
    from compilediag.views.style import RenderOptions

    root, tests = str(Path.cwd()), list[SessionTest]()
    for nodeid, is_failed in failed.items():
        file = folder / make_file_name(nodeid)
        if not file.is_file():
            continue
        receipt, page, path = read_receipt(file), file.with_suffix(".html"), str(file)
        own = page.name if receipt.compile.frames or is_failed else ""
        if own:
            write_report(receipt, path, str(page), root=root, suffix=f" {shlex.quote(path)}")
        tests.append(SessionTest(nodeid, receipt, is_failed, own))
    page = folder / "index.html"
    overview = build_session_page(tests, RenderOptions(root=root))
    write_page(str(page), render_overview(overview, load_assets()))
    return page


_ALWAYS = ("frames", "compiles", "recompiles", "graph_breaks")
"""Counts that are shown when they are zero too."""


def write_summary(terminal: Any, reports: Sequence[Any]) -> None:
    """Write the section. A test that was run again counts as it was the last time."""
    watched = {report.nodeid: dict(report.user_properties) for report in reports}
    compiled = {
        nodeid: properties
        for nodeid, properties in watched.items()
        if properties.get("compilediag.judged") == "failed" or properties.get("compilediag.frames")
    }
    terminal.section("compilediag")
    rows = compiled if terminal.verbosity > 0 else dict(filter(_is_worth_a_line, compiled.items()))
    for nodeid, properties in rows.items():
        terminal.line(format_line(nodeid, properties))
        for sentence in properties.get("compilediag.serves", "").splitlines():
            terminal.line(f"  serves: {clean(sentence, limit=1000)}")
    if len(compiled) > len(rows):
        more = pluralize(len(compiled) - len(rows), "watched test")
        terminal.line(f"{more} compiled and did not recompile, break or change (-v lists them)")
    if len(watched) > len(compiled):
        terminal.line(f"{pluralize(len(watched) - len(compiled), 'watched test')} compiled nothing")
    better = sum(1 for properties in watched.values() if properties.get("compilediag.improvements"))
    if better:
        word = "configuration is" if better == 1 else "configurations are"
        terminal.line(f"{better} {word} better than the baseline: {UPDATE} keeps that")
    for text in get_update_messages(terminal.config):
        terminal.line(clean(text, limit=1000))
    folder = read_settings(terminal.config).report
    if folder is not None and watched:
        red = {report.nodeid for report in reports if report.failed}
        try:
            page = write_session_page({nodeid: nodeid in red for nodeid in watched}, folder)
            text = f"wrote {page}: all tests on one page"
        except CompilediagError as error:
            text = f"no page of the receipts: {error}"
        terminal.line(clean(text, limit=1000))


def _is_worth_a_line(watched: tuple[str, Mapping[str, object]]) -> bool:
    """True for a test that failed, is blind, recompiled or broke, or is better than before."""
    _, properties = watched
    noted = ("recompiles", "graph_breaks", "eager_fallbacks", "improvements")
    failed = properties.get("compilediag.judged") == "failed"
    blind = properties.get(COUNTED) == "blind"
    return failed or blind or any(properties.get(f"compilediag.{name}") for name in noted)


def format_line(nodeid: str, properties: Mapping[str, object]) -> str:
    """Format the counts of one test, those that are always shown first, behind its name."""
    counts: list[str] = []
    for name in sorted(COUNTS, key=lambda name: name not in _ALWAYS):
        number = properties.get(f"compilediag.{name}")
        if isinstance(number, int) and (number or name in _ALWAYS):
            counts.append(describe_count(name, number))
    verdict = " · blind" if properties.get(COUNTED) == "blind" else ""
    return f"{clean(nodeid, limit=200)}: {' · '.join(counts)}{verdict}"
