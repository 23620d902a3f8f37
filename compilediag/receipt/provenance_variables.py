"""Which code ran, where there is no repository: from variables of ours, else of the CI service.

Pure: the caller passes the environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from compilediag.receipt.schema.identity import Provenance

OURS = {
    "commit": "COMPILEDIAG_GIT_COMMIT",
    "branch": "COMPILEDIAG_GIT_BRANCH",
    "dirty": "COMPILEDIAG_GIT_DIRTY",
    "message": "COMPILEDIAG_GIT_MESSAGE",
}

BLOB = "COMPILEDIAG_PROVENANCE"
"""All of it as one JSON object with the keys of `OURS`, for pipelines that inject one value."""

SERVICES: tuple[Mapping[str, str], ...] = (
    {"commit": "GITHUB_SHA", "branch": "GITHUB_HEAD_REF", "other_branch": "GITHUB_REF_NAME"},
    {"commit": "CI_COMMIT_SHA", "branch": "CI_COMMIT_REF_NAME", "message": "CI_COMMIT_TITLE"},
    {"commit": "BUILDKITE_COMMIT", "branch": "BUILDKITE_BRANCH", "message": "BUILDKITE_MESSAGE"},
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

MAX_LENGTH = 200

_YES = frozenset({"1", "true", "yes"})
_NO = frozenset({"0", "false", "no"})


def provenance_from(variables: Mapping[str, str]) -> Provenance:
    """The code that ran, by the environment: our variables key by key before the blob; those of a
    CI service only where neither names anything, because a mix of two sources fits no commit."""
    blob = _blob(variables.get(BLOB, ""))
    ours = {key: variables.get(name) or blob.get(key) for key, name in OURS.items()}
    return _provenance(ours) or _from_service(variables) or Provenance()


def _from_service(variables: Mapping[str, str]) -> Provenance | None:
    for names in SERVICES:
        values = {key: variables.get(name) or None for key, name in names.items()}
        if values["commit"]:
            values["branch"] = values["branch"] or values.get("other_branch")
            return _provenance(values)
    return None


def _provenance(values: Mapping[str, Any]) -> Provenance | None:
    """None where there is no usable value."""
    found = Provenance(
        git_commit=_line(values.get("commit")),
        git_branch=_line(values.get("branch")),
        git_dirty=_flag(values.get("dirty")),
        git_message_short=_line(values.get("message")),
        source="environment",
    )
    return None if found == Provenance(source="environment") else found


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
    return text.splitlines()[0][:MAX_LENGTH] if text else None


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None
