"""Which code ran, where there is no repository: ours before a service's, and never mixed."""

import pytest

from compilediag.receipt.run_metadata import SERVICES, parse_provenance
from compilediag.receipt.schema.identity import Provenance

ALL = {
    "COMPILEDIAG_GIT_COMMIT": "abc",
    "COMPILEDIAG_GIT_BRANCH": "main",
    "COMPILEDIAG_GIT_DIRTY": "1",
    "COMPILEDIAG_GIT_MESSAGE": "First\nsecond line",
}


def provenance(**fields: str | bool) -> Provenance:
    return Provenance(source="environment", **fields)


def test_our_variables() -> None:
    """All four; a message is its first line."""
    assert parse_provenance(ALL) == provenance(
        git_commit="abc", git_branch="main", git_dirty=True, git_message_short="First"
    )


@pytest.mark.parametrize(
    ("value", "dirty"),
    [("1", True), ("true", True), ("0", False), ("No", False), ("", None), ("maybe", None)],
)
def test_changes(value: str, dirty: bool | None) -> None:
    """Yes, no, or not known: a word that is neither is no answer."""
    assert parse_provenance({"COMPILEDIAG_GIT_DIRTY": value}).git_dirty is dirty


@pytest.mark.parametrize("names", SERVICES, ids=lambda names: names["commit"])
def test_services(names: dict[str, str]) -> None:
    """Each service's own variables; none says whether there were changes."""
    found = parse_provenance({name: f"the {key}" for key, name in names.items()})
    assert (found.git_commit, found.git_branch) == ("the commit", "the branch")
    assert found.git_dirty is None


def test_pull_requests_and_pushes_on_github() -> None:
    """The branch of a pull request where there is one, else what was pushed."""
    push = {"GITHUB_SHA": "abc", "GITHUB_HEAD_REF": "", "GITHUB_REF_NAME": "main"}
    assert parse_provenance(push).git_branch == "main"
    assert parse_provenance({**push, "GITHUB_HEAD_REF": "fix"}).git_branch == "fix"
