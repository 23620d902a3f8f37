"""Which code ran, where there is no repository: ours before a service's, and never mixed."""

from __future__ import annotations

import json

import pytest

from compilediag.receipt.provenance_variables import BLOB, OURS, SERVICES, Told, told_by

ALL = {
    "COMPILEDIAG_GIT_COMMIT": "abc",
    "COMPILEDIAG_GIT_BRANCH": "main",
    "COMPILEDIAG_GIT_DIRTY": "1",
    "COMPILEDIAG_GIT_MESSAGE": "First\nsecond line",
}


def test_our_variables() -> None:
    """All four; a message is its first line."""
    assert told_by(ALL) == Told("abc", "main", True, "First")


@pytest.mark.parametrize(
    ("value", "dirty"),
    [("1", True), ("true", True), ("0", False), ("No", False), ("", None), ("maybe", None)],
)
def test_changes(value: str, dirty: bool | None) -> None:
    """Yes, no, or not known: a word that is neither is no answer."""
    assert told_by({"COMPILEDIAG_GIT_DIRTY": value}).dirty is dirty


def test_one_structured_value() -> None:
    """A pipeline may inject all of it at once; a variable of its own wins over its part."""
    blob = {"commit": "def", "branch": "rel", "dirty": False, "message": " x ", "other": 1}
    assert told_by({BLOB: json.dumps(blob)}) == Told("def", "rel", False, "x")
    assert told_by({BLOB: json.dumps(blob), OURS["commit"]: "abc"}).commit == "abc"


@pytest.mark.parametrize("blob", ["", "{", "[1]", "5", "[" * 100_000, '{"commit": 5, "dirty": 7}'])
def test_a_broken_value_tells_nothing(blob: str) -> None:
    """No run fails for the sake of its receipt."""
    assert told_by({BLOB: blob}) == Told()


@pytest.mark.parametrize("names", SERVICES, ids=lambda names: names["commit"])
def test_services(names: dict[str, str]) -> None:
    """Each service's own variables; none says whether there were changes."""
    told = told_by({name: f"the {key}" for key, name in names.items()})
    assert (told.commit, told.branch, told.dirty) == ("the commit", "the branch", None)


def test_pull_requests_and_pushes_on_github() -> None:
    """The branch of a pull request where there is one, else what was pushed."""
    push = {"GITHUB_SHA": "abc", "GITHUB_HEAD_REF": "", "GITHUB_REF_NAME": "main"}
    assert told_by(push).branch == "main"
    assert told_by({**push, "GITHUB_HEAD_REF": "fix"}).branch == "fix"


def test_sources_are_not_mixed() -> None:
    """The commit of one source with the branch of another would be a commit that never was."""
    service = {"CI_COMMIT_SHA": "abc", "CI_COMMIT_REF_NAME": "main"}
    assert told_by({**service, "COMPILEDIAG_GIT_BRANCH": "x"}) == Told(branch="x")
    assert told_by({"GITHUB_REF_NAME": "main", "GIT_COMMIT": "def"}) == Told("def")
