"""Which code ran, where there is no repository: from variables of ours, else of the CI service.

Pure: the caller hands in the environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

OURS = {
    "commit": "COMPILEDIAG_GIT_COMMIT",
    "branch": "COMPILEDIAG_GIT_BRANCH",
    "dirty": "COMPILEDIAG_GIT_DIRTY",
    "message": "COMPILEDIAG_GIT_MESSAGE",
}

BLOB = "COMPILEDIAG_PROVENANCE"
"""All of it as one JSON object with the keys of `OURS`, for pipelines that inject one value."""

SERVICES: tuple[Mapping[str, str], ...] = (
    {
        "commit": "GITHUB_SHA",
        "branch": "GITHUB_HEAD_REF",
        "other_branch": "GITHUB_REF_NAME",
    },
    {
        "commit": "CI_COMMIT_SHA",
        "branch": "CI_COMMIT_REF_NAME",
        "message": "CI_COMMIT_TITLE",
    },
    {
        "commit": "BUILDKITE_COMMIT",
        "branch": "BUILDKITE_BRANCH",
        "message": "BUILDKITE_MESSAGE",
    },
    {
        "commit": "BUILD_SOURCEVERSION",
        "branch": "BUILD_SOURCEBRANCHNAME",
        "message": "BUILD_SOURCEVERSIONMESSAGE",
    },
    {"commit": "CIRCLE_SHA1", "branch": "CIRCLE_BRANCH"},
    {"commit": "BITBUCKET_COMMIT", "branch": "BITBUCKET_BRANCH"},
    {"commit": "GIT_COMMIT", "branch": "GIT_BRANCH"},
)
"""GitHub, GitLab, Buildkite, Azure, CircleCI, Bitbucket, Jenkins: the first that names a commit."""

LONGEST = 200

_YES = frozenset({"1", "true", "yes"})
_NO = frozenset({"0", "false", "no"})


class Told(NamedTuple):
    """What variables tell; None where they do not."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    message: str | None = None

    @property
    def anything(self) -> bool:
        """Whether they tell something."""
        return any(item is not None for item in self)


def told_by(variables: Mapping[str, str]) -> Told:
    """What the environment says of the code: ours key by key before the blob; a CI service only
    where neither names anything, because what comes of two sources fits no commit."""
    blob = _blob(variables.get(BLOB, ""))
    given = {key: variables.get(name) or blob.get(key) for key, name in OURS.items()}
    told = _told(given)
    return told if told.anything else _of_service(variables)


def _of_service(variables: Mapping[str, str]) -> Told:
    for names in SERVICES:
        given = {key: variables.get(name) or None for key, name in names.items()}
        if given["commit"]:
            given["branch"] = given["branch"] or given.get("other_branch")
            return _told(given)
    return Told()


def _told(given: Mapping[str, Any]) -> Told:
    return Told(
        commit=_line(given.get("commit")),
        branch=_line(given.get("branch")),
        dirty=_flag(given.get("dirty")),
        message=_line(given.get("message")),
    )


def _blob(text: str) -> dict[str, Any]:
    """The object; nothing where it is none: a receipt is not worth a failing run."""
    try:
        found: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _line(value: Any) -> str | None:
    """The first line, as git's own subject of a commit."""
    text = value.strip() if isinstance(value, str) else ""
    return text.splitlines()[0][:LONGEST] if text else None


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None
