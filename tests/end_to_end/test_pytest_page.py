"""docs/howto/pytest.md shows what happens: its files are written, its commands run, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from plugin_runs import ALONE

pytest_plugins = ["pytester"]
pytestmark = [
    pytest.mark.usefixtures("forked"),
    pytest.mark.skipif(
        not version("torch").startswith("2.13.") or pytest.version_tuple < (9, 0),
        reason="the page shows torch 2.13 and pytest 9",
    ),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "pytest.md"
BLOCK = re.compile(
    r"^```(?P<kind>python|console) ?(?P<file>\S*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
MEASURED = re.compile(r"\b\d+(?:\.\d+)?(?: min \d+)? ?(?:ms|s)\b(?: \(\d:\d\d:\d\d\))?")


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, file and body of each block that is a file or a session."""
    for found in BLOCK.finditer(text):
        yield found["kind"], found["file"], found["body"]


def settled(text: str) -> list[str]:
    """The lines without what a clock has measured."""
    return [MEASURED.sub("N s", line).rstrip() for line in text.strip().splitlines()]


def test_everything_it_shows(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red, green, the fixture, the lane and every idiom, with the output line for line."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = 0
    for kind, file, body in blocks(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            (pytester.path / file).write_text(body, encoding="utf-8")
            continue
        command, _, output = body.partition("\n")
        program, *options = command.removeprefix("$ ").split()
        assert program == "pytest"
        done = pytester.runpytest_subprocess(*options, *ALONE)
        assert settled(done.stdout.str()) == settled(output), command
        shown += 1
    assert shown == 5


def test_a_changed_line_would_be_noticed() -> None:
    """Times do not count, everything else does."""
    line = "1 recompile · 30 ms · compile 0/1\n1 failed in 3.81s"
    assert settled(line) == settled(line.replace("30 ms", "0.31 s").replace("3.81s", "64.20s"))
    assert settled(line) != settled(line.replace("1 recompile", "2 recompile"))
    assert [
        kind for kind, _, _ in blocks("```python a.py\nx = 1\n```\n```console\n$ x\n```\n")
    ] == [
        "python",
        "console",
    ]
