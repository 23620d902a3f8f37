"""Runs pytest with the plugin on a test file, in a process of its own, as a user does."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ALONE = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")
"""Without plugins that write, or that no test here needs."""

HEAD = '''
import pytest
import torch

def fresh():
    """A compiled function that nobody has called, and that specialises on the size of its input."""
    def double(x):
        return x * 2
    return torch.compile(double, backend="eager", dynamic=False)

def sizes(*numbers, compiled=None):
    compiled = compiled or fresh()
    for number in numbers:
        compiled(torch.ones(number))
    return compiled
'''


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    """Runs a test file that begins with `HEAD`; `text` may be indented."""
    pytester.makepyfile(test_user=HEAD + dedent(text))
    return again(pytester, *options)


def again(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Runs what is there once more."""
    return pytester.runpytest_subprocess(*ALONE, "-W", "error", *options)


def together(folder: Path, **texts: str) -> pytest.RunResult:
    """Runs several test files in one session, in this order: `name` and its text make `name.py`, as
    in `run`. Names of tests must differ between the files."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(HEAD + dedent(text), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *ALONE, "-W", "error", "-rA"]
    done = subprocess.run(
        [*command, *(f"{name}.py" for name in texts)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return pytest.RunResult(
        done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0.0
    )


def outcomes(result: pytest.RunResult, file: str = "") -> dict[str, str]:
    """Each test's outcome by what follows the file's name, from the lines of `-rA`; of one file,
    or of all."""
    words = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
    found: dict[str, str] = {}
    for line in result.outlines:
        word, _, rest = line.partition(" ")
        if word in words and "::" in rest:
            of, _, name = rest.split(" - ")[0].strip().partition("::")
            if file in ("", of):
                found[name] = word
    return found


def failure_of(result: pytest.RunResult, name: str) -> str:
    """What is printed below the headline of a failed test, up to the next one."""
    lines: list[str] = []
    inside = False
    for line in result.outlines:
        title = line.strip("_ ") if line.startswith("_") and line.endswith("_") else None
        if title is not None or line.startswith("="):
            inside = title is not None and title.rpartition(".")[2] == name
        elif inside:
            lines.append(line)
    return "\n".join(lines)
