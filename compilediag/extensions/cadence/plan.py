"""The plan of a cadence probe: its variants, and when each group of periodic work fires in them.

A group is declared in the code, or named from outside by a template, which says how the period gets
into the program: `--entropy-every {n}` as arguments of the target, `env:ENTROPY_EVERY={n}` as a
variable of its environment.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.errors import UsageError
from compilediag.receipt.schema.cadence import GroupRecord
from compilediag.timeline.recorded import CadenceGroup

HOLE = "{n}"
NAME_LIMIT = 200
EXAMPLE = "--group 'entropy=--entropy-every {n}' or --group 'entropy=env:ENTROPY_EVERY={n}'"

_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class ProbeGroup(GroupRecord, frozen=True, kw_only=True):
    """One group of periodic work that the probe can move."""

    shift: int = 0
    """The program's number of a step minus ours; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """The user's choice: templates, and names of groups that the code declares."""

    templates: tuple[ProbeGroup, ...] = ()
    names: tuple[str, ...] = ()
    """Empty: every group of the code."""


def parse_groups(texts: Iterable[str], table: Mapping[str, str]) -> GroupSelection:
    """Parse the groups of the command line and of pyproject.toml; the command line wins by name.

    Raises:
        UsageError: a text is neither NAME nor NAME=TEMPLATE, or a name is there twice.
    """
    options: list[tuple[str, str | None]] = []
    for text in texts:
        name, equals, template = text.partition("=")
        options.append((_check_name(name.strip(), text), template if equals else None))
    counts = Counter(name for name, _ in options)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"there are two groups named {twice!r}: give each its own name")
    merged = {name: template for name, template in table.items() if name not in counts}
    merged.update((name, template) for name, template in options if template is not None)
    return GroupSelection(
        templates=tuple(parse_group(name, template) for name, template in merged.items()),
        names=tuple(name for name, template in options if template is None),
    )


def _check_name(name: str, text: str) -> str:
    if not name or name.startswith("-") or len(name) > NAME_LIMIT or not name.isprintable():
        raise UsageError(
            f"--group {text!r} does not begin with the group's name: write {EXAMPLE}, or the name "
            "alone of a group that the code declares"
        )
    return name


def parse_group(name: str, text: str) -> ProbeGroup:
    """Parse the group of a template.

    Raises:
        UsageError: the template has no `{n}`, or cannot be read.
    """
    _check_name(name, f"{name}={text}")
    if HOLE not in text:
        raise UsageError(
            f"the template {text!r} of group {name!r} has no {{n}}, the place for the period: "
            f"write {EXAMPLE}"
        )
    if text.startswith("env:"):
        match = _ENVIRONMENT.fullmatch(text)
        if match is None or HOLE not in match[2]:
            raise UsageError(f"the template {text!r} of group {name!r} is not env:VARIABLE={{n}}")
        return ProbeGroup(name=name, origin="environment", template=text)
    try:
        shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the template of group {name!r} cannot be read: {error}") from error
    return ProbeGroup(name=name, origin="argument", template=text)


def select_groups(
    selection: GroupSelection, declared: Sequence[CadenceGroup]
) -> tuple[ProbeGroup, ...]:
    """Select the groups to move: those of the code by name, then those of the templates.

    Raises:
        UsageError: a name is unknown or there twice.
    """
    known = {group.name: group for group in declared}
    for name in selection.names:
        if name not in known:
            listed = ", ".join(repr(declared_name) for declared_name in known) or "none"
            raise UsageError(
                f"the code declares no group named {name!r}; it declares {listed}. For a script "
                f"that does not use compilediag: {EXAMPLE}"
            )
    for group in selection.templates:
        if group.name in known:
            raise UsageError(
                f"the code declares a group named {group.name!r} itself: leave the template of "
                "that name away, or give it another name"
            )
    names = selection.names or known
    chosen = [group for group in declared if group.name in names]
    own = tuple(
        ProbeGroup(name=i.name, origin="code", own_every=i.own_every, shift=i.shift or 0)
        for i in chosen
    )
    return own + selection.templates


def set_argument(words: Sequence[str], template: str, period: int) -> tuple[str, ...]:
    """Put the template into TARGET and its arguments: an option that is there already gets the new
    value where it stands, any other is added at the end."""
    fixed = 2 if words and words[0] in ("-m", "-c") else 1
    arguments = list(words[fixed:])
    parts = shlex.split(template)
    while parts:
        part = parts.pop(0)
        if part.startswith("-") and "=" not in part and parts and HOLE in parts[0]:
            value = parts.pop(0).replace(HOLE, str(period))
            _replace(arguments, part, value, [part, value])
        elif HOLE in part and "=" in part:
            key, _, value = part.partition("=")
            value = value.replace(HOLE, str(period))
            _replace(arguments, key, value, [f"{key}={value}"])
        else:
            arguments.append(part.replace(HOLE, str(period)))
    return (*words[:fixed], *arguments)


def _replace(arguments: list[str], key: str, value: str, otherwise: list[str]) -> None:
    """Gives every `key VALUE` and `key=VALUE` the new value; adds `otherwise` when there is none.

    Both ways of writing belong to one option only where the key is an option ("--every").
    """
    replaced = False
    for index, word in enumerate(arguments):
        if word.startswith(f"{key}="):
            arguments[index], replaced = f"{key}={value}", True
        elif word == key and key.startswith("-") and index + 1 < len(arguments):
            arguments[index + 1], replaced = value, True
    if not replaced:
        arguments += otherwise


# --- groups --------------------------------------------------------------------------------------

VariantKind = Literal["configured", "control", "alone", "collision"]

DEFAULT_STEPS = 60
"""Steps of every variant unless the user sets another number."""

MIN_FIRES = 3
MAX_FIRES = 8
"""Firings of each group after warm-up: one first hit, and enough later ones for a median."""

QUIET = 3
"""Steps that do not fire between warm-up and the first firing, and between two firings."""

OFF_TEMPLATE = 10_000_000
"""A period beyond the last step: "off" for a program that takes a period only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """When groups fire: in the steps `first`, `first + every`, and so on."""

    steps: int
    """Finished steps of the configured run: every variant is to make as many."""
    warmup: int
    every: int
    first: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One run of the program: these groups fire, every other one is off."""

    kind: VariantKind
    on: tuple[ProbeGroup, ...] = ()

    @property
    def name(self) -> str:
        """As it is shown: the group's name for one alone."""
        return self.on[0].name if self.kind == "alone" else self.kind


def make_plan(steps: int, warmup: int) -> Plan:
    """Make the plan for a program that makes so many steps.

    The more room there is, the more often groups fire, up to `MAX_FIRES`.

    Raises:
        UsageError: there is no room for `MIN_FIRES` firings after the warm-up.
    """
    shortest = warmup + QUIET
    for fires in range(MAX_FIRES, MIN_FIRES - 1, -1):
        # A program that counts from 0 fires at multiples of the period: the last one must fit too.
        every = (steps - 1) // fires
        if every >= shortest + 1:
            return Plan(steps, warmup, every, min(shortest, every - 1))
    if steps == 0:
        raise UsageError(
            "no step was seen in the configured run, so nothing can be moved between steps: mark "
            "them with cd.step(), or see docs/reference/python_api.md for what counts as a step"
        )
    raise UsageError(
        f"the program made {steps} steps, the first {warmup} of them warm-up: "
        f"{compute_min_steps(warmup)} steps are needed for every group to fire {MIN_FIRES} times "
        "after it. Let it make more, with --steps and with its own option for the number of steps"
    )


def compute_min_steps(warmup: int) -> int:
    """Compute the steps that a program must make to be probed."""
    return MIN_FIRES * (warmup + QUIET + 1) + 1


def list_variants(groups: Sequence[ProbeGroup]) -> tuple[Variant, ...]:
    """List what runs after the configured variant, in order; of one group there is no collision."""
    if not groups:
        return ()
    alone = (Variant("alone", (group,)) for group in groups)
    together = (Variant("collision", tuple(groups)),) if len(groups) > 1 else ()
    return (Variant("control"), *alone, *together)


def count_warmup_steps(compiled: Iterable[int], steps: int, configured: int | None) -> int:
    """Count the leading steps that are not like the others: as configured by the user, else those
    that compile, and the one after. A program that compiles in every step is not all warm-up."""
    if configured is not None:
        return configured
    compiled, leading = frozenset(compiled), 0
    while leading in compiled:
        leading += 1
    return min(leading + 1, max(2, steps // 4))
