"""The user's repository and source files around a run: the commit and digests of the code that ran,
and the same files later. Calls of git are read-only and have a time limit."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from compilediag.compare.gate.inconclusive import CHANGED, NO_FILE, WorkingTree, is_code
from compilediag.errors import UsageError
from compilediag.readers.storage import DIGEST_LIMIT_BYTES, compute_sha256
from compilediag.receipt.locate import RUNS_FOLDER
from compilediag.receipt.run_metadata import parse_provenance
from compilediag.receipt.schema.identity import Provenance

if TYPE_CHECKING:
    from compilediag.timeline.timeline import Timeline


def start_provenance_read(folder: str, digests: dict[str, str]) -> Callable[[], Provenance]:
    """Start git in a thread while the target runs: a large repository must not delay its start.

    Returns:
        A function that waits for git at most `TIMEOUT_S` seconds and gives what was read: only the
        digests when git took longer.
    """
    results: list[Provenance] = []

    def read() -> None:
        results.append(read_provenance(folder, digests, os.environ))

    thread = threading.Thread(target=read, name="compilediag-git", daemon=True)
    thread.start()

    def wait_for_result() -> Provenance:
        thread.join(TIMEOUT_S)
        return results[0] if results else Provenance(source_sha256=digests)

    return wait_for_result


MAX_SOURCES = 2_000
"""Files with a digest in one receipt."""
_CHANGED_FILES = ("diff", "--name-only", "-z", "--no-renames", "--relative")
"""With ".": at and below a folder. Files elsewhere in a large repository are another program's."""

LOOK_UP_S = 30.0
"""Longest comparison of a working tree with a commit."""


def add_source_digests(
    provenance: Provenance, timeline: Timeline, folder: str, started_unix: float
) -> Provenance:
    """Add the digests of its source files to the provenance of a run that has ended in `folder`.

    The digests that it has already were made before the run and stay.
    """
    root = find_repository_root(folder) if provenance.source == "git" else None
    sources = _list_source_files(timeline)
    files, changed = _select_program_files(sources, root or folder), list[str]()
    if root is not None:
        # git ends with 1 where it ignores none of them; no output counts as that.
        listed = "\0".join(files)
        output = run_git(root, "check-ignore", "-z", "--stdin", stdin=listed, passing=(0, 1))
        ignored = set(split_paths(output or ""))
        files = [file for file in files if file not in ignored]
        # The tracked files at and below the folder; of the whole repository where it is not in it.
        here = folder if find_repository_root(folder) == root else root
        output = run_git(here, *_CHANGED_FILES, "HEAD", "--", ".")
        changed = [os.path.join(here, name) for name in split_paths(output or "")]
    # The digests that it has are of the script.
    scripts = (os.path.join(folder, name) for name in provenance.source_sha256)
    files += _list_imported_elsewhere(timeline, scripts, root or folder)
    digests = {
        _make_relative(path, folder): compute_digest(
            path, started_unix if path.endswith(".py") else None
        )
        for path in files[:MAX_SOURCES]
    }
    # Every process with torch has recorded what it imported.
    ended = [process.ended for process in timeline.processes if process.torch is not None]
    all_recorded = all(end is not None and end.sources is not None for end in ended)
    complete = bool(ended) and all_recorded and len(files) <= MAX_SOURCES
    for path in changed:
        unused = complete and path.endswith(".py")
        if is_code(path) and not unused and len(digests) < 2 * MAX_SOURCES:
            digests.setdefault(_make_relative(path, folder), compute_digest(path))
    known = {name: digest for name, digest in digests.items() if digest is not None}
    return replace(
        provenance,
        source_sha256={**known, **provenance.source_sha256},
        imports_complete=complete,
        folder=_make_relative(folder, root) if root is not None else None,
    )


def _list_source_files(timeline: Timeline) -> list[str]:
    """List the real paths of what the processes imported and compiled, and of the files among their
    arguments: a file with settings is code too."""
    files = {frame.where.file for frame in timeline.frames}
    for process in timeline.processes:
        if (started := process.started) is not None:
            words = (part for word in started.argv for part in (word, word.rpartition("=")[2]))
            files.update(os.path.join(started.cwd, word) for word in words if word)
    files.update(iterate_imported(timeline))
    return sorted({os.path.realpath(file) for file in files if file and os.path.isfile(file)})


def iterate_imported(timeline: Timeline) -> Iterator[str]:
    """Iterate over the program's own files that its processes imported."""
    for process in timeline.processes:
        started, ended = process.started, process.ended
        if ended is not None and ended.sources is not None:
            here = started.cwd if started is not None else ""
            yield from (os.path.join(here, file) for file in ended.sources)


def _list_imported_elsewhere(timeline: Timeline, scripts: Iterable[str], folder: str) -> list[str]:
    """List the real paths of what was imported from outside of a folder, where the scripts lie
    there too: of a program that was started from elsewhere."""
    start = os.path.join(os.path.realpath(folder), "")
    if all(os.path.realpath(script).startswith(start) for script in scripts):
        return []
    paths = {os.path.realpath(file) for file in iterate_imported(timeline)}
    return sorted(path for path in paths if not path.startswith(start) and os.path.isfile(path))


def _select_program_files(files: Iterable[str], folder: str) -> list[str]:
    """Select the files below a folder that are neither installed packages nor ours."""
    start = os.path.join(os.path.realpath(folder), "")
    apart = {"site-packages", "dist-packages", RUNS_FOLDER, ".git"}
    return [
        file
        for file in files
        if file.startswith(start) and apart.isdisjoint(Path(file[len(start) :]).parts)
    ]


def _make_relative(path: str, folder: str | None) -> str:
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(folder or "."))
    return Path(relative).as_posix()


def compute_digest(path: str, newest_unix: float | None = None) -> str | None:
    """Compute the digest of a file; `CHANGED` where it changed after `newest_unix`, `NO_FILE` where
    it is gone, None where it cannot be read or is too large."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        if newest_unix is not None and status.st_mtime > newest_unix:
            return CHANGED
        if status.st_size > DIGEST_LIMIT_BYTES:
            return None
        with open(path, "rb") as file:
            return compute_sha256(file)
    except FileNotFoundError:
        return NO_FILE
    except OSError:
        return None


def read_working_tree(
    ran: Provenance, folder: str, variables: Mapping[str, str], baseline: str | None = None
) -> WorkingTree:
    """Read the code at `folder`, as far as it concerns a receipt of the code that `ran`."""
    root = find_repository_root(folder)
    base = folder
    if root is not None and ran.folder is not None:
        base = os.path.normpath(os.path.join(root, ran.folder))
    digests = {path: compute_digest(os.path.join(base, path)) for path in ran.source_sha256}
    changed: list[str] | None = None
    if root is not None and ran.git_commit is not None and is_commit(ran.git_commit):
        here = base if os.path.isdir(base) else root
        output = run_git(here, *_CHANGED_FILES, ran.git_commit, "--", ".", timeout_s=LOOK_UP_S)
        if output is not None:
            changed = split_paths(output)
    lock = None if baseline is None else _make_relative(baseline, base)
    # The commit that is here, from the source that named the receipt's.
    named, here = parse_provenance(variables).git_commit, None
    if root is not None and ran.git_commit is not None:
        head = run_git(root, "rev-parse", "HEAD")
        here = head.strip() if head is not None else None
    commit = (named or here) if ran.source == "environment" else (here or named)
    return WorkingTree(commit, digests, changed, lock)


def read_file_at(ref: str, path: str) -> str | None:
    """Read a file of the repository as a branch, tag or commit has it; None where it has none.

    Raises:
        UsageError: there is no repository, or it does not have the commit.
    """
    root = find_repository_root(os.path.dirname(os.path.abspath(path)))
    if root is None:
        raise UsageError(f"{path} is in no git repository: {ref} cannot be looked up")
    sha = resolve_commit(root, ref)
    name = _make_relative(path, root)
    if not run_git(root, "ls-tree", "--name-only", sha, "--", name):
        return None
    return run_git(root, "show", f"{sha}:{name}")


def resolve_commit(root: str, ref: str) -> str:
    """Resolve a branch, tag or commit of the repository at `root` to the id of its commit.

    Raises:
        UsageError: the repository does not have it.
    """
    named = not ref.startswith("-")  # or it would be an option of git
    sha = run_git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}") if named else None
    if sha is None or not is_commit(sha.strip()):
        raise UsageError(
            f"git has no {ref!r} here (a shallow clone has only its own commit): fetch it first, "
            "such as `git fetch --depth=1 origin main`, and name it FETCH_HEAD or origin/main"
        )
    return sha.strip()


def read_provenance(folder: str, digests: Mapping[str, str], env: Mapping[str, str]) -> Provenance:
    """Read the commit at `folder`; where there is no repository, what the environment contains."""
    head = _read_git_line(folder, "log", "-1", "--format=%H%n%s")
    if head is None:
        return replace(parse_provenance(env), source_sha256=dict(digests))
    commit, _, message = head.partition("\n")
    status = _read_git_line(folder, "status", "--porcelain", "--untracked-files=no")
    return Provenance(
        git_commit=commit,
        git_branch=_read_git_line(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        git_dirty=None if status is None else bool(status),
        git_message_short=message[:200],
        source="git",
        source_sha256=dict(digests),
    )


def _read_git_line(folder: str, *arguments: str) -> str | None:
    output = run_git(folder, *arguments)
    return None if output is None else output.encode("utf-8", "replace").decode("utf-8").strip()


def digest_script(path: str | None) -> dict[str, str]:
    """Map the script's path from here to the SHA-256 of its bytes; empty when there is none."""
    digest = compute_digest(path) if path is not None and os.path.isfile(path) else None
    return {} if path is None or digest is None else {os.path.relpath(path): digest}


TIMEOUT_S = 20.0
"""Longest call: one that is cut short on a busy machine leaves a receipt without its commit."""


def run_git(
    folder: str,
    *arguments: str,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
    passing: Collection[int] = (0,),
) -> str | None:
    """Run git once in a folder and return its output; None where git is missing or slow, or ends
    with another exit code than those `passing`."""
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


def find_repository_root(folder: str) -> str | None:
    """Find the root of the repository that holds a folder, without a call of git."""
    here = Path(os.path.abspath(folder))
    return next((str(path) for path in (here, *here.parents) if (path / ".git").exists()), None)


def is_commit(text: str | None) -> bool:
    """A text in a file is the id of a commit: anything else could be an option of git."""
    return text is not None and re.fullmatch("[0-9a-f]{7,64}", text) is not None


def split_paths(output: str) -> list[str]:
    """Split the output of `git ... -z` into its paths."""
    return [name for name in output.split("\0") if name]
