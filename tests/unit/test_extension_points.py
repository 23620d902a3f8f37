"""The table of extensions: the core knows them by these names alone, and each leads somewhere."""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from compilediag import cli, extension_points
from compilediag.errors import EXIT_USAGE, ExtensionMissing
from compilediag_harness import extension_points as inside_points

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ROOT / "compilediag"
INSIDE = ROOT / "harness" / "compilediag_harness"


def points_of(table: ModuleType) -> list[str]:
    """Every "module:name" of a table, alone or in a dictionary."""
    named = [value for name, value in vars(table).items() if name.isupper()]
    tables = [value.values() if isinstance(value, dict) else [value] for value in named]
    found = itertools.chain.from_iterable(tables)
    return [each for each in found if isinstance(each, str) and ":" in each]


POINTS, INSIDE_POINTS = points_of(extension_points), points_of(inside_points)


def core() -> Iterator[Path]:
    """Every module of both halves' core but the tables."""
    for half in (OUTSIDE, INSIDE):
        for path in half.rglob("*.py"):
            if "extensions" not in path.relative_to(half).parts:
                if path != half / "extension_points.py":
                    yield path


PACKAGES = (extension_points.PACKAGE, inside_points.PACKAGE)


def names_extensions(text: str) -> list[int]:
    """Lines that import an extension, or name a module of one as text that could be imported."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        if any(name.startswith(PACKAGES) for name in names):
            lines.append(node.lineno)
    return lines


def _without_types(path: Path) -> str:
    """The text of a module; of the public names without what type checkers alone read."""
    text = path.read_text(encoding="utf-8")
    if path != OUTSIDE / "__init__.py":
        return text
    begin = text.index("if TYPE_CHECKING:\n")
    return text[:begin] + text[text.index("\n\n\n", begin) :]


def test_the_core_names_no_extension() -> None:
    """Neither an import at any depth nor a string; the walk reads the whole core."""
    found = {path: names_extensions(_without_types(path)) for path in core()}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert len(found) > 300


@pytest.mark.parametrize(
    "text",
    [
        "import compilediag.extensions.fleet.stats",
        "def f():\n    from compilediag.extensions.fleet import stats",
        "from compilediag import extensions",
        "from compilediag_harness.extensions import packing",
        "import_module('compilediag.extensions.fleet')",
    ],
)
def test_naming_an_extension_is_found(text: str) -> None:
    """The search above is not empty."""
    assert names_extensions(text) != []


@pytest.mark.parametrize("point", POINTS)
def test_a_point_leads_somewhere(point: str) -> None:
    """Its module is there and has the attribute."""
    assert extension_points.is_installed(point)
    assert extension_points.load(point, "a test") is not None


@pytest.mark.parametrize("point", INSIDE_POINTS)
def test_a_point_of_the_inside_leads_somewhere(point: str) -> None:
    """Its module is there and has the attribute."""
    assert inside_points.load(point) is not None


def test_a_point_of_a_missing_module_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a missing module nor a missing folder of all of them is an error in a program."""
    assert inside_points.load("gone:name") is None
    monkeypatch.setattr(inside_points, "PACKAGE", "compilediag_harness.no_extensions")
    assert [inside_points.load(point) for point in INSIDE_POINTS] == [None] * len(INSIDE_POINTS)


def test_every_extension_is_in_the_table() -> None:
    """No folder is left that nothing loads, and each says why it exists."""
    folders = {path.parent.name for path in (OUTSIDE / "extensions").glob("*/__init__.py")}
    assert folders == {point.partition(":")[0].partition(".")[0] for point in POINTS}
    inside = {path.stem for path in (INSIDE / "extensions").glob("[a-z]*")}
    assert inside == {point.partition(":")[0].partition(".")[0] for point in INSIDE_POINTS}
    for name in folders:
        assert (OUTSIDE / "extensions" / name / "README.md").is_file()


def test_a_missing_extension_is_one_sentence() -> None:
    """It says what needs it, and what to do."""
    with pytest.raises(ExtensionMissing, match=r"^`x` needs the extension gone, .*: install") as e:
        extension_points.load("gone.module:name", "`x`")
    assert e.value.exit_code == EXIT_USAGE


def test_without_any_extension(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """The help lists the commands that are there; one that is not is a usage error."""
    monkeypatch.setattr(extension_points, "PACKAGE", "compilediag.no_extensions")
    assert cli.main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in cli.COMMANDS:
        if " " not in name:
            assert (f"  {name} " in listed) == (name not in extension_points.COMMANDS)
    assert "  history " not in listed
    assert cli.main(["stats"]) == EXIT_USAGE
    assert "`compilediag history stats` needs the extension fleet" in capsys.readouterr().err
