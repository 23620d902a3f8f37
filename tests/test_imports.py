"""What short commands import: never torch, numpy, scipy, depyf or pytest, and no module in vain.

Each case is a child process that runs the command and then tells which modules it holds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HEAVY = ("torch", "numpy", "scipy", "depyf", "pytest", "pandas", "triton", "sympy")

NEEDLESS = {
    "analyze": (
        *("inspect", "ast", "importlib.resources", "locale", "pathlib", "statistics", "subprocess"),
        *("tempfile", "tomllib", "zipfile", "packaging", "compilediag.runs.supervised", "rich"),
        *("compilediag.readers.train_logs.read", "compilediag.readers.train_logs.progress_bars"),
    ),
    "show": (
        "ast",
        "json",
        "locale",
        "shlex",
        "dataclasses",
        "pathlib",
        "rich",
        "compilediag.compare.gate",
    ),
    "gate": (
        *("ast", "json", "locale", "shlex", "dataclasses", "pathlib", "rich", "hashlib"),
        *(
            "compilediag.diagnosis.codes",
            "compilediag.diagnosis.ownership",
            "compilediag.compare.gate.expression",
        ),
        *(
            "compilediag.compare.gate.limits",
            "compilediag.compare.gate.update",
            "compilediag.compare.gate.ab",
        ),
        *("compilediag.commands.gate_update", "compilediag.commands.gate_ab"),
    ),
    "gate --fail-on": (
        *("ast", "json", "locale", "shlex", "dataclasses", "pathlib", "rich", "hashlib"),
        *(
            "compilediag.diagnosis.codes",
            "compilediag.diagnosis.ownership",
            "compilediag.compare.gate.compare_baseline",
        ),
        *("compilediag.compare.gate.entries", "compilediag.compare.gate.lock_reader"),
    ),
}
"""Modules that a command has no use for where all is well; each was imported there once (`ast` by
`inspect`). What stands in for a module is not counted: it has no `__spec__`."""

PROBE = """
import sys
target, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = ["compilediag", *sys.argv[3:]]
before = set(sys.modules)
code = 0
try:
    if target == "-":
        from compilediag.stand_ins import put_in_place
        put_in_place()
        from compilediag.cli import main
        code = main()
    else:
        __import__(target)
except SystemExit as end:
    code = end.code
loaded = {name for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
seen = sorted(set(heavy) & loaded - before)
sys.stderr.write(f"\\n{code} {','.join(seen)}")
"""

RECEIPT = Path(__file__).parent / "data" / "receipt-example.json"


def heavy_after(
    target: str, *arguments: str, cwd: Path, heavy: Sequence[str] = HEAVY
) -> tuple[int, list[str]]:
    """The exit code of `compilediag ARGUMENTS` ("-") or of an import, and the heavy modules."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, target, ",".join(heavy), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    code, _, seen = done.stderr.rpartition("\n")[2].partition(" ")
    return int(code), seen.split(",") if seen else []


@pytest.fixture
def receipts(tmp_path: Path) -> tuple[str, str]:
    """Two copies of a recorded receipt."""
    names = ("before.json", "after.json")
    for name in names:
        shutil.copy(RECEIPT, tmp_path / name)
    return names


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("explain", "CD103"), ("run", "--help"), ("doctor", "--help")],
    ids=" ".join,
)
def test_commands_without_a_receipt_are_light(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Help and explanations import no heavy package and succeed."""
    assert heavy_after("-", *arguments, cwd=tmp_path) == (0, [])


def test_show_is_light(receipts: tuple[str, str], tmp_path: Path) -> None:
    """The verdict screen is drawn without torch."""
    assert heavy_after("-", "show", receipts[0], cwd=tmp_path) == (0, [])


def test_analyze_is_light(tmp_path: Path) -> None:
    """A trace becomes a receipt without torch, which need not be where traces are looked at."""
    trace = RECEIPT.parent / "traces" / "break_in_loop.log.gz"
    assert heavy_after("-", "analyze", str(trace), cwd=tmp_path) == (0, [])


def test_a_trace_under_torchs_name_needs_little(tmp_path: Path) -> None:
    """Nothing is loaded that reads the output of trainers or runs a program."""
    trace = tmp_path / "dedicated_log_torch_trace_rank_0_x.log.gz"
    shutil.copy(RECEIPT.parent / "traces" / "break_in_loop.log.gz", trace)
    found = heavy_after("-", "analyze", str(trace), cwd=tmp_path, heavy=NEEDLESS["analyze"])
    assert found == (0, [])
    (tmp_path / "train.log").write_text("iter 1: loss 2.0\n", encoding="utf-8")
    _, seen = heavy_after("-", "analyze", ".", cwd=tmp_path, heavy=NEEDLESS["analyze"])
    assert {"tomllib", "compilediag.readers.train_logs.read"} <= set(seen), "the check can fail"


def test_show_json_is_light(receipts: tuple[str, str], tmp_path: Path) -> None:
    """The receipt is printed as JSON without torch."""
    assert heavy_after("-", "show", "--json", receipts[0], cwd=tmp_path) == (0, [])


def test_diff_is_light(receipts: tuple[str, str], tmp_path: Path) -> None:
    """Two receipts are compared without torch."""
    assert heavy_after("-", "diff", *receipts, cwd=tmp_path) == (0, [])


@pytest.mark.parametrize("name", ["stats", "trend"])
def test_many_receipts_are_light(name: str, receipts: tuple[str, str], tmp_path: Path) -> None:
    """A folder of receipts is summed up and followed without torch, fsspec and DuckDB."""
    heavy = (*HEAVY, "fsspec", "duckdb", "rich", "statistics")
    assert heavy_after("-", name, ".", cwd=tmp_path, heavy=heavy) == (0, [])


def test_gate_is_light(receipts: tuple[str, str], tmp_path: Path) -> None:
    """A receipt is recorded and judged without torch, and without scipy."""
    update = ("gate", receipts[0], "--update", "--reason", "known")
    assert heavy_after("-", *update, cwd=tmp_path) == (0, [])
    assert heavy_after("-", "gate", receipts[1], cwd=tmp_path) == (0, [])


def test_a_command_loads_nothing_in_vain(receipts: tuple[str, str], tmp_path: Path) -> None:
    """Where all is well, show and gate load no module that only other answers need."""
    show = heavy_after("-", "show", receipts[0], cwd=tmp_path, heavy=NEEDLESS["show"])
    assert show == (0, [])
    limits = ("--fail-on", "recompiles>900")
    found = heavy_after(
        "-", "gate", receipts[0], *limits, cwd=tmp_path, heavy=NEEDLESS["gate --fail-on"]
    )
    assert found == (0, [])
    update = ("gate", receipts[0], "--update", "--reason", "known")
    _, seen = heavy_after("-", *update, cwd=tmp_path, heavy=NEEDLESS["gate"])
    assert "compilediag.compare.gate.update" in seen, "the check can fail"
    gate = heavy_after("-", "gate", receipts[0], cwd=tmp_path, heavy=NEEDLESS["gate"])
    assert gate == (0, [])


@pytest.mark.parametrize(
    "module", ["compilediag", "compilediag_harness", "compilediag.diagnosis.diagnose"]
)
def test_packages_are_light(module: str, tmp_path: Path) -> None:
    """Importing the packages costs a user's program no torch."""
    assert heavy_after(module, cwd=tmp_path) == (0, [])


@pytest.mark.torch
def test_the_probe_sees_torch(tmp_path: Path) -> None:
    """The check can fail: a module that imports torch is caught."""
    (tmp_path / "guilty.py").write_text("import torch\n", encoding="utf-8")
    _, seen = heavy_after("guilty", cwd=tmp_path)
    assert "torch" in seen


def in_a_process_of_ours(program: str) -> None:
    """Runs it where the stand-ins are in place."""
    placed = "import sys\nfrom compilediag.stand_ins import put_in_place\nput_in_place()\n"
    subprocess.run([sys.executable, "-c", placed + program], check=True)


def test_typing_extensions_is_loaded_for_who_needs_it() -> None:
    """In a process of ours the stand-in serves msgspec; anybody else gets the real module."""
    in_a_process_of_ours("""
import typing, typing_extensions
assert typing_extensions.Required is typing.Required
stand_in = typing_extensions
from typing_extensions import TypeIs
assert sys.modules["typing_extensions"] is not stand_in
assert sys.modules["typing_extensions"].TypeIs is TypeIs
assert stand_in.TypeIs is TypeIs
""")


def test_inspect_is_loaded_for_who_needs_it() -> None:
    """One line is cleaned without it, and as it would be; for more it is loaded."""
    in_a_process_of_ours("""
import inspect
stand_in = inspect
lines = ("", "  ", "one", "  one  ")
ours = [inspect.cleandoc(line) for line in lines]
assert sys.modules["inspect"] is stand_in
texts = ("a\\n    b\\n      c\\n", "\\ttab", "  x\\ty")
ours += [inspect.cleandoc(text) for text in texts]
assert sys.modules["inspect"] is not stand_in
import inspect
assert ours == [inspect.cleandoc(text) for text in (*lines, *texts)]
assert stand_in.isfunction is inspect.isfunction
""")


def test_statistics_is_loaded_for_who_calls_it() -> None:
    """A function that was imported from the stand-in is the module's own when it is called."""
    in_a_process_of_ours("""
import statistics
from statistics import fmean, median
stand_in = statistics
assert sys.modules["statistics"] is stand_in
assert (median([3, 1, 2, 5]), fmean([1, 2])) == (2.5, 1.5)
assert sys.modules["statistics"] is not stand_in
try:
    median([])
except stand_in.StatisticsError:
    pass
else:
    raise AssertionError
""")


def test_stand_ins_answer_as_the_modules_do() -> None:
    """What they know is what the module would have said; for the rest it is loaded."""
    in_a_process_of_ours("""
import gettext, platform, textwrap
several = [gettext.ngettext("one", "more", count) for count in range(3)]
answers = gettext.gettext("message"), several, platform.system()
stand_ins = [sys.modules[name] for name in ("gettext", "platform", "textwrap")]
version = platform.python_version()
gettext.NullTranslations, textwrap.dedent("  x")
import gettext, platform, textwrap
assert not any(sys.modules[one.__name__] is one for one in stand_ins)
several = [gettext.ngettext("one", "more", count) for count in range(3)]
assert answers == (gettext.gettext("message"), several, platform.system())
assert version == platform.python_version()
assert textwrap.dedent("  x") == "x"
""")
