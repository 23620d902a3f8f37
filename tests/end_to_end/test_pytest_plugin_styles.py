"""The ways tests are written: unittest, asyncio, subtests, parameters, classes, xfail."""

import pytest
from plugin_runs import failure_of, outcomes, run, together

pytest_plugins = ["pytester"]
pytestmark = [
    pytest.mark.usefixtures("forked"),
    pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="subtests came with pytest 9"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> pytest.RunResult:
    return together(tmp_path_factory.mktemp("styles"), test_styles=STYLES)


STYLES = """
    import asyncio
    import unittest

    zero = pytest.mark.zero_recompiles

    @zero
    class TestUnit(unittest.TestCase):
        def test_unit_red(self): sizes(2, 3)
        def test_unit_green(self): sizes(2, 2)
        @pytest.mark.zero_recompiles(warmup=2)
        def test_unit_method(self): sizes(2, 3)
        def test_unit_own(self):
            sizes(2, 3)
            self.fail("mine")
        def test_unit_skipped(self): self.skipTest("no")
        def test_unit_subtests(self):
            for number in range(2):
                with self.subTest(number=number):
                    assert number == 0
            sizes(2, 3)

    class TestFixture(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def ledger(self, compilediag):
            self.compilediag = compilediag

        def test_unit_fixture(self):
            compiled = sizes(2)
            with self.compilediag.steady():
                sizes(3, compiled=compiled)

    @zero
    class TestAsync(unittest.IsolatedAsyncioTestCase):
        async def test_unit_async(self): await asyncio.to_thread(sizes, 2, 3)

    @zero
    def test_asyncio():
        async def main():
            await asyncio.gather(asyncio.to_thread(sizes, 2, 3), asyncio.sleep(0))
        asyncio.run(main())

    def test_overlapping_blocks(compilediag):
        compiled = sizes(2)

        async def steady(wait, go):
            with compilediag.steady():
                sizes(2, compiled=compiled)
                go.set()
                await wait.wait()

        async def main():
            first, second = asyncio.Event(), asyncio.Event()
            await asyncio.gather(steady(second, first), steady(first, second))

        asyncio.run(main())

    @zero
    class TestBase:
        def test_class(self): sizes(2, 3)

    class TestDerived(TestBase):
        pytestmark = pytest.mark.zero_recompiles(warmup=2)

    @zero
    @pytest.mark.parametrize(
        "number", [2, 3, pytest.param(4, marks=pytest.mark.zero_recompiles(warmup=2))]
    )
    def test_parameter(number): sizes(2, number)

    @pytest.mark.xfail(strict=True)
    @zero
    def test_ratchet_holds(): sizes(2, 3)

    @pytest.mark.xfail(strict=True)
    @zero
    def test_ratchet_broken(): sizes(2, 2)

    @zero
    def test_own_failure():
        sizes(2, 3)
        assert "mine" == ""

    @zero
    def test_skipped():
        sizes(2, 3)
        pytest.skip("no")

    @pytest.fixture
    def broken():
        raise KeyError("setup")

    @zero
    def test_setup_fails(broken): pass

    @pytest.fixture
    def broken_later():
        yield
        raise KeyError("teardown")

    @zero
    def test_teardown_fails(broken_later): sizes(2, 2)

    def test_subtests(subtests, compilediag):
        compiled = sizes(2)
        for number in (2, 3, 2):
            with subtests.test(number=number), compilediag.steady():
                sizes(number, compiled=compiled)
"""


def test_every_style(done: pytest.RunResult) -> None:
    """Marked, watched and judged alike; the test's own failure is shown first, and one failure is
    told for each test."""
    text = done.stdout.str()
    found = outcomes(done, "test_styles.py")
    assert {name: word for name, word in found.items() if word not in {"PASSED", "FAILED"}} == {
        "test_ratchet_holds": "XFAIL",
        "test_setup_fails": "ERROR",
        "test_teardown_fails": "ERROR",
    }
    assert {name for name, word in found.items() if word == "PASSED"} == {
        "TestUnit::test_unit_green",
        "TestUnit::test_unit_method",
        "TestDerived::test_class",
        "test_overlapping_blocks",
        "test_parameter[2]",
        "test_parameter[4]",
    }
    assert "contains 1 failed subtest" in failure_of(done, "test_subtests")
    assert "steady() at test_styles.py" in text.partition("(number=3) __")[2]
    assert "SUBFAILED(number=1) test_styles.py::TestUnit::test_unit_subtests" in text
    red = "1 recompile after a warm-up of 1 step; zero_recompiles allows none"
    judged = ("test_unit_red", "test_unit_async", "test_asyncio", "test_class", "test_parameter[3]")
    for name in judged:
        assert failure_of(done, name).startswith(f"compilediag: {red}"), name
    for name in ("test_unit_own", "test_own_failure"):
        told = failure_of(done, name)
        assert told.index("mine") < told.index("Captured compilediag call") < told.index(red)
    assert "[XPASS(strict)]" in failure_of(done, "test_ratchet_broken")
    assert "steady() at test_styles.py" in failure_of(done, "test_unit_fixture")
    assert "2 skipped" in done.outlines[-1]
    summary = text.rpartition(" compilediag ==")[2].partition("short test summary")[0]
    assert "test_own_failure: 1 recompile · 0 graph breaks · 1 frame · 2 compiles" in summary
    assert "skipped" not in summary
    assert summary.count("test_subtests:") == 1


LOGS = """
    import logging

    @pytest.mark.compile_budget(frames=9)
    def test_logs(caplog, subtests):
        logging.getLogger("mine").warning("kept")
        with subtests.test("inner"):
            sizes(2, 3)
            assert "inner" == ""
        print("loggers:", sorted({record.name for record in caplog.records}))
        assert "outer" == ""
    """


@pytest.mark.parametrize("asked", ["", "recompiles"])
def test_captured_logs_are_those_of_a_plain_pytest(asked: str, pytester, monkeypatch) -> None:
    """In `caplog`, in the sections of a failure and in those of a subtest: pytest 9 itself listens
    to torch's structured trace, and nothing that watching puts in force is added to it."""
    if asked:
        monkeypatch.setenv("TORCH_LOGS", asked)
    plain = run(pytester, LOGS, "-p", "no:compilediag", "-W", "default").stdout.str()
    watched = run(pytester, LOGS).stdout.str()
    assert logged(watched) == logged(plain)
    assert any("torch.__trace" in line for line in logged(watched))
    assert ("torch._dynamo.guards.__recompiles" in watched) == bool(asked)


def logged(output: str) -> list[str]:
    """The lines of all captured records, and the names in `caplog`."""
    return [line for line in output.splitlines() if line.startswith(("DEBUG ", "loggers:"))]
