"""A change of a run: what a trial applies, and how its line reads that a user would write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from compilediag.fixes.codemods.edit import Edit
from compilediag_harness.wire import (
    ArgumentChange,
    CompileOption,
    Location,
    ObjectChange,
    SettingChange,
    TrialPlan,
)

ChangeKind = Literal["environment", "configuration", "call", "object", "source"]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that may remove a finding."""

    kind: ChangeKind
    """How it is applied: a variable of the environment, an option of torch's configuration, or a
    change where the program compiles or calls, of an object that it makes, or an edit of its
    files."""
    line: str
    """What the user writes: a line for the shell, or of the program."""
    risk: str
    """What else it changes."""
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[SettingChange, ...] = ()
    options: tuple[CompileOption, ...] = ()
    arguments: tuple[ArgumentChange, ...] = ()
    edits: tuple[Edit, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    left: int = 0
    """Recompiles of the finding that remain with it, as is known."""
    unlimits: bool = False
    """It compiles what ran eager at the recompile limit: recompiles there are no worse."""
    disables: str = ""
    """The function that it leaves to Python: graphs are split where it is called."""
    searches: bool = False
    """A number in it is more than is needed: what is offered has the number that a run needed."""

    @property
    def needs_edit(self) -> bool:
        """Whether the program has to be edited for it."""
        return self.kind != "environment"

    @property
    def leaves_out(self) -> bool:
        """Whether something of the program is not computed any more: a message."""
        return any(edit.kind == "unless_compiling" for edit in self.edits)

    @property
    def labels(self) -> tuple[str, ...]:
        """Its parts as a trial reports them when they were applied; none of variables."""
        return plan_of([self]).labels


def plan_of(
    changes: Iterable[Change], *, seed: int | None = None, stance: str | None = None
) -> TrialPlan:
    """What a trial of the changes applies, but for the variables."""
    chosen = tuple(changes)
    return TrialPlan(
        settings=_each(item for change in chosen for item in change.settings),
        compile_options=_each(item for change in chosen for item in change.options),
        arguments=_each(item for change in chosen for item in change.arguments),
        objects=_each(item for change in chosen for item in change.objects),
        stance=stance,
        seed=seed,
    )


def located(change: Change, functions: Iterable[Location]) -> Change:
    """The change with the functions of a run: a receipt names files as its reader finds them."""
    called = tuple(functions)
    arguments = tuple(
        replace(item, function=_same_function(item.function, called)) for item in change.arguments
    )
    return replace(change, arguments=arguments)


def _same_function(wanted: Location, called: Iterable[Location]) -> Location:
    for place in called:
        same = (place.line, place.function) == (wanted.line, wanted.function)
        if same and f"/{place.file}".endswith(f"/{wanted.file.lstrip('/')}"):
            return place
    return wanted


_Part = TypeVar("_Part")


def _each(items: Iterable[_Part]) -> tuple[_Part, ...]:
    return tuple(dict.fromkeys(items))
