"""What it takes to evaluate the guards of one compile, and those that run Python code for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_PYTHON = "LAMBDA_GUARD"
"""torch's leaf that calls a Python function; the others are C++ throughout."""


def evaluations_us(
    manager: Any, scope: Mapping[str, Any], most: int, budget_ns: int
) -> list[float]:
    """Microseconds of each of some evaluations of guards that hold, with the locals they were built
    with: `most`, or three where these took longer than the budget. Empty where they cannot be
    evaluated, or do not hold."""
    # torch itself evaluates them as often here: to see that they hold, and for its own figure.
    check = getattr(getattr(manager, "root", None), "check", None)
    if check is None:
        return []
    taken: list[float] = []
    began = time.perf_counter_ns()
    while len(taken) < most:
        before = time.perf_counter_ns()
        holds = check(scope)
        after = time.perf_counter_ns()
        if not holds:
            return []
        taken.append((after - before) / 1000)
        if len(taken) >= 3 and after - began > budget_ns:
            break
    return taken


class Evaluated(NamedTuple):
    """What torch evaluates for one compile: fewer than its Guard objects, some of which need
    nothing to be evaluated."""

    kinds: Counter[str]
    """By torch's names of its leaf guards."""
    python_texts: tuple[str, ...]
    """The first of those that call a Python function each time, as torch writes them."""

    @property
    def in_python(self) -> int:
        """How many call a Python function."""
        return self.kinds[_PYTHON]


def evaluated(manager: Any, shown: int) -> Evaluated | None:
    """The leaf guards of one compile; None where they cannot be read."""
    root = getattr(manager, "root", None)
    if not hasattr(root, "get_leaf_guards"):
        return None
    kinds, texts = Counter[str](), list[str]()
    for leaf in _leaves(root):
        kind = type(leaf).__name__
        kinds[kind] += 1
        if kind == _PYTHON and len(texts) < shown:
            texts += leaf.verbose_code_parts()[:1]
    return Evaluated(kinds, tuple(texts))


def _leaves(root: Any) -> Iterator[Any]:
    yield from getattr(root, "get_epilogue_lambda_guards", tuple)()
    stack = [root]
    while stack:
        manager = stack.pop()
        if manager is None:
            continue
        yield from manager.get_leaf_guards()
        if hasattr(manager, "get_key_value_managers"):
            for pair in manager.get_key_value_managers().values():
                stack += pair
        stack += manager.get_child_managers()
