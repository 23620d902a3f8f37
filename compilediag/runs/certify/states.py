"""Two states of a program: the Python sources of each by path, and the environment and settings
that only the new one has. Nothing of the user's is written."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compilediag.certify.change import Change, compare_sources
from compilediag.compare.gate.inconclusive import CHANGED, NO_FILE, is_code
from compilediag.errors import UsageError
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.recorded import RecordedRun, find_recorded_run, read_kept_source
from compilediag.runs.certify.user_files import iterate_files
from compilediag.runs.checkout import find_repository_root, resolve_commit, run_git, split_paths
from compilediag.runs.supervised.target import parse_target
from compilediag_harness.wire import SourceChange, TrialPlan

NOTHING = (
    "nothing to compare with: no recorded run of this command is here, and no commit. Run "
    "`compilediag run --record {command}` before the edit, or name the old state with --base or "
    "--against"
)

Sources = Mapping[str, bytes]
"""Contents of all Python files of a state, by whole path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The two states that are compared."""

    base: str
    """The old state, in words."""
    new: str
    tree: Sources
    """The files as they lie there."""
    before: Sources
    after: Sources
    variables: Mapping[str, str]
    """Of the environment, in the new state."""
    plan: TrialPlan
    """What only the new state has beside its sources: options, and what is done from outside."""
    recorded: RecordedRun | None = None
    """A run whose state is the old one."""
    missing: tuple[str, ...] = ()
    """What no state can have: files that differ and are read as they are in both."""
    notes: tuple[str, ...] = ()

    @property
    def change(self) -> Change:
        """Differences of the two."""
        lines = [f"{name}={value}" for name, value in self.variables.items()]
        return compare_sources(self.before, self.after, (*lines, *self.plan.labels))

    def lay_over(self, state: Sources) -> tuple[tuple[SourceChange, ...], tuple[str, ...]]:
        """Make the texts that a state has in place of the files, and list the files it lacks."""
        changes: list[SourceChange] = []
        for path, content in sorted(state.items()):
            there = self.tree.get(path)
            if there != content:
                digest = "" if there is None else hashlib.sha256(there).hexdigest()
                changes.append(SourceChange(path, digest, _decode(content)))
        return tuple(changes), tuple(sorted(self.tree.keys() - state.keys()))


def _decode(content: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        # A mark at the beginning belongs to the text: it is written again.
        return content.decode("utf-8" if encoding == "utf-8-sig" else encoding)
    except (SyntaxError, UnicodeDecodeError):
        return content.decode("utf-8", "surrogateescape")


def select_states(options: CertifyOptions) -> States:
    """Select the two states that a user named.

    Raises:
        UsageError: a state cannot be had; the message says what to do.
    """
    folder = os.path.realpath(os.getcwd())
    root = find_repository_root(folder)
    named = options.base is not None or options.against is not None
    recorded = None if named else find_recorded_run(options.target)
    tree = read_tree(recorded)
    notes, missing = list[str](), list[str]()
    if options.base is not None and options.against is not None:
        raise UsageError("--base and --against both name the old state: leave one of them out")
    if options.against is not None:
        base, before = options.against, _read_other_folder(options.against, folder, tree, missing)
    elif options.base is None and (options.patch or options.env or options.config):
        base, before = "the files as they are", tree
        recorded = recorded if _is_state(recorded, tree, tree) else None
    elif recorded is not None:
        base, before = f"the recorded run {recorded.name}", dict[str, bytes]()
        before = read_recorded_sources(recorded, tree)
        commit = recorded.receipt.header.provenance.git_commit
        missing += _list_changed_data(root, commit, recorded) if root and commit else []
    else:
        has_head = root is not None and run_git(root, "rev-parse", "--verify", "-q", "HEAD")
        if root is None or not (options.base or has_head):
            if options.base:
                raise UsageError(f"{folder} is in no git repository: --base cannot be looked up")
            raise UsageError(NOTHING.format(command=shlex.join(options.target)))
        base = options.base or "HEAD (no recorded run of this command is here)"
        sha = resolve_commit(root, options.base or "HEAD")
        before = _read_commit(root, sha, tree, missing)
        before = _leave_untracked(root, tree, before, notes, absent=options.with_untracked)
        newest = find_recorded_run(options.target) if named and not missing else None
        recorded = newest if _is_state(newest, tree, before) else None
    after, new = tree, "the files as they are"
    if options.patch is not None:
        new = f"{new} with {options.patch}"
        after = apply_patch(options.patch, root or folder, tree, missing)
    elif options.env or options.config:
        new = ", ".join(
            [*map("=".join, (options.env or {}).items()), *(x.label for x in options.config)]
        )
    also = _select_scripts(options, tree)
    verb, top = "differs, and is read as it is in both states", root or ""
    folders = {name for name in missing if os.path.isdir(os.path.join(top, name))}
    differing = (f"{'the submodule ' * (name in folders)}{name}" for name in sorted({*missing}))
    return States(
        base=base,
        new=new,
        tree=tree,
        before=also | before,
        after=also | after,
        variables=options.env or {},
        plan=TrialPlan(settings=options.config),
        recorded=recorded,
        missing=tuple(f"{name} {verb}" for name in differing),
        notes=tuple(notes),
    )


def _select_scripts(options: CertifyOptions, tree: Sources) -> dict[str, bytes]:
    """Select the scripts of `--also`, programs of their own which the old state may not have."""
    scripts = {os.path.realpath(parse_target(words).script or "") for words in options.also}
    return {script: tree[script] for script in scripts & tree.keys()}


def read_tree(recorded: RecordedRun | None) -> dict[str, bytes]:
    """Read the Python files of the repository here, else below this folder, by whole path; and
    those that a recorded run had from elsewhere."""
    folder = os.path.realpath(os.getcwd())
    sources = read_sources(find_repository_root(folder) or folder)
    if recorded is not None:
        names = recorded.receipt.header.provenance.source_sha256
        paths = {os.path.realpath(os.path.join(recorded.recording.folder, name)) for name in names}
        sources |= _read_files(paths - sources.keys())
    return sources


def read_sources(root: str) -> dict[str, bytes]:
    """Read the Python files below a folder, by whole path."""
    return _read_files(iterate_files(root))


def _read_files(paths: Iterable[str]) -> dict[str, bytes]:
    sources: dict[str, bytes] = {}
    for path in paths:
        # What a program cannot read either is no source.
        with contextlib.suppress(OSError):
            if path.endswith(".py"):
                sources[path] = Path(path).read_bytes()
    return sources


# --- the old state -------------------------------------------------------------------------------


def _read_commit(root: str, sha: str, tree: Sources, missing: list[str]) -> dict[str, bytes]:
    """Read the sources of a commit; other files that differ are added to `missing`."""
    listed = run_git(root, "diff", "--name-only", "-z", "--no-renames", sha, "--", timeout_s=60)
    there = run_git(root, "ls-tree", "-r", "--name-only", "-z", sha, timeout_s=60)
    if listed is None or there is None:
        raise UsageError(f"git cannot compare the files with {sha}")
    before, known = dict(tree), set(split_paths(there))
    for name in split_paths(listed):
        path = os.path.join(os.path.realpath(root), name)
        if not name.endswith(".py"):
            missing += [name] if is_code(name) else []
        elif name not in known:
            before.pop(path, None)
        elif (content := run_git(root, "show", f"{sha}:{name}")) is not None:
            before[path] = os.fsencode(content)
        else:
            raise UsageError(f"git cannot show {name} of {sha}")
    return before


def _leave_untracked(
    root: str, tree: Sources, before: dict[str, bytes], notes: list[str], *, absent: bool
) -> dict[str, bytes]:
    """Return the old state without the files that git does not know, where they are a part of the
    change; else they are the same in both, which is noted."""
    listed = run_git(root, "ls-files", "--others", "--exclude-standard", "-z") or ""
    names = [name for name in split_paths(listed) if name.endswith(".py")]
    paths = {os.path.join(os.path.realpath(root), name) for name in names} & tree.keys()
    if paths and not absent:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        notes.append(
            f"git does not know {', '.join(names[:3])}{more}: taken as they are in both states; "
            "--with-untracked makes them a part of the change"
        )
    return {path: text for path, text in before.items() if not absent or path not in paths}


def _read_other_folder(
    other: str, folder: str, tree: Sources, missing: list[str]
) -> dict[str, bytes]:
    """Read the sources of another folder as if here; other files that differ go to `missing`."""
    if not os.path.isdir(other):
        raise UsageError(f"--against {other}: there is no such folder")
    top, start = os.path.realpath(other), os.path.join(folder, "")
    before = {path: text for path, text in tree.items() if not path.startswith(start)}
    for path in iterate_files(top):
        name = os.path.relpath(path, top)
        here = os.path.join(folder, name)
        with open(path, "rb") as stream:
            content = stream.read() if path.endswith(".py") else b""
        if path.endswith(".py"):
            before[here] = content
        elif os.path.isfile(here) and is_code(name) and not filecmp.cmp(path, here, False):
            missing.append(name)
    return before


def read_recorded_sources(recorded: RecordedRun, tree: Sources) -> dict[str, bytes]:
    """Read the sources of a recorded run.

    Raises:
        UsageError: one that has changed since was not kept.
    """
    provenance, folder = recorded.receipt.header.provenance, recorded.recording.folder
    before, seen = dict(tree), set[str]()
    for name, digest in provenance.source_sha256.items():
        path = os.path.realpath(os.path.join(folder, name))
        seen.add(path)
        there = tree.get(path)
        if not name.endswith(".py") or (
            there is not None and hashlib.sha256(there).hexdigest() == digest
        ):
            continue
        if digest == NO_FILE:
            before.pop(path, None)
            continue
        content = read_kept_source(recorded, digest) if digest != CHANGED else None
        if content is None:
            raise UsageError(
                f"{name} has changed since {recorded.name}, which did not keep it: it holds what "
                "looks like a secret, or changed during the run. Name the old state with --base or "
                "--against"
            )
        before[path] = content
    for path in tree.keys() - seen:  # made since
        if os.path.getmtime(path) > recorded.recording.started_unix:
            before.pop(path, None)
    return before


def _is_state(recorded: RecordedRun | None, tree: Sources, state: Sources) -> bool:
    """True if the sources of a recorded run are those of a state, so that it stands for it."""
    with contextlib.suppress(UsageError):  # one that has changed since was not kept
        return recorded is not None and read_recorded_sources(recorded, tree) == state
    return False


def _list_changed_data(root: str, commit: str, recorded: RecordedRun) -> list[str]:
    """List the tracked files that are no Python and were changed after a recorded run."""
    listed = run_git(root, "diff", "--name-only", "-z", "--no-renames", commit, "--") or ""
    ended = recorded.recording.ended_unix
    names = [name for name in split_paths(listed) if not name.endswith(".py") and is_code(name)]
    paths = {name: os.path.join(root, name) for name in names}
    return [
        name
        for name, path in paths.items()
        if not os.path.exists(path) or os.path.getmtime(path) > ended
    ]


# --- a patch -------------------------------------------------------------------------------------


def apply_patch(patch: str, root: str, tree: Sources, missing: list[str]) -> dict[str, bytes]:
    """Apply a diff to copies of the files that it touches, and return the sources that this gives;
    other files in it are added to `missing`. Its paths begin at the root of the repository.

    Raises:
        UsageError: it does not apply; the message is git's.
    """
    file = os.path.abspath(patch)
    if not os.path.isfile(file):
        raise UsageError(f"--patch {patch}: there is no such file")
    with tempfile.TemporaryDirectory(prefix="compilediag-patch-") as copy:
        listed = _run_git_apply(copy, patch, "--numstat", "-z", file)
        names = {part.split("\t")[-1] for part in split_paths(listed)}
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            names.update(re.findall(r"^(?:rename|copy) from (.+)$", stream.read(), re.MULTILINE))
        for name in names:
            source = os.path.normpath(os.path.join(root, name))
            if os.path.isfile(source) and ".." not in name.split("/"):
                os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
                shutil.copyfile(source, os.path.join(copy, name))
        _run_git_apply(copy, patch, file)
        after, top = dict(tree), os.path.realpath(root)
        missing += [name for name in names if not name.endswith(".py") and is_code(name)]
        for name in names:
            after.pop(os.path.join(top, name), None)
        for path, content in read_sources(copy).items():
            after[os.path.join(top, os.path.relpath(path, copy))] = content
    return after


def _run_git_apply(folder: str, patch: str, *arguments: str) -> str:
    # Outside of any repository: the paths of the patch are those of the folder.
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)}
    environ = {name: value for name, value in environ.items() if name != "GIT_DIR"}
    try:
        done = subprocess.run(
            ["git", "apply", *arguments], cwd=folder, env=environ, capture_output=True, check=False
        )
    except OSError as error:
        raise UsageError("--patch needs git") from error
    if done.returncode:
        why = os.fsdecode(done.stderr).strip().replace("\n", "; ")
        raise UsageError(f"--patch {patch} does not apply: {why}")
    return os.fsdecode(done.stdout)
