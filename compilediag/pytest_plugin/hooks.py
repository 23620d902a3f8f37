"""Watched tests: the pytest hooks around them, and each from its setup to the end of its call."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from compilediag.diagnosis.findings import Finding
from compilediag.pytest_plugin.configurations import judge_config, judge_limits, open_baseline
from compilediag.pytest_plugin.judge import (
    Block,
    CompileFailure,
    JudgedPart,
    Problem,
    find_blindness,
    format_failure,
    judge,
    judge_exact,
    judge_frames,
    judge_steady,
)
from compilediag.pytest_plugin.marks import (
    COUNTED,
    COUNTS,
    BadMark,
    Requirements,
    check_counts,
    list_shared,
    read_requirements,
)
from compilediag.pytest_plugin.report import write_test_receipt
from compilediag.pytest_plugin.settings import SessionSettings, read_settings, set_cache_folder
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.watch import WatchResult, watch
from compilediag.views.graphs import list_served
from compilediag.views.style import RenderOptions
from compilediag_harness.torch_internals.torch_calls import get_stance


class CompileFixture:
    """torch.compile in one test, in all of its threads.

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
        _fail(judge_steady(self._run.snapshot(), self._close(block)), block.title)

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
            expected = check_counts(counts, "expect()")
        except BadMark as error:
            raise pytest.UsageError(str(error)) from None
        block = self._begin(f"expect({', '.join(f'{k}={v}' for k, v in counts.items())})")
        yield
        problems = judge_exact(self._run.snapshot(), self._close(block), expected)
        _fail(problems, block.title)

    def assert_frames(self, frames: Mapping[str, int], *, others: bool = False) -> None:
        """Assert how often each function has been compiled since the test began, by its name.

        A function that is not named must not have been compiled, unless `others` allows it.

        Raises:
            CompileFailure: a function was compiled more or less often, or the test is blind.
            pytest.UsageError: a number is negative or a truth.
        """
        self.judged = True
        __tracebackhide__ = True
        for name, times in frames.items():
            if isinstance(times, bool) or times < 0:
                raise pytest.UsageError(f"assert_frames: {name!r} is compiled 0 times or more")
        problems = judge_frames(self._run.snapshot(), frames, others=others)
        _fail(problems, f"assert_frames() at {_find_caller()}")

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
        return Block(name, _find_caller(), self._run.now(), self._run.calls, get_stance())

    def _close(self, block: Block) -> Block:
        return block.close(self._run.now(), self._run.calls, get_stance())


def _fail(problems: Sequence[Problem], block: str) -> None:
    """End the test if there are problems, under the name of the block."""
    __tracebackhide__ = True
    if problems:
        raise CompileFailure(format_failure(problems, block))


def _find_caller() -> str:
    """Find the line of the test that is running, as `test_model.py:12`."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    # Frames of contextlib and of this file stand between a `with` line of the test and its block.
    here = (__file__, contextmanager.__code__.co_filename)
    while frame.f_back is not None and frame.f_code.co_filename in here:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# --- the fixture ---------------------------------------------------------------------------------

SECTION = "compilediag"


class WatchedTest:
    """One test that is watched: what it compiles, and what its markers require."""

    def __init__(
        self, test: pytest.Item, required: Requirements, settings: SessionSettings
    ) -> None:
        self._test = test
        self._required = required
        self._settings = settings
        self._watch: watch | None = None
        self._run: WatchResult | None = None
        self._improvements = 0
        self.fixture: CompileFixture | None = None

    def open(self) -> None:
        """Begin to watch; torch first forgets what earlier tests compiled if this one is judged."""
        self.close()
        is_judged = self._required.any or self._required.fixture or self._settings.limits
        # Without Dynamo nothing is to be forgotten, and the program alone imports it.
        if is_judged and "torch._dynamo" in sys.modules:
            sys.modules["torch"].compiler.reset()
        root = str(self._test.config.rootpath)
        folders = (root, os.path.dirname(str(self._test.path)))
        configuration = self._required.configuration or self._test.nodeid
        self._watch = watch(root=root, user_roots=folders, lane=configuration)
        self._run = self._watch.__enter__()
        self.fixture = CompileFixture(self._run)

    def judge(self, failed: BaseException | None) -> None:
        """Judge a test after its call: what its markers forbid fails it unless it `failed` anyway.

        Raises:
            CompileFailure: with everything that is wrong.
        """
        run, fixture = self._run, self.fixture
        if run is None or fixture is None:
            return
        self._stop(failed)
        if failed is None:
            # `unittest` raises nothing out of its call: neither a failure nor that it was skipped.
            inside: Any = getattr(self._test, "_excinfo", None)
            failed = inside[0].value if inside else None
        if isinstance(failed, pytest.skip.Exception | pytest.exit.Exception | KeyboardInterrupt):
            return
        try:
            problems = self._find_problems(run, fixture, passed=failed is None)
            text = format_failure(problems)
            # The counts, which pytest-xdist and junitxml carry on, and the receipt.
            part, properties = JudgedPart(run), self._test.user_properties
            properties.append((COUNTED, run.receipt.verdict))
            counts = ((name, part.get_count(name)) for name in COUNTS)
            properties += [(f"compilediag.{name}", n) for name, n in counts if n is not None]
            if serves := list_served(run.receipt, RenderOptions()):
                properties.append(("compilediag.serves", "\n".join(serves)))
            if self._improvements:
                properties.append(("compilediag.improvements", self._improvements))
            properties.append(("compilediag.judged", "failed" if problems else "passed"))
            if self._settings.report is not None:
                write_test_receipt(run, self._test.nodeid, self._settings.report)
        except Exception as error:
            if self._required.any or fixture.judged:
                raise
            # A test that only shows its counts never fails for a fault of ours.
            fault = "".join(traceback.format_exception_only(error)).strip()
            text = f"compilediag: a fault of its own: {fault}"
            self._test.add_report_section("call", SECTION, text)
            return
        if problems and failed is None:
            raise CompileFailure(text)
        if problems:
            self._test.add_report_section("call", SECTION, text)

    def close(self) -> None:
        """Stop watching, whatever happened."""
        self._stop(None)
        self._run = self.fixture = None

    def _stop(self, failed: BaseException | None) -> None:
        watching, self._watch = self._watch, None
        if watching is not None:
            trace = failed.__traceback__ if failed is not None else None
            watching.__exit__(type(failed) if failed is not None else None, failed, trace)

    def _find_problems(
        self, run: WatchResult, fixture: CompileFixture, *, passed: bool
    ) -> list[Problem]:
        """Find all that is wrong; limits and baseline are for tests that `passed` themselves."""
        required, settings = self._required, self._settings
        problems: list[Problem] = []
        if required.any:
            problems = judge(run, required, fixture.warmups)
        elif fixture.judged:
            problems = find_blindness(run.receipt, run.calls, may_be_quiet=True)
        if not passed or any(problem.blind for problem in problems):
            return problems
        if settings.limits and run.receipt.compile.graphs:
            problems += judge_limits(run, settings)
        if required.configuration is not None and not (problems and settings.update):
            worse, self._improvements = judge_config(self._test.config, run, required, settings)
            problems += worse
        return problems


_WATCHED = pytest.StashKey[WatchedTest]()


def watch_tests(config: pytest.Config, collected: Sequence[pytest.Item]) -> None:
    """Prepare these tests to be watched, and put the hooks in place.

    Raises:
        pytest.UsageError: with every marker and setting that cannot be used.
    """
    settings = read_settings(config)
    tests: dict[str, Requirements] = {}
    wrong: list[str] = []
    for test in collected:
        try:
            tests[test.nodeid] = required = read_requirements(test)
        except BadMark as error:
            wrong.append(f"{test.nodeid}: {error}")
            continue
        test.stash[_WATCHED] = WatchedTest(test, required, settings)
    wrong += list_shared(tests)
    if wrong:
        raise pytest.UsageError("compilediag: " + "\n  ".join(wrong))
    if any(required.configuration is not None for required in tests.values()):
        open_baseline(config, settings)
    set_cache_folder(config)
    if not config.pluginmanager.has_plugin(_Hooks.NAME):
        config.pluginmanager.register(_Hooks(), _Hooks.NAME)


def get_fixture(request: pytest.FixtureRequest) -> CompileFixture:
    """Get the fixture of the test that requests it.

    Raises:
        pytest.UsageError: it was requested after the test had begun.
    """
    test = request.node.stash.get(_WATCHED, None)
    if test is None or test.fixture is None:
        raise pytest.UsageError(
            "the fixture `compilediag` must be an argument of the test or of one of its fixtures: "
            "requested later, it has not seen what the test compiled"
        )
    return test.fixture


class _Hooks:
    """Innermost wrappers: what pytest puts around a test (log capture, xfail) is around these."""

    NAME = "compilediag-watched-tests"

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        test.open()
        try:
            return (yield)
        except BaseException:
            test.close()
            raise

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        try:
            result = yield
        except BaseException as error:
            test.judge(error)
            raise
        test.judge(None)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        try:
            return (yield)
        finally:
            test.close()
