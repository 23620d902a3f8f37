"""Edited files of a program: for a trial in place of the files, and for good (`--apply`)."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping

from compilediag.errors import OutputUnwritable, UsageError
from compilediag.fixes.proof_types import ListedChanges
from compilediag.fixes.rewrite import rewrite
from compilediag.receipt.schema.compiles import RefusedChange
from compilediag.rules.changes import (
    Edit,
    EditImpossible,
    ProgramChange,
    group_by_file,
)
from compilediag.runs.checkout import run_git
from compilediag_harness.base import atomic_write
from compilediag_harness.wire import SourceChange


def list_possible(changes: Iterable[ProgramChange], digests: Mapping[str, str]) -> ListedChanges:
    """List the changes that can be made in the files that ran; of what does the same, the first."""
    possible: list[ProgramChange] = []
    impossible: list[RefusedChange] = []
    for change in changes:
        try:
            make_changes(change.edits, digests)
            possible.append(change)
        except EditImpossible as error:
            impossible.append(RefusedChange(change=change.line, reason=str(error)))
    first = {change.same_as: change for change in reversed(possible)}
    final = [change for change in possible if not change.same_as or first[change.same_as] == change]
    return ListedChanges(tuple(final), tuple(dict.fromkeys(impossible)))


def make_changes(edits: Iterable[Edit], digests: Mapping[str, str]) -> tuple[SourceChange, ...]:
    """Make the text of each file with its edits; the files stay as they are. `digests`: SHA-256 of
    each file as it ran, since lines were recorded then.

    Raises:
        EditImpossible: a file cannot be read, is not what ran any more, or has not what an edit is
            about.
    """
    made: list[SourceChange] = []
    for file, of_file in group_by_file(edits).items():
        path = os.path.abspath(file)
        try:
            with open(path, "rb") as stream:
                content = stream.read()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise EditImpossible(f"{file} cannot be read: {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != digests.get(file):
            raise EditImpossible(f"{file} is not what ran any more")
        made.append(SourceChange(path, digest, rewrite(text, of_file)))
    return tuple(made)


def format_patch(changes: Iterable[SourceChange]) -> str:
    """Format a unified diff that `git apply` and `patch -p1` take, of paths below this folder."""
    lines: list[str] = []
    for change in changes:
        name = os.path.relpath(change.file)
        with open(change.file, encoding="utf-8", newline="") as stream:
            before = stream.read().splitlines(keepends=True)
        after = change.text.splitlines(keepends=True)
        for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
            whole = line.endswith("\n")
            lines.append(line if whole else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def apply(changes: Iterable[SourceChange], *, force: bool) -> list[str]:
    """Writes the texts over their files, each whole or not at all; returns the names.

    Raises:
        UsageError: a file has changed since it was tried, or holds changes that git has not
            recorded; nothing was written.
        OutputUnwritable: a file cannot be written; those before it are.
    """
    chosen = list(changes)
    names = [os.path.relpath(change.file) for change in chosen]
    for name, change in zip(names, chosen, strict=True):
        with open(change.file, "rb") as stream:
            if hashlib.sha256(stream.read()).hexdigest() != change.sha256:
                raise UsageError(f"{name} has changed since it was tried: nothing was written")
        if not force:
            require_committed([change.file])
    for change in chosen:
        try:
            mode = os.stat(change.file).st_mode
            atomic_write.write(change.file, [change.text.encode()])
            os.chmod(change.file, mode)
        except OSError as error:
            why = error.strerror or error
            raise OutputUnwritable(f"{change.file} cannot be written: {why}") from error
    return names


def require_committed(files: Iterable[str]) -> None:
    """Require that git has each file as it is, so that an edit of it can be undone.

    Raises:
        UsageError: it has not; the message names the file.
    """
    for path in files:
        name, (folder, file) = os.path.relpath(path), os.path.split(os.path.abspath(path))
        status = run_git(folder, "status", "--porcelain", "--", file)
        if status is None:
            raise UsageError(f"{name} is in no git repository: --force writes it anyway")
        if status.strip():
            raise UsageError(
                f"{name} holds changes that are not committed: commit them, or --force writes over "
                "them"
            )
