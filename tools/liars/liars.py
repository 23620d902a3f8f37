"""Changes that look better and are not, written by hand in `liars.toml`: each a few replacements in
a program, before or after that program's honest improvement.

The truth is not taken from there: plain runs have to show that the results differ, with the
program's own inputs or with others, or that nothing was gained by torch's counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from programs import read_toml

Edits = Sequence[Sequence[str]]
"""Old text, which the program has once, and new."""

_DATA = read_toml(Path(__file__).with_name("liars.toml"))


class Liar(NamedTuple):
    """One change."""

    kind: str
    name: str
    before: str
    after: str
    elsewhere: Edits
    """Other inputs for both states, with which they differ; none where the run itself shows it."""


def edit(text: str, edits: Edits) -> str:
    """Makes replacements, in their order.

    Raises:
        ValueError: the text has not one such place.
    """
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} places for {old!r}")
        text = text.replace(old, new)
    return text


def iterate_honest() -> Iterator[tuple[str, str]]:
    """Each program before and after its honest improvement."""
    for name, text in _DATA["programs"].items():
        yield text, edit(text, _DATA["honest"][name])


def iterate_liars() -> Iterator[Liar]:
    """All of them, in the order of the file."""
    for kind, liars in _DATA["liars"].items():
        for one in liars:
            before = text = _DATA["programs"][one["base"]]
            if one.get("honest"):
                text = edit(text, _DATA["honest"][one["base"]])
            after = edit(text, one["edits"])
            yield Liar(kind, one["name"], before, after, one.get("elsewhere", ()))
