"""Whether a receipt is of the code that is checked out: evidence of other code judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from compilediag.compare.gate.baseline import LOCK_NAME
from compilediag.receipt.schema.identity import Provenance

CHANGED = "changed"
"""In place of the digest of a file that was written while the run went on."""
NO_FILE = ""
"""The digest of a file that does not exist."""

_NAMED = 3
_COMMIT_DIGITS = 10
_TEXTS = (".md", ".rst", ".pyc", f"/{LOCK_NAME}")
"""Ends of the paths of tracked files that change nothing of what a program does."""


class WorkingTree(Struct, frozen=True):
    """The code that is checked out, as far as it concerns one receipt. Paths are relative to the
    folder that the receipt's are."""

    commit: str | None
    digests: Mapping[str, str | None]
    """Of the files that the receipt has digests of; None where a file cannot be read."""
    changed: Sequence[str] | None
    """Tracked files that differ from the commit of the receipt; None: not known."""
    baseline: str | None = None
    """The baseline, which is no code."""


class CodeComparison(Struct, frozen=True):
    """The code of a receipt and the code that is checked out."""

    reasons: tuple[str, ...] = ()
    """Sentences why the receipt is not of this code; empty where nothing speaks against it."""
    notices: tuple[str, ...] = ()


def is_code(path: str) -> bool:
    """Whether a tracked file may change what a program does: documents and the baseline do not."""
    return not f"/{path}".endswith(_TEXTS)


def compare_code(ran: Provenance, here: WorkingTree) -> CodeComparison:
    """What speaks against the receipt's being of the code that is checked out."""
    baseline = here.baseline
    sources = {
        path: digest
        for path, digest in ran.source_sha256.items()
        if path != baseline and is_code(path)
    }
    if not ran.source_sha256 and ran.git_commit is None:
        return CodeComparison(notices=("the receipt does not record which code it is of",))
    written = [path for path, digest in sources.items() if digest == CHANGED]
    other = [
        path
        for path, digest in sources.items()
        if digest != CHANGED and here.digests.get(path) != digest
    ]
    other += [
        path
        for path in here.changed or ()
        if path not in sources and path != baseline and is_code(path) and not _unused(path, ran)
    ]
    reasons: list[str] = []
    if other:
        verb = "has" if len(other) == 1 else "have"
        reasons.append(f"{_named(other)} {verb} changed since the run{_of(ran, here)}")
    if written:
        verb = "was" if len(written) == 1 else "were"
        reasons.append(f"{_named(written)} {verb} written while the run went on")
    if here.changed is None and not reasons and _other_commit(ran, here):
        reasons.append(
            "it is of commit {}, and {} is checked out; what differs between them cannot be looked "
            "up here".format(*map(_short, (ran.git_commit, here.commit)))
        )
    return CodeComparison(tuple(f"the receipt is of other code: {reason}" for reason in reasons))


def _unused(path: str, ran: Provenance) -> bool:
    """Whether the file is source that the run is known not to have imported."""
    return ran.imports_complete is True and path.endswith(".py")


def _other_commit(ran: Provenance, here: WorkingTree) -> bool:
    return None not in (ran.git_commit, here.commit) and ran.git_commit != here.commit


def _of(ran: Provenance, here: WorkingTree) -> str:
    if not _other_commit(ran, here):
        return ""
    return f" (of commit {_short(ran.git_commit)}; {_short(here.commit)} is checked out)"


def _short(commit: str | None) -> str:
    return (commit or "")[:_COMMIT_DIGITS]


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{shown} and {more} more file{'s' if more > 1 else ''}" if more > 0 else shown
