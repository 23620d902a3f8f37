"""The plugin's markers as values: read from the nearest place, checked before any test runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

FIXTURE = "compilediag"
COUNTED = "compilediag.verdict"
"""The user property that every watched test has."""
MARKERS = {
    "zero_recompiles": "zero_recompiles(warmup=1): the test fails when torch.compile compiles a "
    "frame again after the first `warmup` steps, and names every cause",
    "compile_budget": "compile_budget(recompiles=, avoidable=, wanted=, graph_breaks=, frames=, "
    "compiles=, eager_fallbacks=, recordings=, own_code_only=False): the most that the test may "
    "have",
    "compile_baseline": "compile_baseline(lane): the test must do no worse than what "
    "compilediag.lock.json has for this configuration",
}
"""Each marker with what `pytest --markers` says of it."""

COUNTS = (
    *("recompiles", "avoidable", "wanted", "graph_breaks"),
    *("frames", "compiles", "eager_fallbacks", "recordings"),
)
"""Counts that a budget can name, in the order in which they are shown."""

_MAX_NAME_CHARS = 200

Level = Sequence[pytest.Mark]
"""The marks of one place: a parameter, a function, a class, a module."""


class BadMark(Exception):
    """A marker cannot be used as it is written; the message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of one test, by its markers."""

    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """The most of each count, over the whole test."""
    own_code_only: bool = False
    warmup: int | None = None
    """`zero_recompiles`: steps in which a recompile is allowed; None where it does not apply."""
    configuration: str | None = None
    fixture: bool = False
    """It has the fixture `compilediag`."""

    @property
    def any(self) -> bool:
        """There is something to judge."""
        return bool(self.limits) or self.warmup is not None or self.configuration is not None


def read_requirements(test: pytest.Item) -> Requirements:
    """Read the requirements of a test: of each marker, the one nearest to it.

    `zero_recompiles` and a budget of recompiles contradict each other; from different places, the
    nearer one holds.

    Raises:
        BadMark: a marker cannot be used as it is written.
    """
    levels = list(_iterate_levels(test))
    zero_at, zero = _find_nearest(levels, "zero_recompiles")
    budget_at, budget = _find_nearest(levels, "compile_budget")
    _, baseline = _find_nearest(levels, "compile_baseline")
    limits, own_code_only = ({}, False) if budget is None else _read_budget(budget)
    warmup = None
    if zero is not None:
        source = _quote_mark(zero)
        unknown = [name for name in zero.kwargs if name != "warmup"]
        if unknown or len(zero.args) + len(zero.kwargs) > 1:
            raise BadMark(f"{source}: it takes only warmup, a number of steps (default 1)")
        warmup = zero.args[0] if zero.args else zero.kwargs.get("warmup", 1)
        if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
            raise BadMark(f"{source}: warmup is a whole number of steps, not {warmup!r}")
    if zero is not None and budget is not None and "recompiles" in limits:
        if zero_at == budget_at:
            raise BadMark(
                f"{_quote_mark(zero)} allows no recompile and {_quote_mark(budget)} sets another "
                "budget of them at the same place: keep one of the two"
            )
        if budget_at < zero_at:
            warmup = None
        else:
            del limits["recompiles"]
    name = None
    if baseline is not None:
        name = baseline.args[0] if len(baseline.args) == 1 and not baseline.kwargs else None
        source = _quote_mark(baseline)
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise BadMark(f'{source}: name the configuration, as in compile_baseline("train")')
        # A test with parameters has one configuration for each of them.
        parameters = getattr(getattr(test, "callspec", None), "id", None)
        name = f"{name}[{parameters}]" if parameters is not None else name
        if len(name) > _MAX_NAME_CHARS:
            raise BadMark(f"{source}: the configuration's name is longer than {_MAX_NAME_CHARS}")
    return Requirements(limits, own_code_only, warmup, name, has_fixture(test))


def has_fixture(test: pytest.Item) -> bool:
    """True if the test, or one of its fixtures, has the fixture `compilediag`."""
    return FIXTURE in getattr(test, "fixturenames", ())


def is_marked(test: pytest.Item) -> bool:
    """True if the test has a marker, on itself or around it, or the fixture."""
    return has_fixture(test) or any(mark.name in MARKERS for mark in test.iter_markers())


def _iterate_levels(test: pytest.Item) -> Iterator[Level]:
    """Iterate the marks around a test, the nearest place first. pytest itself lists a parameter's
    marks after the function's, and a base class's before the class's."""
    for node in reversed(test.listchain()):
        marks = list(node.own_markers)
        if node is test:
            of_parameters = list(getattr(getattr(test, "callspec", None), "marks", ()))
            yield of_parameters
            yield [mark for mark in marks if not any(mark is param for param in of_parameters)]
        elif isinstance(node, pytest.Class):
            by_class: list[Level] = []
            owners: tuple[type, ...] = node.obj.__mro__
            for owner in owners:
                own: object = owner.__dict__.get("pytestmark", ())
                listed = cast("list[Any]", own if isinstance(own, list | tuple) else [own])
                by_class.append([getattr(mark, "mark", mark) for mark in listed])
            inherited = [mark for level in by_class for mark in level]
            yield [mark for mark in marks if mark not in inherited]
            yield from by_class
        else:
            yield marks


def _find_nearest(levels: Sequence[Level], name: str) -> tuple[int, pytest.Mark | None]:
    for index, level in enumerate(levels):
        matching = [mark for mark in level if mark.name == name]
        if len(matching) > 1:
            both = " and ".join(_quote_mark(mark) for mark in matching)
            raise BadMark(f"{both} stand at the same place: write one marker with both")
        if matching:
            return index, matching[0]
    return len(levels), None


def _read_budget(mark: pytest.Mark) -> tuple[dict[str, int], bool]:
    if mark.args:
        raise BadMark(f"{_quote_mark(mark)}: name the counts, as in compile_budget(recompiles=0)")
    values = dict(mark.kwargs)
    own_code_only = values.pop("own_code_only", False)
    if not isinstance(own_code_only, bool):
        raise BadMark(f"{_quote_mark(mark)}: own_code_only is True or False")
    if not values:
        raise BadMark(
            f"{_quote_mark(mark)} limits nothing: name at least one of {', '.join(COUNTS)}"
        )
    return check_counts(values, _quote_mark(mark)), own_code_only


def check_counts(values: Mapping[str, object], where: str) -> dict[str, int]:
    """Check names and numbers of counts, and sort them as `COUNTS` has them.

    Raises:
        BadMark: there is no such count, or a number is negative or no whole number.
    """
    for name, value in values.items():
        if name not in COUNTS:
            close = difflib.get_close_matches(name, COUNTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f" (there are {', '.join(COUNTS)})"
            raise BadMark(f"{where}: there is no count called {name}{hint}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadMark(f"{where}: {name} is a whole number of at least 0, not {value!r}")
    return {name: int(str(values[name])) for name in COUNTS if name in values}


def _quote_mark(mark: pytest.Mark) -> str:
    """Quote the marker as it is written in the source."""
    arguments = [repr(value) for value in mark.args]
    arguments += [f"{name}={value!r}" for name, value in mark.kwargs.items()]
    return f"{mark.name}({', '.join(arguments)})"


def list_shared(tests: Mapping[str, Requirements]) -> Iterator[str]:
    """List sentences about configurations that several tests have; `tests` by node id."""
    holders: dict[str, list[str]] = {}
    for node, required in tests.items():
        if required.configuration is not None:
            holders.setdefault(required.configuration, []).append(node)
    for name, nodes in holders.items():
        if len(nodes) > 1:
            yield f"{nodes[0]} and {nodes[1]} are both configuration {name!r}; name each its own"
