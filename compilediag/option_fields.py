"""Options of a command, declared once as the fields of a frozen dataclass.

    class ShowOptions:
        frames: bool = flag("--frames", "Show each frame.")

The field is the option's name, type and default in the code; the command line, the help and the
keys of pyproject.toml follow from it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Options = TypeVar("Options")
Given = Mapping[str, Any]
"""What click parsed, by the names of the fields; None, or (), for what was not given."""

Check = Callable[[str, Any], Any]
"""Takes the key of an option and a value of either origin, and gives the value of the field."""


class GroupedOption(click.Option):
    """An option that stands below a heading of its own in the help."""

    def __init__(self, *args: Any, heading: str = "Options", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heading = heading


@dataclass(frozen=True, slots=True)
class OptionField:
    """The way in which a field of a command's options is given."""

    make_parameter: Callable[[str], click.Parameter] | None
    """Makes the parameter of the command line; None: the value stands in pyproject.toml alone."""
    key: str | None = None
    """Its name in pyproject.toml and in messages; None: that of the field."""
    toml: tuple[type, ...] = ()
    """Types that its value may have in pyproject.toml; empty: it is no key there."""
    tables: tuple[str, ...] = ()
    """Where it is a key: "" for [tool.compilediag], "probe" for a table of this name below it."""
    only: tuple[str, ...] = ()
    """The commands that have it, where others share the table of options; empty: all."""
    hidden: tuple[str, ...] = ()
    """Those of them whose help shows it with --help-all alone."""
    check: Check = lambda key, value: value


def option(
    flags: str,
    about: str,
    *,
    default: Any = None,
    toml: type | tuple[type, ...] = (),
    tables: tuple[str, ...] = ("",),
    only: str | tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
    check: Check = lambda key, value: value,
    **attributes: Any,
) -> Any:
    """A field that is given by an option. `flags` are as help shows them, "-o --output DIR", and ""
    for a value of pyproject.toml alone; `attributes` are of `GroupedOption`; the rest is that of
    `OptionField`."""
    names = [word for word in flags.split() if word.startswith("-")]
    metavar = " ".join(word for word in flags.split() if word not in names) or None

    def make_parameter(field: str) -> click.Parameter:
        settings: dict[str, Any] = {"default": None, "metavar": metavar, "help": about}
        return GroupedOption([*names, field], **{**settings, **attributes})

    key = names[-1].partition("/")[0].strip("-").replace("-", "_") if names else None
    types = toml if isinstance(toml, tuple) else (toml,)
    commands = only if isinstance(only, tuple) else (only,)
    make = make_parameter if names else None
    entry = OptionField(make, key, types, tables, commands, hidden, check)
    return dataclasses.field(default=default, metadata={"entry": entry})


def flag(flags: str, about: str, *, default: Any = False, **attributes: Any) -> Any:
    """A field that is true where its flag is given."""
    return option(flags, about, default=default, is_flag=True, **attributes)


def argument(*, default: Any = None, **attributes: Any) -> Any:
    """A field that is given by its position."""
    entry = OptionField(lambda field: click.Argument([field], **attributes))
    return dataclasses.field(default=default, metadata={"entry": entry})


def receipt_argument() -> Any:
    """A receipt file or the folder of a run; None: the latest run."""
    return argument(required=False, type=click.Path())


_FINDING = re.compile(r"(?:F?(\d{1,6})|CD\d{3}-.+)\Z", re.IGNORECASE | re.DOTALL)


def names_finding(word: str) -> bool:
    """True where a word is the number of a finding (1, F1), or may be its key (CD103-rotary)."""
    return _FINDING.match(word) is not None


def parse_finding_id(word: str) -> str | None:
    """Parse the number of a finding to its id, "F1"; None for its key."""
    match = _FINDING.match(word)
    return f"F{int(match[1])}" if match is not None and match[1] else None


def collect_options(options: type) -> dict[str, OptionField]:
    """Collect the options of a dataclass, by field; those that several commands share come last. A
    field that is no option, but set by a command, is left out."""
    fields = dataclasses.fields(options)
    by_field = {field.name: field.metadata["entry"] for field in fields if field.metadata}
    return dict(sorted(by_field.items(), key=lambda pair: len(pair[1].only) > 1))


def collect_toml_keys(options: type, table: str) -> dict[str, tuple[type, ...]]:
    """Collect the keys of options in a table of pyproject.toml, with the types of their values."""
    return {
        entry.key or name: entry.toml
        for name, entry in collect_options(options).items()
        if entry.toml and table in entry.tables
    }


def fill_options(options: type[Options], given: Given, table: Mapping[str, Any]) -> Options:
    """Fill in the typed options: from the command line, else `table` of pyproject.toml, else the
    field's default."""
    values: dict[str, Any] = {}
    for field, entry in collect_options(options).items():
        key, value = entry.key or field, given.get(field)
        if value is None or value == ():
            value = table.get(key) if entry.toml else None
        if value is not None:
            values[field] = entry.check(key, value)
    return options(**values)
