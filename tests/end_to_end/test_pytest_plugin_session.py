"""A whole session: options, ini keys, the summary, junitxml, pytest-xdist, receipts as files."""

import json
import os
import re
import xml.etree.ElementTree as ET

import pytest
from plugin_runs import ALONE, again, outcomes, run

from compilediag.pytest_plugin.report import make_file_name
from compilediag.pytest_plugin.settings import CACHE_VARIABLE

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("forked")

TESTS = """
    import os

    def test_plain(): sizes(2, 3)
    def test_silent(): print("CACHE", os.environ.get("TORCHINDUCTOR_CACHE_DIR"))

    @pytest.mark.compile_budget(recompiles=0)
    @pytest.mark.parametrize("name", ["../../etc/passwd", "é→"])
    def test_name(name):
        sizes(2, 3)
    """


def test_every_test_is_shown_and_recorded(pytester: pytest.Pytester) -> None:
    """`--compilediag` fails nothing; each test that compiled has its line and its receipt, and its
    counts are in the JUnit file; no name leaves the folder."""
    done = run(pytester, TESTS, "--compilediag", "--compilediag-report=out", "--junitxml=j.xml")
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*= compilediag =*",
            "test_user.py::test_plain: 1 recompile · 0 graph breaks · 1 frame · 2 compiles",
            "1 watched test compiled nothing",
        ]
    )
    folder = pytester.path / "out"
    receipts = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    assert len(receipts) == 4
    page = (folder / "index.html").read_text("utf-8")
    assert "<h1>4 watched tests, 2 failed, " in page
    own = {path.name for path in folder.glob("*.html")} - {"index.html"}
    assert len(own) == 3, "none of the test that compiled nothing"
    assert own == set(re.findall(r'href="([^"#]+)"', page))
    assert page.index("test_name") < page.index("test_plain")
    assert len(list(folder.iterdir())) == 8
    lanes = {receipt["header"]["lane"]["name"] for receipt in receipts.values()}
    assert "test_user.py::test_plain" in lanes
    plain = receipts[make_file_name("test_user.py::test_plain")]
    assert plain["compile"]["recompiles"] == 1
    assert plain["status"] == "complete"
    written = {path.name for path in pytester.path.iterdir() if path.is_file()}
    assert written == {"j.xml", "test_user.py", "stdout", "stderr"}
    cases = ET.parse(pytester.path / "j.xml").iter("testcase")
    told = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in cases
    }
    assert told["test_plain"]["compilediag.recompiles"] == "1"
    assert told["test_plain"]["compilediag.frames"] == "1"
    assert told["test_plain"]["compilediag.verdict"] == "findings"


def test_with_xdist(pytester: pytest.Pytester) -> None:
    """The same tests fail with the same causes, the controller shows every line, each worker has
    a compile cache of its own."""
    pytester.makeini("[pytest]\ncompilediag = true\n")
    done = run(pytester, TESTS, "-n2", "-rA")
    done.assert_outcomes(passed=2, failed=2)
    text = done.stdout.str()
    assert text.count("x  [2] → [3]") == 2
    assert text.count("1 recompile · 0 graph breaks · 1 frame · 2 compiles") == 3
    cache = next(line for line in done.outlines if line.startswith("CACHE"))
    assert cache.rpartition("_")[2] in ("gw0", "gw1")


def test_limits_of_the_configuration(pytester: pytest.Pytester) -> None:
    """`compilediag_fail_on` holds for every watched test that compiles; each cause is told."""
    pytester.makeini("[pytest]\ncompilediag = true\ncompilediag_fail_on = recompiles>0\n")
    done = run(
        pytester,
        """
        def test_red(): sizes(2, 3)
        def test_green(): sizes(2, 2)
        def test_silent(): pass
        """,
        "-rA",
    )
    assert outcomes(done) == {"test_red": "FAILED", "test_green": "PASSED", "test_silent": "PASSED"}
    text = done.stdout.str()
    assert "by compilediag_fail_on (recompiles>0)" in text
    assert "x  [2] → [3]" in text
    told = text.partition("= compilediag =")[2]
    assert "1 watched test compiled and did not recompile, break or change (-v lists" in told
    assert "::test_red: 1 recompile" in told
    assert "::test_green: 0 recompiles" not in told
    listed = again(pytester, "-v").stdout.str().partition("= compilediag =")[2]
    assert "::test_green: 0 recompiles" in listed


@pytest.mark.usefixtures("own_interpreter")
def test_without_the_plugin_asked_for(pytester: pytest.Pytester) -> None:
    """A suite that does not use it: no section, no property, no import, no environment variable."""
    pytester.makepyfile(
        """
        import os, sys

        def test_it(request):
            loaded = {name for name in sys.modules if name.startswith("compilediag")}
            assert loaded == {
                "compilediag", "compilediag._version", "compilediag.pytest_plugin",
                "compilediag.pytest_plugin.marks",
            }
            assert not {"torch", "msgspec", "rich", "click"} & set(sys.modules)
            assert request.node.user_properties == []
            assert request.config.pluginmanager.has_plugin("compilediag")
            assert not request.config.pluginmanager.has_plugin("compilediag-watched-tests")
            assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
        """
    )
    done = again(pytester, "-n1")
    done.assert_outcomes(passed=1)
    assert "compilediag ==" not in done.stdout.str()


def test_a_chosen_cache_folder_stays(pytester: pytest.Pytester, monkeypatch) -> None:
    """The worker's own folder is only for those who have not chosen one."""
    monkeypatch.setenv(CACHE_VARIABLE, str(pytester.path / "mine"))
    pytester.makepyfile(
        """
        import os
        def test_it():
            assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith("mine")
        """
    )
    done = pytester.runpytest_subprocess(*ALONE, "--compilediag", "-n1")
    done.assert_outcomes(passed=1)


def test_file_names_are_safe() -> None:
    """Readable, bounded, in the folder, and different for each test."""
    awkward = ["a/b.py::t[../../x]", "..", "", "a" * 500, "a b", "a-b", "é→\x00\n", ".hidden", "/"]
    names = [make_file_name(nodeid) for nodeid in awkward]
    assert len(set(names)) == len(names)
    for name in names:
        assert os.path.basename(name) == name
        assert name.isascii()
        assert len(name) < 130
        assert not name.startswith((".", "-"))
        assert name.endswith(".json")


def test_a_folder_that_cannot_be_written(pytester: pytest.Pytester) -> None:
    """A judged test fails; nothing is overwritten."""
    (pytester.path / "taken").write_text("mine")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.compile_budget(frames=1)\ndef test_it(): pass\n"
    )
    done = again(pytester, "--compilediag-report=taken")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*--compilediag-report: cannot write into *taken*"])
    assert (pytester.path / "taken").read_text() == "mine"
