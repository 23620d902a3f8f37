"""What the user wants to run: TARGET and its arguments as a command for the operating system."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.errors import UsageError

Kind = Literal["script", "module", "code", "stdin", "program"]

PYTHON_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")
NAME_LIMIT = 40
SOURCE_LIMIT_BYTES = 1 << 20

_PYTHON_NAME = re.compile(r"(python|pypy)[\d.]*(t|d)?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_WITH_VALUE = "cmWXQ"


@dataclass(frozen=True, slots=True)
class Target:
    """A command that can be started, and what it is called."""

    kind: Kind
    command: tuple[str, ...]
    name: str
    """Short name for folders and lanes, of harmless characters only."""
    script: str | None = None
    """The file with the user's code, if it is one."""
    defeats: str | None = None
    """The interpreter option that keeps us out ("-E", "-I", "-S"), where it stands in argv."""


def parse_target(words: Sequence[str]) -> Target:
    """The target of `words`, which are TARGET and everything after it.

    Raises:
        UsageError: nothing can be started; the message says what is wrong with it.
    """
    first, rest = words[0], tuple(words[1:])
    if first in ("-m", "-c"):
        return _interpreter_option(first, rest)
    if first == "-":
        return Target("stdin", (sys.executable, "-", *rest), "stdin")
    if first.startswith("-"):
        raise UsageError(f"there is no option {first}; options of the target come after it")
    if os.path.exists(first):
        return _path(first, rest)
    return _program_on_path(first, rest)


def _interpreter_option(option: str, rest: tuple[str, ...]) -> Target:
    if not rest:
        wanted = "a module name" if option == "-m" else "code"
        raise UsageError(f"{option} needs {wanted} after it")
    command = (sys.executable, option, *rest)
    if option == "-c":
        return Target("code", command, "code")
    return Target("module", command, _named(rest[0]))


def _path(path: str, rest: tuple[str, ...]) -> Target:
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "__main__.py")):
        raise UsageError(f"{path} is a folder without __main__.py: name the file to run")
    if _is_python(path):
        command = (sys.executable, path, *rest)
        stem = os.path.splitext(os.path.basename(os.path.normpath(path)))[0]
        return Target("script", command, _named(stem), script=path)
    if os.access(path, os.X_OK):
        # Without a slash the operating system would look the name up on PATH.
        program = path if os.sep in path else os.path.join(os.curdir, path)
        return _program(program, rest)
    raise UsageError(f"{path} is neither a Python program nor an executable file")


def _is_python(path: str) -> bool:
    if os.path.isdir(path) or path.endswith(PYTHON_SUFFIXES):
        return True
    if os.access(path, os.X_OK) or not os.path.isfile(path):
        return False
    return zipfile.is_zipfile(path) or (not os.path.splitext(path)[1] and _is_source(path))


def _is_source(path: str) -> bool:
    """Whether a file without suffix holds Python source; a script named `train`, say."""
    try:
        with open(path, "rb") as file:
            compile(file.read(SOURCE_LIMIT_BYTES), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _program_on_path(name: str, rest: tuple[str, ...]) -> Target:
    if name.endswith(PYTHON_SUFFIXES) or os.sep in name or shutil.which(name) is None:
        what = "file" if name.endswith(PYTHON_SUFFIXES) or os.sep in name else "file or program"
        raise UsageError(f"there is no {what} named {name!r}, seen from {os.getcwd()}")
    return _program(name, rest)


def _program(program: str, rest: tuple[str, ...]) -> Target:
    base = os.path.basename(program)
    defeats = _defeating_option(rest) if _PYTHON_NAME.fullmatch(base) else None
    return Target("program", (program, *rest), _named(base), defeats=defeats)


def _defeating_option(arguments: Sequence[str]) -> str | None:
    """The first option of a Python command line that ignores PYTHONPATH or sitecustomize."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if len(argument) < 2 or not argument.startswith("-") or argument.startswith("--"):
            return None
        for position, letter in enumerate(argument[1:], start=1):
            if letter in "EIS":
                return f"-{letter}"
            if letter in _WITH_VALUE:
                if letter in "cm":
                    return None
                skip = position == len(argument) - 1
                break
    return None


def _named(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.")[:NAME_LIMIT] or "target"
