"""The package without one of its extensions: a copy without the folder does all the rest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import captured, compilediag

from compilediag import extension_points

ROOT = Path(__file__).resolve().parents[2]
VIEWS = ROOT / "tests" / "data" / "views"
COMMANDS_OF = {
    "cadence": (["measure", "periodic", "program.py"],),
    "fleet": (["stats", str(VIEWS)], ["trend", str(VIEWS)]),
    "knee": (),
    "mcp": (["mcp"],),
    "packing": (),
    "pipeline": (),
    "prices": (["run", "--prices", str(ROOT / "pyproject.toml"), "program.py"],),
    "repro": (["repro", "1", str(VIEWS / "findings.json")],),
    "telemetry": (["run", "--prometheus-textfile", "x.prom", "program.py"],),
    "train_logs": (["analyze", str(VIEWS), "--patterns", str(ROOT / "pyproject.toml")],),
}
"""What belongs to an extension: where it is missing, it is a usage error."""
OF_THE_CORE = (
    ["show", str(VIEWS / "findings.json")],
    ["show", "--markdown", str(VIEWS / "breaks.json")],
    ["show", "--json", str(VIEWS / "many.json")],
    ["gate", "--fail-on", "recompiles>0", str(VIEWS / "findings.json")],
    ["diff", str(VIEWS / "clean.json"), str(VIEWS / "clean.json")],
    ["explain", "CD102"],
)


def copied(folder: Path, without: str) -> Path:
    """Both packages in a folder, without one extension; "*" stands for all."""
    for package in (ROOT / "compilediag", ROOT / "harness" / "compilediag_harness"):
        copy = folder / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        gone = copy / "extensions" if without == "*" else copy / "extensions" / without
        shutil.rmtree(gone, ignore_errors=True)
    for name in ("rules", "skill"):
        shutil.copytree(ROOT / "docs" / name, folder / "compilediag" / "docs" / name)
    (folder / "work").mkdir()
    return folder


def run(tree: Path, words: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    return compilediag(*words, cwd=work, timeout=300, PYTHONPATH=str(tree), COLUMNS="100")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[subprocess.CompletedProcess[str]]:
    """The commands of the core, with every extension."""
    work = tmp_path_factory.mktemp("whole")
    return [run(ROOT, words, work) for words in OF_THE_CORE]


@pytest.mark.parametrize("name", [*COMMANDS_OF, "*"])
def test_the_rest_is_the_same(name: str, tmp_path: Path, whole) -> None:
    """Without any, commands of the core print what they print with every extension; those of a
    missing one are a usage error in one sentence."""
    tree, work = copied(tmp_path, name), tmp_path / "work"
    for words, expected in zip(OF_THE_CORE, whole, strict=True) if name == "*" else ():
        without = run(tree, words, work)
        assert (without.returncode, without.stdout) == (expected.returncode, expected.stdout), words
        assert "Traceback" not in without.stderr
    missing = COMMANDS_OF if name == "*" else {name: COMMANDS_OF[name]}
    for extension, commands in missing.items():
        for words in commands:
            done = run(tree, words, work)
            assert done.returncode == 2, (words, done.stdout, done.stderr)
            assert f"needs the extension {extension}, and" in done.stderr
            assert len(done.stderr.splitlines()) == 1
    listed = run(tree, ["--help"], work).stdout
    assert "  run " in listed
    assert [
        command
        for command, point in extension_points.COMMANDS.items()
        if point.partition(".")[0] in missing and f"  {command} " in listed
    ] == []


def test_the_output_of_a_trainer_is_nothing_known(tmp_path: Path) -> None:
    """Without the extension that reads it, `analyze` finds nothing there, and says why."""
    tree, work = copied(tmp_path, "train_logs"), tmp_path / "work"
    done = run(tree, ["analyze", str(ROOT / "tests/data/train_logs/timm.log")], work)
    assert done.returncode == 2
    assert "the extension train_logs, which reads the step lines" in " ".join(done.stderr.split())


def test_what_programs_import_is_missing(tmp_path: Path) -> None:
    """Without the halves inside, a name of theirs is missing as any other is, with the reason."""
    tree, work = copied(tmp_path, "*"), tmp_path / "work"
    program = (
        "import compilediag as cd\n"
        "cd.span, cd.cadence\n"
        "assert not hasattr(cd, 'tracker')\n"
        "cd.pipeline\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = captured(sys.executable, "-c", program, cwd=work, env=env, timeout=300)
    assert done.stderr.splitlines()[-1].startswith("AttributeError: compilediag.pipeline needs an")


def test_a_program_runs_without_any(tmp_path: Path) -> None:
    """`run` explains a recompile where both halves have no extensions at all."""
    tree, work = copied(tmp_path, "*"), tmp_path / "work"
    (work / "program.py").write_text(
        "import torch\n"
        "double = torch.compile(lambda x: x * 2, backend='eager', dynamic=False)\n"
        "for size in (2, 3):\n    double(torch.ones(size))\n"
        "import compilediag\n"
        "try:\n    compilediag.FixedShape(double, {'x': 0}, [2, 4]).knee(torch.ones(2))\n"
        "except ValueError as error:\n    print(error)\n",
        encoding="utf-8",
    )
    done = run(tree, ["run", "program.py"], work)
    assert done.returncode == 0, done.stderr
    assert "1 recompile in 2 steps" in done.stderr
    assert done.stdout == "knee needs the extension compilediag_harness.extensions.knee\n"
