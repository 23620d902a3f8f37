"""Which code ran: three `git` calls with a time limit, and the digest of the script."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from msgspec.structs import replace

from compilediag.receipt.provenance_variables import provenance_from
from compilediag.receipt.schema.identity import Provenance
from compilediag.runs.digests import DIGEST_LIMIT_BYTES, sha256_of
from compilediag.runs.git import TIMEOUT_S, git


class ProvenanceProbe:
    """Calls git in a thread while the target runs: a large repository must not delay its start."""

    def __init__(self, folder: str, digests: Mapping[str, str]) -> None:
        self._folder = folder
        self._digests = dict(digests)
        self._facts: Provenance | None = None
        self._thread = threading.Thread(target=self._read, name="compilediag-git", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self._facts = read_provenance(self._folder, self._digests, os.environ)

    def result(self) -> Provenance:
        """What was read; only the digests when git took too long."""
        self._thread.join(TIMEOUT_S)
        return self._facts or Provenance(source_sha256=self._digests)


def read_provenance(
    folder: str, digests: Mapping[str, str], variables: Mapping[str, str]
) -> Provenance:
    """The commit at `folder`; where there is no repository, what the environment contains."""
    head = _line(folder, "log", "-1", "--format=%H%n%s")
    if head is None:
        return replace(provenance_from(variables), source_sha256=dict(digests))
    commit, _, message = head.partition("\n")
    status = _line(folder, "status", "--porcelain", "--untracked-files=no")
    return Provenance(
        git_commit=commit,
        git_branch=_line(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        git_dirty=None if status is None else bool(status),
        git_message_short=message[:200],
        source="git",
        source_sha256=dict(digests),
    )


def _line(folder: str, *arguments: str) -> str | None:
    found = git(folder, *arguments)
    return None if found is None else found.encode("utf-8", "replace").decode("utf-8").strip()


def digest_script(path: str | None) -> dict[str, str]:
    """The script's path from here to the SHA-256 of its bytes; empty when there is none."""
    if path is None or not os.path.isfile(path):
        return {}
    try:
        if os.path.getsize(path) > DIGEST_LIMIT_BYTES:
            return {}
        with open(path, "rb") as file:
            return {os.path.relpath(path): sha256_of(file)}
    except OSError:
        return {}
