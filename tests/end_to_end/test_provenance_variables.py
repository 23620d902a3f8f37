"""Which code ran, where there is no repository: ours before a service's, and never mixed."""

from __future__ import annotations

from pathlib import Path

from compilediag.receipt.provenance_variables import provenance_from
from compilediag.runs.checkout import read_provenance

ALL = {
    "COMPILEDIAG_GIT_COMMIT": "abc",
    "COMPILEDIAG_GIT_BRANCH": "main",
    "COMPILEDIAG_GIT_DIRTY": "1",
    "COMPILEDIAG_GIT_MESSAGE": "First\nsecond line",
}


def test_facts(tmp_path: Path) -> None:
    """They say where they come from; the digest of the script stands beside them. What nobody told
    is null."""
    found = read_provenance(str(tmp_path), {"x.py": "ab"}, ALL)
    assert (found.git_commit, found.git_dirty, found.source) == ("abc", True, "environment")
    assert found.source_sha256 == {"x.py": "ab"}
    nothing = provenance_from({})
    assert (nothing.git_commit, nothing.source) == (None, None)
