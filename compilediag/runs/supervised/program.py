"""A program that is run several times: what its runs share, and the caches of each."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compilediag.errors import UsageError
from compilediag.runs.run_directory import make_run_dir
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.run import run
from compilediag.runs.supervised.supervised_run import CommandLine, Outcome
from compilediag.runs.supervised.target import parse_target

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

READ_ONCE = "a program on stdin can be read only once: put it into a file"


@contextlib.contextmanager
def caches(*, keep: bool) -> Generator[dict[str, str], None, None]:
    """Variables that give one run new, empty compile caches, which are gone with it."""
    if keep:
        yield {}
        return
    with tempfile.TemporaryDirectory(
        prefix="compilediag-caches-", ignore_cleanup_errors=True
    ) as folder:
        yield {name: os.path.join(folder, name.partition("_")[0]) for name in CACHE_VARIABLES}


@dataclass(frozen=True, slots=True)
class Program(CommandLine):
    """What all its runs share."""

    folder: str
    """The directory that those of the runs are in."""

    def run(
        self,
        output: str,
        variables: Mapping[str, str] | None = None,
        *,
        words: Sequence[str] | None = None,
        keep_caches: bool = False,
        **changes: Any,
    ) -> Outcome:
        """One run, with empty caches of its own unless `keep_caches`.

        Args:
            output: its directory.
            variables: of its environment, beside those of all runs.
            words: TARGET and its arguments, where they are not those of all runs.
            keep_caches: the caches of the environment.
            changes: its options, where they are not those of all runs.

        Raises:
            UsageError: it cannot be started, or its directory cannot be made.
        """
        options = replace(self.options, output=output, **changes)
        with caches(keep=keep_caches) as empty:
            environ = {**self.variables, **empty, **(variables or {})}
            return run(words or self.words, options, environ)


def program_in_own_folder(
    words: Sequence[str],
    options: RunOptions,
    environ: Mapping[str, str] | None,
    *,
    on_stdin: str = READ_ONCE,
) -> Program:
    """The program with a new directory for all its runs, and a name of its lane.

    Args:
        words: TARGET and everything after it.
        options: `output` is the directory of all runs.
        environ: the environment of the target; this process's by default.
        on_stdin: what the user reads of a program that can be read only once.

    Raises:
        UsageError: it cannot be started, or is read from stdin.
        OutputUnwritable: there is no room for the runs.
    """
    target = parse_target(words)
    if target.kind == "stdin":
        raise UsageError(on_stdin)
    name = options.name or target.name
    folder = make_run_dir(options.output, name, now=time.time(), pid=os.getpid())
    variables = dict(os.environ if environ is None else environ)
    return Program(tuple(words), replace(options, name=name), variables, folder)
