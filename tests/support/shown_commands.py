"""Runs what a page of the documentation shows: its files, its commands, in its order.

A fenced block `python NAME` is a file. In a block `console` a line `$ COMMAND` is run with bash,
and the lines below it are what it prints; `...` stands for lines that are left out.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\S*) ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
FOLDER = "/home/you/nano"
ABORTED = "terminate called without an active exception"
"""Of torch itself, about once in some hundred runs of two ranks: a thread of gloo that lets go of a
tensor while the interpreter ends (https://github.com/pytorch/pytorch/pull/179291)."""
MEASURED = re.compile(
    r"\b\d[\d.,]* (?:ms|s|min)\b|\b\d+\.\d+s\b(?: \(\d:\d\d:\d\d\))?"
    r"|\\?<?\d+ % of wall time|[+-]?\d[\d.]*%"
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    name: str
    text: str


@dataclass(frozen=True)
class Shown:
    """A command and what the page says it prints."""

    command: str
    output: str


def blocks(page: str) -> Iterator[Block]:
    for language, name, text in BLOCK.findall(page):
        yield Block(language, name.strip(), text)


def commands(block: Block) -> list[Shown]:
    """The commands of a console block; text before the first one is an error of the page."""
    first, *rest = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert first == "", f"no command: {first!r}"
    split = (item.partition("\n") for item in rest)
    return [Shown(command, output) for command, _, output in split]


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints to stdout and stderr together, as in a folder of the page's reader.

    A command without compilediag that torch aborts is run again, in the folder as it was.
    """
    with tempfile.TemporaryDirectory() as before:
        shutil.copytree(folder, before, dirs_exist_ok=True, symlinks=True)
        printed = _printed(command, folder, environment)
        if ABORTED in printed and "compilediag" not in command:
            shutil.rmtree(folder)
            shutil.copytree(before, folder, symlinks=True)
            printed = _printed(command, folder, environment)
    return printed.replace(str(folder), FOLDER)


def _printed(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def agrees(shown: str, printed: str) -> bool:
    """Whether a program printed what the page shows. What is measured and where lines are wrapped
    differs between machines; nothing else may."""
    parts = [_plain(part) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    text = _plain(printed)
    if len(parts) == 1:
        return parts[0] == text
    if not (text.startswith(parts[0]) and text.endswith(parts[-1])):
        return False
    place = len(parts[0])
    for part in parts[1:]:
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def _plain(text: str) -> str:
    return " ".join(MEASURED.sub("T", text).split())


def environment() -> dict[str, str]:
    """A shell in which `compilediag` and `python` are those of the tests, and git knows a name."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "CI", "COMPILEDIAG", "GIT_"))
    }
    someone = {
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return {
        **kept,
        **someone,
        # The second has `torchrun`, where the first is that of a fork server.
        "PATH": f"{Path(sys.executable).parent}:{sys.prefix}/bin:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def programs(page: str) -> list[str]:
    """Every state of train.py that a page shows, in order."""
    return [
        item.text for item in blocks(page) if (item.language, item.name) == ("python", "train.py")
    ]
