"""The fixture `compilediag`: blocks in which compiling is expected, counted or forbidden."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from compilediag.diagnosis.findings import Finding
from compilediag.pytest_plugin.judge import Block, judge_exact, judge_frames, judge_steady
from compilediag.pytest_plugin.marks import BadMark, checked_counts
from compilediag.pytest_plugin.problems import CompileFailure, Problem, failure_text
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.watch import WatchResult
from compilediag_harness.torch_internals.torch_calls import stance


class CompileFixture:
    """What torch.compile does in one test, in all of its threads.

    Blocks may be nested, and may overlap in concurrent tasks: each is an interval of time.
    """

    def __init__(self, run: WatchResult) -> None:
        self._run = run
        self.warmups: list[tuple[float, float]] = []
        """The warm-up blocks that have ended: begin and end."""
        self.judged = False
        """A block was judged: the test must not be blind."""

    @contextmanager
    def warmup(self) -> Generator[None]:
        """A block in which compiling is expected: `zero_recompiles` counts nothing of it."""
        start = self._run.now()
        try:
            yield
        finally:
            self.warmups.append((start, self._run.now()))

    @contextmanager
    def steady(self) -> Generator[None]:
        """A block in which nothing may compile, of any kind, in any thread; the failure at its end
        lists every compile and every cause. Something must have compiled in the test before, and
        a compiled callable must be called inside."""
        block = self._begin("steady()")
        yield
        _fail(judge_steady(self._run.snapshot(), self._closed(block)), block.title)

    @contextmanager
    def expect(self, **counts: int) -> Generator[None]:
        """A block with exactly these counts: `expect(frames=1, recompiles=0)`.

        Raises:
            pytest.UsageError: a count does not exist, or is no number of at least 0.
        """
        if not counts:
            raise pytest.UsageError(
                "expect() expects nothing: name a count, as in expect(frames=1)"
            )
        try:
            expected = checked_counts(counts, "expect()")
        except BadMark as error:
            raise pytest.UsageError(str(error)) from None
        block = self._begin(f"expect({', '.join(f'{k}={v}' for k, v in counts.items())})")
        yield
        problems = judge_exact(self._run.snapshot(), self._closed(block), expected)
        _fail(problems, block.title)

    def assert_frames(self, frames: Mapping[str, int], *, others: bool = False) -> None:
        """Asserts how often each function has been compiled since the test began, by its name.

        A function that is not named must not have been compiled, unless `others` allows it.
        """
        self.judged = True
        __tracebackhide__ = True
        for name, times in frames.items():
            if isinstance(times, bool) or times < 0:
                raise pytest.UsageError(f"assert_frames: {name!r} is compiled 0 times or more")
        problems = judge_frames(self._run.snapshot(), frames, others=others)
        _fail(problems, f"assert_frames() at {_caller()}")

    @property
    def receipt(self) -> Receipt:
        """The receipt of the test so far."""
        return self._run.snapshot().receipt

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the test so far, most expensive first."""
        return self._run.snapshot().findings

    def _begin(self, name: str) -> Block:
        self.judged = True
        return Block(name, _caller(), self._run.now(), self._run.calls, stance())

    def _closed(self, block: Block) -> Block:
        return block.closed(self._run.now(), self._run.calls, stance())


def _fail(problems: Sequence[Problem], block: str) -> None:
    """Ends the test if there are problems, under the name of the block."""
    __tracebackhide__ = True
    if problems:
        raise CompileFailure(failure_text(problems, block))


def _caller() -> str:
    """The line of the test that is running, as `test_model.py:12`."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    here = (__file__, contextmanager.__code__.co_filename)
    while frame.f_back is not None and frame.f_code.co_filename in here:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
