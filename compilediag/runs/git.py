"""Calls of git: read-only, with a time limit, and no answer where there is none."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

TIMEOUT_S = 20.0
"""Longest call: one that is cut short on a busy machine leaves a receipt without its commit."""


def git(
    folder: str,
    *arguments: str,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
    passing: Collection[int] = (0,),
) -> str | None:
    """The output of one call in a folder; None where git is missing or slow, or ends with another
    code than those `passing`."""
    import subprocess  # a receipt without a repository costs none of it

    # Without it `git status` may take the index lock of the user's repository.
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder or None,
            env=quiet,
            input=os.fsencode(stdin),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return os.fsdecode(done.stdout) if done.returncode in passing else None


def root_of(folder: str) -> str | None:
    """The root of the repository that holds a folder, without a call of git."""
    here = Path(os.path.abspath(folder))
    return next((str(each) for each in (here, *here.parents) if (each / ".git").exists()), None)


def is_commit(text: str | None) -> bool:
    """Whether a text that a file contains is the id of a commit: anything else could be an option
    of git."""
    return text is not None and re.fullmatch("[0-9a-f]{7,64}", text) is not None


def names(output: str) -> list[str]:
    """The paths of an output of `-z`."""
    return [name for name in output.split("\0") if name]


def without_ignored(root: str, files: Iterable[str]) -> list[str]:
    """The files below the root of a repository that git does not ignore; all where it gives no
    answer."""
    files = list(files)
    # 1 is git's answer where it ignores none of them.
    found = git(root, "check-ignore", "-z", "--stdin", stdin="\0".join(files), passing=(0, 1))
    ignored = set(names(found or ""))
    return [file for file in files if file not in ignored]
