"""TARGET and its arguments as a command for the operating system, and its name; and those of the
newest run, to be made once more: what has changed since, and where `run --trace-writes` looks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from compilediag.errors import ReceiptNotFound, UsageError
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.checkout import compute_digest
from compilediag_harness.base.process_options import ProcessOptions, WriteTracingPlan
from compilediag_harness.redaction.recognise import is_redacted

Kind = Literal["script", "module", "code", "stdin", "program"]

PYTHON_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")
NAME_LIMIT = 40
SOURCE_LIMIT_BYTES = 1 << 20

LAUNCHERS = frozenset(
    (
        "accelerate", "colossalai", "composer", "coverage", "deepspeed", "horovodrun", "torchrun",
        "uv",
    )
)  # fmt: skip
"""Programs whose arguments hold a Python script, or `-m` and a module."""
LAUNCHER_MODULES = frozenset(
    ("accelerate.commands.launch", "torch.distributed.launch", "torch.distributed.run")
)
WRAPPERS = frozenset(
    (
        "chrt", "conda", "dotenv", "env", "hatch", "ionice", "mamba", "micromamba", "mpiexec",
        "mpirun", "ncu", "nice", "nohup", "nsys", "numactl", "pdm", "pipenv", "poetry", "py-spy",
        "rye", "setsid", "srun", "stdbuf", "sudo", "taskset", "time", "timeout", "xvfb-run",
    )
)  # fmt: skip
"""Programs whose arguments hold another command."""
SHELLS = frozenset(("bash", "dash", "sh", "zsh"))

_PYTHON_NAME = re.compile(r"(python|pypy)[\d.]*(t|d)?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_OPTIONS_WITH_VALUE = "WXQ"


@dataclass(frozen=True, slots=True)
class Target:
    """A command that can be started, and its name."""

    kind: Kind
    command: tuple[str, ...]
    name: str
    """Short name for folders and configurations, of harmless characters only."""
    script: str | None = None
    """The file with the user's code, if it is one."""
    defeats: str | None = None
    """The interpreter option in argv that keeps us out: "-E", "-I" or "-S"."""


def parse_target(words: Sequence[str]) -> Target:
    """Parse `words`, which are TARGET and everything after it.

    Raises:
        UsageError: nothing can be started; the message gives the reason.
    """
    first, rest = words[0], tuple(words[1:])
    if first in ("-m", "-c"):
        if not rest:
            missing = "a module name" if first == "-m" else "code"
            raise UsageError(f"{first} needs {missing} after it")
        name = _parse_python_words(words).name
        kind = "module" if first == "-m" else "code"
        return Target(kind, (sys.executable, *words), _make_safe_name(name or rest[0]))
    if first == "-":
        return Target("stdin", (sys.executable, "-", *rest), "stdin")
    if first.startswith("-"):
        raise UsageError(f"there is no option {first}; options of the target come after it")
    if os.path.exists(first):
        if os.path.isdir(first) and not os.path.exists(os.path.join(first, "__main__.py")):
            raise UsageError(f"{first} is a folder without __main__.py: name the file to run")
        if _is_python(first):
            command = (sys.executable, first, *rest)
            return Target("script", command, _make_safe_name(_get_stem(first)), script=first)
        if not os.access(first, os.X_OK):
            raise UsageError(f"{first} is neither a Python program nor an executable file")
        # Without a slash the operating system would look the name up on PATH.
        path = first if os.sep in first else os.path.join(os.curdir, first)
        return _make_program_target(path, rest)
    if first.endswith(PYTHON_SUFFIXES) or os.sep in first or shutil.which(first) is None:
        what = "file" if first.endswith(PYTHON_SUFFIXES) or os.sep in first else "file or program"
        raise UsageError(f"there is no {what} named {first!r}, seen from {os.getcwd()}")
    return _make_program_target(first, rest)


def _is_python(path: str) -> bool:
    if os.path.isdir(path) or path.endswith(PYTHON_SUFFIXES):
        return True
    if os.access(path, os.X_OK) or not os.path.isfile(path):
        return False
    if zipfile.is_zipfile(path) or os.path.splitext(path)[1]:
        return zipfile.is_zipfile(path)
    try:  # without a suffix: a script named `train`, say
        with open(path, "rb") as file:
            compile(file.read(SOURCE_LIMIT_BYTES), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _make_program_target(program: str, rest: tuple[str, ...]) -> Target:
    command = (program, *rest)
    launched = _find_launched(command)
    name = _make_safe_name(launched.name or os.path.basename(program))
    return Target("program", command, name, defeats=launched.defeats)


def _get_stem(path: str) -> str:
    return os.path.splitext(os.path.basename(os.path.normpath(path)))[0]


def _make_safe_name(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.")[:NAME_LIMIT] or "target"


# --- the script behind a launcher ----------------------------------------------------------------


class _Launched(NamedTuple):
    """The program that a command line starts in the end."""

    name: str | None = None
    """Of the script or module; None where the command line does not show it."""
    defeats: str | None = None
    """As in `Target`."""


def _find_launched(command: Sequence[str]) -> _Launched:
    """Find the Python program that a command starts, possibly by way of launchers and shells."""
    program, rest = os.path.basename(command[0]), command[1:]
    if _PYTHON_NAME.fullmatch(program):
        return _parse_python_words(rest)
    if program in SHELLS:
        return _parse_shell_words(rest)
    if program in LAUNCHERS:
        return _search_words(rest, modules=True)
    return _search_words(rest, modules=False) if program in WRAPPERS else _Launched()


def _parse_python_words(arguments: Sequence[str]) -> _Launched:
    """Parse the words after a Python interpreter: options come before `-m`, `-c` or the script."""
    defeats, index = None, 0
    while index < len(arguments):
        word, index = arguments[index], index + 1
        if word == "-":
            return _Launched("stdin", defeats)
        if not word.startswith("-"):
            return _Launched(_get_stem(word), defeats)
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in "EIS":
                defeats = defeats or f"-{letter}"
            elif letter == "c":
                return _Launched("code", defeats)
            elif letter == "m":
                module = word[position:] or "".join(arguments[index : index + 1])
                if module in LAUNCHER_MODULES:
                    script = _search_words(arguments[index:], modules=True).name
                    return _Launched(script or module, defeats)
                return _Launched(module or None, defeats)
            elif letter in _OPTIONS_WITH_VALUE:
                index += position > len(word) - 1  # the value is the next word
                break
    return _Launched(None, defeats)


def _parse_shell_words(arguments: Sequence[str]) -> _Launched:
    """Parse the words of `sh SCRIPT` or `sh -c COMMANDS`: the first command that starts Python."""
    for index, word in enumerate(arguments):
        if not word.startswith("-"):
            return _Launched(os.path.basename(word))
        if not word.startswith("--") and "c" in word:
            lexer = shlex.shlex("".join(arguments[index + 1 : index + 2]), punctuation_chars=True)
            lexer.whitespace_split = True
            try:
                return _search_words(list(lexer), modules=False)
            except ValueError:  # an unbalanced quotation mark
                return _Launched()
    return _Launched()


def _search_words(words: Sequence[str], *, modules: bool) -> _Launched:
    """Search words for the first that is a Python script or a program that starts one."""
    for index, word in enumerate(words):
        if modules and word in ("-m", "--module") and index + 1 < len(words):
            return _Launched(words[index + 1])
        if word.endswith(PYTHON_SUFFIXES) or (os.path.isfile(word) and _is_python(word)):
            return _Launched(_get_stem(word))
        program = os.path.basename(word)
        if _PYTHON_NAME.fullmatch(program) or program in LAUNCHERS | WRAPPERS | SHELLS:
            return _find_launched(words[index:])
    return _Launched()


# --- the newest run, once more -------------------------------------------------------------------

_MAX_CHARS = 64 << 10
"""Of the plan in the environment: with more, all that is guarded is traced."""


def find_repeatable_run(example: str) -> tuple[str, Receipt]:
    """Find the newest run of this folder, whose command line can be run again: its path and
    receipt. `example` is the command with a program, for messages.

    Raises:
        UsageError: there is none, or it cannot be repeated.
        ReceiptUnreadable: its receipt is damaged.
    """
    try:
        path = find_receipt()
    except ReceiptNotFound as error:
        raise UsageError(
            f"there is no run to repeat here: name the program, `{example}`"
        ) from error
    receipt = read_receipt(path)
    words, name_it = receipt.header.run.argv_redacted, f"name the program: `{example}`"
    if not words:
        raise UsageError(f"the last receipt has no command line to repeat: {name_it}")
    if any(map(is_redacted, words)):
        raise UsageError(
            "the command line of the last run cannot be repeated, since a secret in it was "
            f"replaced when it was recorded: {name_it}"
        )
    if words[0] == "-":
        raise UsageError(f"the last run read its program from stdin: {name_it}")
    return path, receipt


def list_changed_files(receipt: Receipt) -> list[str]:
    """List the files of the program that are not what they were in a run, or are gone."""
    digests = receipt.header.provenance.source_sha256
    return [name for name, digest in digests.items() if compute_digest(name) != digest]


@dataclass(frozen=True, slots=True)
class RepeatedRun:
    """A run that is made once more."""

    words: tuple[str, ...]
    """TARGET and its arguments."""
    plan: WriteTracingPlan
    sentence: str
    """For the user: what is run, and what is followed."""


def find_last_run() -> RepeatedRun:
    """Find the newest run of this folder, to be made once more with write tracing.

    Raises:
        UsageError: there is none, it cannot be repeated, or it recorded no recompile to trace.
        ReceiptUnreadable: its receipt is damaged.
    """
    path, receipt = find_repeatable_run("compilediag run --trace-writes train.py")
    words = receipt.header.run.argv_redacted
    plan = plan_write_tracing(receipt)
    if not plan.steps:
        raise UsageError(
            f"the last run, {os.path.dirname(path)}, recorded no recompile: no writes to trace"
        )
    sentence = f"once more, following lines: {shlex.join(words)}"
    changed = list_changed_files(receipt)
    if changed:
        plan = WriteTracingPlan()
        sentence += f" ({changed[0]} has changed since: every step is followed)"
    return RepeatedRun(words, plan, sentence)


def plan_write_tracing(receipt: Receipt) -> WriteTracingPlan:
    """Plan write tracing for the steps in which a run recompiled and the guards that were false."""
    again = [event for event in receipt.compile.events if event.kind == "recompile"]
    return WriteTracingPlan(
        frozenset(event.step for event in again if event.step is not None),
        frozenset(cause.source for event in again for cause in event.causes if cause.source),
    )


def limit_plan(plan: WriteTracingPlan) -> WriteTracingPlan:
    """Limit a plan to as much of it as an environment variable can hold."""
    if len(ProcessOptions(write_tracing=plan).encode()) > _MAX_CHARS:
        plan = WriteTracingPlan(plan.steps)
    if len(ProcessOptions(write_tracing=plan).encode()) > _MAX_CHARS:
        return WriteTracingPlan()
    return plan
