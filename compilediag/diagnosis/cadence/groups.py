"""Groups of periodic work: declared in the code, or named from outside by a template.

A template says how the period gets into the program: `--entropy-every {n}` as arguments of the
target, `env:ENTROPY_EVERY={n}` as a variable of its environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.errors import UsageError
from compilediag.timeline.cadence import CadenceGroup

Origin = Literal["code", "argument", "environment"]

HOLE = "{n}"
NAME_LIMIT = 200
EXAMPLE = "--group 'entropy=--entropy-every {n}' or --group 'entropy=env:ENTROPY_EVERY={n}'"

_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProbeGroup:
    """One group of periodic work that the probe can move."""

    name: str
    origin: Origin
    template: str | None = None
    """None for a group that is declared in the code."""
    own_every: int | None = None
    """The program's own period; None where only the program knows it."""
    shift: int = 0
    """The program's number of a step minus ours; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """What the user asked for: templates, and names of groups that the code declares."""

    templates: tuple[ProbeGroup, ...] = ()
    names: tuple[str, ...] = ()
    """Empty: every group of the code."""


def parse_groups(texts: Iterable[str], table: Mapping[str, str]) -> GroupSelection:
    """The groups of the command line and of pyproject.toml; the command line wins by name.

    Raises:
        UsageError: a text is neither NAME nor NAME=TEMPLATE, or a name is there twice.
    """
    given = [_parsed(text) for text in texts]
    names = [name for name, _ in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"there are two groups named {twice!r}: give each a name of its own")
    templates = {name: template for name, template in given if template is not None}
    merged = {**{name: text for name, text in table.items() if name not in names}, **templates}
    return GroupSelection(
        templates=tuple(group_of(name, template) for name, template in merged.items()),
        names=tuple(name for name, template in given if template is None),
    )


def _parsed(text: str) -> tuple[str, str | None]:
    name, equals, template = text.partition("=")
    return _checked(name.strip(), text), template if equals else None


def _checked(name: str, text: str) -> str:
    if not name or name.startswith("-") or len(name) > NAME_LIMIT or not name.isprintable():
        raise UsageError(
            f"--group {text!r} does not begin with the group's name: write {EXAMPLE}, or the name "
            "alone of a group that the code declares"
        )
    return name


def group_of(name: str, template: str) -> ProbeGroup:
    """The group of a template.

    Raises:
        UsageError: the template has no `{n}`, or cannot be read.
    """
    _checked(name, f"{name}={template}")
    if HOLE not in template:
        raise UsageError(
            f"the template {template!r} of group {name!r} has no {{n}}, the place for the period: "
            f"write {EXAMPLE}"
        )
    if template.startswith("env:"):
        found = _ENVIRONMENT.fullmatch(template)
        if found is None or HOLE not in found[2]:
            raise UsageError(
                f"the template {template!r} of group {name!r} is not env:VARIABLE={{n}}"
            )
        return ProbeGroup(name, "environment", template)
    _words_of(template, name)
    return ProbeGroup(name, "argument", template)


def _words_of(template: str, name: str) -> list[str]:
    try:
        return shlex.split(template)
    except ValueError as error:
        raise UsageError(f"the template of group {name!r} cannot be read: {error}") from error


def all_groups(wanted: GroupSelection, declared: Sequence[CadenceGroup]) -> tuple[ProbeGroup, ...]:
    """The groups to move: those of the code that were asked for, then those of the templates.

    Raises:
        UsageError: a name is unknown or there twice, or two names share one variable.
    """
    known = {group.name: group for group in declared}
    for name in wanted.names:
        if name not in known:
            told = ", ".join(repr(item) for item in known) or "none"
            raise UsageError(
                f"the code declares no group named {name!r}; it declares {told}. For a script that "
                f"knows nothing of compilediag: {EXAMPLE}"
            )
    for group in wanted.templates:
        if group.name in known:
            raise UsageError(
                f"the code declares a group named {group.name!r} itself: leave the template of "
                "that name away, or give it another name"
            )
    chosen = [item for item in declared if not wanted.names or item.name in wanted.names]
    own = tuple(ProbeGroup(i.name, "code", None, i.own_every, i.shift or 0) for i in chosen)
    return own + wanted.templates


def with_argument(words: Sequence[str], template: str, period: int) -> tuple[str, ...]:
    """TARGET and its arguments with the template in place: an option that is there already gets
    the new value where it stands, any other is put at the end."""
    fixed = 2 if words and words[0] in ("-m", "-c") else 1
    head, arguments = tuple(words[:fixed]), list(words[fixed:])
    parts = shlex.split(template)
    while parts:
        part = parts.pop(0)
        takes_next = part.startswith("-") and "=" not in part and parts and HOLE in parts[0]
        if takes_next:
            value = _filled(parts.pop(0), period)
            _replace(arguments, part, value, [part, value])
        elif HOLE in part and "=" in part:
            key, _, value = part.partition("=")
            value = _filled(value, period)
            _replace(arguments, key, value, [f"{key}={value}"])
        else:
            arguments.append(_filled(part, period))
    return head + tuple(arguments)


def _filled(text: str, period: int) -> str:
    return text.replace(HOLE, str(period))


def _replace(arguments: list[str], key: str, value: str, otherwise: list[str]) -> None:
    """Gives every `key VALUE` and `key=VALUE` the new value; adds `otherwise` when there is none.

    Both spellings belong to one option only where the key is an option ("--every").
    """
    found = False
    for place, word in enumerate(arguments):
        if word.startswith(f"{key}="):
            arguments[place], found = f"{key}={value}", True
        elif word == key and key.startswith("-") and place + 1 < len(arguments):
            arguments[place + 1], found = value, True
    if not found:
        arguments += otherwise


def variable_of(template: str, period: int) -> tuple[str, str]:
    """Name and value of the variable that an `env:` template sets."""
    found = _ENVIRONMENT.fullmatch(template)
    assert found is not None
    return found[1], _filled(found[2], period)
