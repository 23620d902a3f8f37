"""The fixture `compilediag`: blocks in which compiling is expected, counted or forbidden."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from compilediag.pytest_plugin.blocks import Block, judge_exact, judge_frames, judge_steady
from compilediag.pytest_plugin.judge_test import Problem
from compilediag.pytest_plugin.marks import BadMark, checked_counts
from compilediag_harness.torch_internals.torch_api import stance

if TYPE_CHECKING:
    from compilediag.diagnosis.findings import Finding
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.runs.watch import WatchResult


class Ledger:
    """What torch.compile does in one test, in all of its threads.

    Blocks may be nested, and may overlap in concurrent tasks: each is a stretch of time.
    """

    def __init__(self, seen: WatchResult, fail: Callable[[Sequence[Problem], str], None]) -> None:
        """`fail` ends the test with these problems, told under a headline."""
        self._seen = seen
        self._fail = fail
        self.warmups: list[tuple[float, float]] = []
        """The warm-up blocks that have ended: begin and end."""
        self.judged = False
        """A block has asked for something: the test must not be blind."""

    @contextmanager
    def warmup(self) -> Generator[None]:
        """A block in which compiling is expected: `zero_recompiles` counts nothing of it."""
        start = self._seen.now()
        try:
            yield
        finally:
            self.warmups.append((start, self._seen.now()))

    @contextmanager
    def steady(self) -> Generator[None]:
        """A block in which nothing may compile, of any kind, in any thread; the failure at its end
        lists every compile and every cause. Something must have compiled in the test before, and
        a compiled callable must be called inside."""
        block = self._begin("steady()")
        yield
        self._end(block, judge_steady(self._seen.so_far(), self._closed(block)))

    @contextmanager
    def expect(self, **counts: int) -> Generator[None]:
        """A block with exactly these counts: `expect(frames=1, recompiles=0)`.

        Raises:
            pytest.UsageError: a count does not exist, or is no number of at least 0.
        """
        asked = _checked("expect", counts)
        block = self._begin(f"expect({', '.join(f'{k}={v}' for k, v in counts.items())})")
        yield
        self._end(block, judge_exact(self._seen.so_far(), self._closed(block), asked))

    def assert_frames(self, frames: Mapping[str, int], *, others: bool = False) -> None:
        """Asserts how often each function has been compiled since the test began, by its name.

        A function that is not named must not have been compiled, unless `others` allows it.
        """
        self.judged = True
        __tracebackhide__ = True
        for name, number in frames.items():
            if isinstance(number, bool) or number < 0:
                raise pytest.UsageError(f"assert_frames: {name!r} is compiled 0 times or more")
        problems = judge_frames(self._seen.so_far(), frames, others=others)
        if problems:
            self._fail(problems, f"assert_frames() at {_caller()}")

    @property
    def receipt(self) -> Receipt:
        """The receipt of the test so far."""
        return self._seen.so_far().receipt

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules say of the test so far, most expensive first."""
        return self._seen.so_far().findings

    def _begin(self, name: str) -> Block:
        self.judged = True
        return Block(name, _caller(), self._seen.now(), self._seen.calls, stance())

    def _closed(self, block: Block) -> Block:
        return block.closed(self._seen.now(), self._seen.calls, stance())

    def _end(self, block: Block, problems: Sequence[Problem]) -> None:
        if problems:
            self._fail(problems, f"{block.name} at {block.where}")


def _checked(what: str, counts: Mapping[str, object]) -> dict[str, int]:
    if not counts:
        raise pytest.UsageError(f"{what}() expects nothing: name a count, as in {what}(frames=1)")
    try:
        return checked_counts(counts, f"{what}()")
    except BadMark as error:
        raise pytest.UsageError(str(error)) from None


def _caller() -> str:
    """The line of the test that is running, as `test_model.py:12`."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    here = (__file__, contextmanager.__code__.co_filename)
    while frame.f_back is not None and frame.f_code.co_filename in here:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
