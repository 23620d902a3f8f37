"""The markers as values: the nearest one holds, and what cannot be meant is refused in time."""

import pytest
from plugin_runs import ALONE

from compilediag.pytest_plugin import hooks
from compilediag.pytest_plugin.marks import Requirements

pytest_plugins = ["pytester"]

IMPORTED = hooks
"""pytester would import what the plugin needs anew for each run."""

WRONG = {
    "compile_budget(recompile=1)": "no count called recompile; did you mean recompiles?",
    "compile_budget(sausages=1)": "no count called sausages (there are recompiles, avoidable, ",
    "compile_budget(frames=-1)": "frames is a whole number of at least 0, not -1",
    "compile_budget(frames=1.5)": "frames is a whole number of at least 0, not 1.5",
    "compile_budget(frames=True)": "frames is a whole number of at least 0, not True",
    "compile_budget(3)": "name the counts, as in compile_budget(recompiles=0)",
    "compile_budget()": "limits nothing: name at least one of recompiles",
    "compile_budget(own_code_only=True)": "limits nothing",
    "compile_budget(frames=1, own_code_only=2)": "own_code_only is True or False",
    "zero_recompiles(warmup=-1)": "warmup is a whole number of steps, not -1",
    "zero_recompiles(warmup='two')": "warmup is a whole number of steps, not 'two'",
    "zero_recompiles(steps=2)": "it takes only warmup, a number of steps (default 1)",
    "zero_recompiles(1, warmup=2)": "it takes only warmup",
    "compile_baseline": 'name the configuration, as in compile_baseline("train")',
    "compile_baseline('')": "name the configuration",
    "compile_baseline('a\\nb')": "name the configuration",
    "compile_baseline(lane='x')": "name the configuration",
    "compile_baseline('x' * 300)": "longer than 200",
}

READ = """
    import pytest

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items):
        from compilediag.pytest_plugin.marks import read_requirements
        for item in items:
            print(item.nodeid.partition("::")[2], read_requirements(item))
"""


def requirements(pytester: pytest.Pytester, text: str) -> dict[str, Requirements]:
    """The requirements of each test of a file, by its name."""
    pytester.makeconftest(READ)
    pytester.makepyfile(text)
    done = pytester.runpytest_inprocess("--collect-only", "-q", "-s", "-p", "no:compilediag")
    told = [line.split(" ", 1) for line in done.outlines if " Requirements(" in line]
    return {name: eval(value, {"Requirements": Requirements}) for name, value in told}


def test_every_wrong_marker_is_told_at_once(pytester: pytest.Pytester) -> None:
    """One error before anything runs: each marker as it is written, and what would do."""
    tests = [
        f"@pytest.mark.{mark}\ndef test_{number}():\n    open('ran', 'w')\n"
        for number, mark in enumerate(WRONG)
    ]
    pytester.makepyfile("import pytest\n" + "\n".join(tests))
    done = pytester.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    said = done.stderr.str()
    for number, (mark, why) in enumerate(WRONG.items()):
        line = next(line for line in said.splitlines() if f"::test_{number}: " in line)
        assert why in line
        assert mark.partition("(")[0] in line
    assert not (pytester.path / "ran").exists()


def test_a_worker_of_xdist_tells_it_too(pytester: pytest.Pytester) -> None:
    """An error and a failed session, not a crash of the worker; nothing runs."""
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.compile_budget(recompile=1)\ndef test_wrong(): open('ran', 'w')\n"
        "def test_other(): open('ran', 'w')\n"
    )
    done = pytester.runpytest_subprocess(*ALONE, "-n2")
    done.stdout.fnmatch_lines(["*no count called recompile; did you mean recompiles?"])
    done.assert_outcomes(errors=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert not (pytester.path / "ran").exists()
    assert "INTERNALERROR" not in done.stdout.str()


def test_the_nearest_marker_holds(pytester: pytest.Pytester) -> None:
    """A parameter's before the function's, the function's before the class's, a class's before
    its base's, then the module's; one marker does not disturb another."""
    found = requirements(
        pytester,
        """
        import pytest
        zero, budget = pytest.mark.zero_recompiles, pytest.mark.compile_budget
        pytestmark = [zero(warmup=9), budget(graph_breaks=4)]

        def test_module(): pass

        @zero(2)
        def test_function(): pass

        @zero(warmup=3)
        class TestBase:
            def test_method(self): pass
            @zero(warmup=0)
            def test_marked(self): pass

        class TestDerived(TestBase):
            pytestmark = zero(warmup=5)

        class TestInherits(TestBase):
            pass

        @zero(warmup=6)
        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=zero(warmup=7))])
        def test_parameter(n): pass
        """,
    )
    assert {name: demand.warmup for name, demand in found.items()} == {
        "test_module": 9,
        "test_function": 2,
        "TestBase::test_method": 3,
        "TestBase::test_marked": 0,
        "TestDerived::test_method": 5,
        "TestDerived::test_marked": 0,
        "TestInherits::test_method": 3,
        "TestInherits::test_marked": 0,
        "test_parameter[1]": 6,
        "test_parameter[2]": 7,
    }
    assert {tuple(demand.limits.items()) for demand in found.values()} == {(("graph_breaks", 4),)}


def test_zero_recompiles_and_a_budget_of_them(pytester: pytest.Pytester) -> None:
    """From different places the nearer one holds; the other counts of a budget stay."""
    found = requirements(
        pytester,
        """
        import pytest

        @pytest.mark.zero_recompiles
        class TestZero:
            @pytest.mark.compile_budget(recompiles=3, frames=1)
            def test_budget(self): pass

        @pytest.mark.compile_budget(recompiles=3, frames=1)
        class TestBudget:
            @pytest.mark.zero_recompiles
            def test_zero(self): pass
        """,
    )
    assert found["TestZero::test_budget"] == Requirements({"recompiles": 3, "frames": 1})
    assert found["TestBudget::test_zero"] == Requirements({"frames": 1}, warmup=1)


def test_markers_that_contradict_each_other(pytester: pytest.Pytester) -> None:
    """At one place there is no nearer one; and two lanes of one name would judge each other."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.zero_recompiles
        @pytest.mark.compile_budget(recompiles=3)
        def test_both(): pass

        @pytest.mark.compile_budget(frames=1)
        @pytest.mark.compile_budget(compiles=3)
        def test_twice(): pass

        @pytest.mark.compile_baseline("train")
        def test_lane(): pass

        @pytest.mark.compile_baseline("train")
        def test_other(): pass
        """
    )
    done = pytester.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        [
            "*::test_both: zero_recompiles() allows no recompile and * keep one of the two",
            "*::test_twice: compile_budget(*) and compile_budget(*) stand at the same place: *",
            "*::test_lane and *::test_other are both configuration 'train'; name each its own",
        ]
    )


def test_parameters_have_lanes_of_their_own(pytester: pytest.Pytester) -> None:
    """One marker, one lane for each parameter set."""
    found = requirements(
        pytester,
        """
        import pytest

        @pytest.mark.compile_baseline("train")
        @pytest.mark.parametrize("size", [64, 512])
        def test_lane(size): pass
        """,
    )
    assert [demand.configuration for demand in found.values()] == ["train[64]", "train[512]"]


def test_limits_of_the_configuration_are_checked(pytester: pytest.Pytester) -> None:
    """An expression that does not parse ends the session before anything runs."""
    pytester.makeini("[pytest]\ncompilediag = true\ncompilediag_fail_on = recompiles>>0\n")
    pytester.makepyfile("def test_it(): open('ran', 'w')")
    done = pytester.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*compilediag_fail_on: limit 'recompiles>>0'*"])
    assert not (pytester.path / "ran").exists()


def test_the_markers_are_registered(pytester: pytest.Pytester) -> None:
    """`--strict-markers` knows them, and `pytest --markers` explains them."""
    pytester.makepyfile(
        "import pytest\n@pytest.mark.compile_budget(frames=1)\ndef test_it(): pass\n"
    )
    done = pytester.runpytest_inprocess("--strict-markers", "--collect-only", "-q")
    assert done.ret == pytest.ExitCode.OK
    told = pytester.runpytest_inprocess("--markers").stdout.str()
    for name in ("zero_recompiles(warmup=1)", "compile_budget(recompiles=", "compile_baseline("):
        assert f"@pytest.mark.{name}" in told
