"""The command line of `run`: options, their defaults in pyproject.toml, where the verdict goes."""

import json
import subprocess
from pathlib import Path

import pytest
from command_line import compilediag

pytestmark = pytest.mark.usefixtures("forked")


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return compilediag("run", *words, cwd=folder)


@pytest.mark.parametrize("words", [("--json",), ("--quiet", "--json")])
def test_json_is_printable_whatever_the_encoding(words: tuple[str, ...], tmp_path: Path) -> None:
    """Arguments that stdout cannot encode, or that act on a terminal, are escaped, and the exit
    code stays the target's."""
    (tmp_path / "caf.py").write_text("")
    words = ("run", *words, "caf.py", "é", "\x9b2J")
    done = compilediag(*words, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert (done.stdout + done.stderr).isascii()
    assert json.loads(done.stdout)["header"]["run"]["argv_redacted"][:2] == ["caf.py", "é"]
    assert "\x9b" not in done.stdout


def test_options_after_the_target_belong_to_it(tmp_path: Path) -> None:
    """--quiet, --json and -- after TARGET are the target's, untouched."""
    (tmp_path / "x.py").write_text("import sys; print(sys.argv[1:])")
    done = run("--quiet", "--", "x.py", "--json", "--", "--quiet", "-h", folder=tmp_path)
    assert done.stdout == "['--json', '--', '--quiet', '-h']\n"
    assert done.stderr == ""


def test_flags_win_over_pyproject(tmp_path: Path) -> None:
    """The table gives the defaults; the command line has the last word."""
    (tmp_path / "pyproject.toml").write_text('[tool.compilediag]\nquiet = true\noutput = "toml"\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/x.py").write_text("pass")
    done = run("--output", "flag", "x.py", folder=tmp_path / "sub")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "sub/flag/receipt.json").is_file()
    assert not (tmp_path / "sub/toml").exists()


@pytest.mark.parametrize(("ends", "code"), [("", 3), ("raise SystemExit(7)", 7)])
def test_a_limit_that_cannot_be_judged_does_not_pass(ends: str, code: int, tmp_path: Path) -> None:
    """A run that compiled nothing is blind: exit code 3; a target that fails keeps its own."""
    (tmp_path / "x.py").write_text(ends)
    done = run("--quiet", "--fail-on", "recompiles>0", "x.py", folder=tmp_path)
    assert done.returncode == code
    assert "the gate failed: " in done.stderr


@pytest.mark.parametrize(("limit", "code"), [("recompiles>1", 0), ("recompiles>0", 3)])
def test_limits_decide_where_the_target_succeeds(limit: str, code: int, tmp_path: Path) -> None:
    """The target's output stays as it is; the sentence on stderr names count and limit."""
    (tmp_path / "x.py").write_text(
        "import torch\n"
        "f = torch.compile(lambda x, n: x + n, backend='eager', dynamic=False)\n"
        "f(torch.ones(2), 1), f(torch.ones(2), 2)\n"
        "print('mine')\n"
    )
    done = run("--quiet", "--fail-on", limit, "x.py", folder=tmp_path)
    printed = "compilediag: the gate failed: recompiles: 1, and the limit is recompiles>0\n"
    assert (done.returncode, done.stdout) == (code, "mine\n")
    assert done.stderr == (printed if code else "")


@pytest.mark.usefixtures("own_interpreter")
def test_a_price_table_is_read_before_the_target_starts(tmp_path: Path) -> None:
    """A wrong one is a usage error and nothing runs; a right one is in the receipt, which says why
    a run of which nothing was seen has no amount."""
    (tmp_path / "x.py").write_text("open('ran', 'w').close()")
    prices = tmp_path / "prices.toml"
    prices.write_text("currency = 5")
    done = run("--prices", "prices.toml", "x.py", folder=tmp_path)
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, False)
    assert "prices.toml names no currency" in done.stderr
    prices.write_text('currency = "EUR"\n[[machine]]\ncpu = "*"\nper_hour = 1.0\n')
    run("--prices", "prices.toml", "--output", "out", "x.py", folder=tmp_path)
    cost = json.loads((tmp_path / "out" / "receipt.json").read_text())["cost"]
    assert (cost["amount"], cost["currency"]) == (None, "EUR")
    assert cost["note"] == "the devices of the run were not seen"


TESTS = """
import torch

@torch.compile(backend="eager")
def f(x, scale):
    return x * scale

def test_one(): f(torch.ones(2), 1.0)
def test_two(): f(torch.ones(2), 2.0)
def test_three(): f(torch.ones(2), 3.0)
"""


def test_a_suite_names_its_tests(tmp_path: Path) -> None:
    """A finding says in which test it was; plugins of the suite are not needed for it."""
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:compilediag", "test_it.py")
    done = run("--", *words, folder=tmp_path)
    assert done.returncode == 0
    shown = compilediag("show", "--all", cwd=tmp_path)
    assert "in test_it.py::test_two" in " ".join(shown.stdout.split())
    receipt = json.loads((tmp_path / ".compilediag/latest/receipt.json").read_text())
    tests = [event["test"] for event in receipt["compile"]["events"]]
    assert tests[:2] == ["test_it.py::test_one", "test_it.py::test_two"]


BROKEN_LOOP = """
import torch

def scale(tensor, factor):
    return tensor * factor

@torch.compile(backend="eager")
def total(count):
    found = torch.zeros(1)
    for number in range(count):
        part = torch.ones(number + 3)
        if part.sum() > 100:
            break
        found = found + sum([scale(piece, 2).sum() for piece in (part,)])
    return found

for _ in range(3):
    total(3)
"""


def test_what_a_broken_loop_calls_follows_from_the_break(tmp_path: Path) -> None:
    """torch compiles `scale` apart, from a comprehension, because the loop around it broke; JSON
    names the command of the screen."""
    (tmp_path / "x.py").write_text(BROKEN_LOOP)
    done = run("--json", "x.py", folder=tmp_path)
    receipt = json.loads(done.stdout)
    found = [(item["rule"], item["follows"]) for item in receipt["findings"]]
    assert found == [("CD201", None), ("CD105", "F1")]
    shown = compilediag("show", cwd=tmp_path).stdout
    assert "1 finding follows from it" in shown
    assert f"next: {receipt['next']}" in shown
    assert json.loads(compilediag("show", "--json", cwd=tmp_path).stdout)["next"] == receipt["next"]
