"""The address at which the project is published: set here alone, and left out until it is known.

Nothing points at an account whose owner is not known: while `REPOSITORY` is None there are no
links, and a reader is sent to what is installed, `compilediag explain CODE`. Pages show
`OWNER/compilediag` where the name of the repository belongs.
"""

from __future__ import annotations

REPOSITORY: str | None = None
"""The address of the repository without a slash at its end, "https://host/owner/compilediag"."""


def get_rule_url(code: str) -> str | None:
    """Return the address of the page of a rule; None while `REPOSITORY` is not set."""
    return None if REPOSITORY is None else f"{REPOSITORY}/blob/main/docs/rules/{code}.md"


def format_issue_address() -> str:
    """Name the place to report a fault of compilediag at, in words that follow "report it"."""
    if REPOSITORY is None:
        return "where you got compilediag from"
    return f"at {REPOSITORY}/issues"
