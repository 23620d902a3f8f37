"""`compile_baseline`: written once, judged by ever after; nothing passes that has no lane."""

import json

import pytest
from plugin_runs import again, failure_of, outcomes, run

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("forked")

TESTS = """
    @pytest.mark.compile_baseline("worse")
    def test_worse(): sizes(2, 3)

    @pytest.mark.compile_baseline("better")
    def test_better(): sizes(4, 5)

    @pytest.mark.compile_baseline("same")
    @pytest.mark.parametrize("number", [2, 3])
    def test_same(number): sizes(number, number)
    """


def edit(pytester: pytest.Pytester, old: str, new: str) -> None:
    """Changes the program under test."""
    file = pytester.path / "test_user.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_lane_from_nothing(pytester: pytest.Pytester) -> None:
    """Two workers record, one file is written; the same passes, worse fails with the cause, better
    passes and is told, a lane that is not there is an error; nothing is written unasked."""
    lock = pytester.path / "compilediag.lock.json"
    written = run(pytester, TESTS, "--compilediag-update", "-n2")
    written.assert_outcomes(passed=4)
    written.stdout.fnmatch_lines(
        ["4 configurations written to compilediag.lock.json", "2 items allowed without a reason: *"]
    )
    lanes = json.loads(lock.read_text())["lanes"]
    assert list(lanes) == ["better", "same[2]", "same[3]", "worse"]
    assert lanes["worse"]["counts"]["recompiles"] == 1
    assert lanes["worse"]["causes"][0]["file"] == "test_user.py"

    before = lock.read_bytes()
    edit(pytester, "sizes(2, 3)", "sizes(2, 3, 4)")
    edit(pytester, "sizes(4, 5)", "sizes(4, 4)")
    edit(pytester, "[2, 3]", "[2, 3, 4]")
    with pytest.MonkeyPatch.context() as patch:  # files are told from the root, not from here
        patch.chdir(pytester.mkdir("below"))
        done = again(pytester, "--rootdir=..", "..", "-rA")
    assert outcomes(done) == {
        "test_worse": "FAILED",
        "test_better": "PASSED",
        "test_same[2]": "PASSED",
        "test_same[3]": "PASSED",
        "test_same[4]": "FAILED",
    }
    worse = failure_of(done, "test_worse")
    assert "configuration 'worse': 1 reason to fail against compilediag.lock.json" in worse
    assert "x  [2] → [3], [3] → [4] (the baseline has 1)" in worse
    assert "advice: " in worse
    absent = failure_of(done, "test_same[4]")
    assert (
        "blind: configuration 'same[4]': the baseline compilediag.lock.json has no configuration"
        in absent
    )
    assert "pytest --compilediag-update writes it" in absent
    done.stdout.fnmatch_lines(
        ["1 configuration is better than the baseline: pytest --compilediag-*"]
    )
    assert lock.read_bytes() == before


def test_what_is_not_written(pytester: pytest.Pytester) -> None:
    """A lane whose test fails, or is blind, keeps what the file knows of it, in an update too; an
    improvement fails where that is asked for."""
    lock = pytester.path / "compilediag.lock.json"
    run(pytester, TESTS, "--compilediag-update").assert_outcomes(passed=4)
    before = lock.read_bytes()
    edit(pytester, "sizes(2, 3)", "sizes(2, 3, 4); assert not 'mine'")
    edit(pytester, "sizes(number, number)", "torch.ones(number)")
    done = again(pytester, "--compilediag-update", "-k", "not better")
    done.assert_outcomes(failed=3, deselected=1)
    assert "blind: nothing was compiled" in failure_of(done, "test_same[2]")
    done.stdout.fnmatch_lines(["compilediag.lock.json: no configuration was recorded"])
    assert lock.read_bytes() == before
    edit(pytester, "sizes(4, 5)", "sizes(4, 4)")
    strict = again(pytester, "-o", "compilediag_strict_improvement=true", "-k", "better")
    strict.assert_outcomes(failed=1, deselected=3)
    assert "not written yet (compilediag_strict_improvement)" in failure_of(strict, "test_better")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not readable as JSON"),
        ('{"schema": "compilediag.lock", "schema_version": "9.0", "lanes": {}}', "upgrade"),
    ],
    ids=["torn", "newer"],
)
def test_a_baseline_that_cannot_be_used(pytester: pytest.Pytester, content: str, why: str) -> None:
    """An error before anything runs, in an update as well, and the file is left as it is."""
    lock = pytester.path / "compilediag.lock.json"
    lock.write_text(content)
    pytester.makepyfile(
        "import pytest\n@pytest.mark.compile_baseline('x')\ndef test_it(): open('ran', 'w')\n"
    )
    for options in ([], ["--compilediag-update"]):
        done = pytester.runpytest_inprocess(*options)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        assert why in done.stderr.str()
    assert lock.read_text() == content
    assert not (pytester.path / "ran").exists()


def test_another_file(pytester: pytest.Pytester) -> None:
    """The ini key names the baseline from the folder of the configuration file."""
    pytester.makeini("[pytest]\ncompilediag_baseline = ci/lanes.json\n")
    (pytester.mkdir("ci") / "lanes.json").write_text("{")
    pytester.makepyfile("import pytest\n@pytest.mark.compile_baseline('x')\ndef test_it(): pass\n")
    done = pytester.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*ci/lanes.json is not readable as JSON*"])
