"""The command line of `run`: options, their defaults in pyproject.toml, where the verdict goes."""

from pathlib import Path

import pytest

from compilediag.cli import main
from compilediag.commands.subcommand import check_tables, read_defaults
from compilediag.commands.target import TOML_KEYS, read_option_files
from compilediag.compare.gate.limits import Limit
from compilediag.errors import UsageError
from compilediag.extensions.prices import read_prices
from compilediag.extensions.telemetry.settings import TelemetrySettings
from compilediag.option_fields import collect_options, fill_options
from compilediag.runs.supervised.run_options import RunOptions


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to run"),
        (["no.py"], "there is no file named 'no.py'"),
        (["--nonsense", "x.py"], "no option --nonsense"),
        (["--timeout", "0", "x.py"], "timeout must be more than 0"),
        (["--timeout", "nan", "x.py"], "timeout must be more than 0"),
        (["--warmup", "some", "x.py"], "warmup must be a number of steps or auto"),
        (["--name", "../x", "x.py"], "name may hold letters"),
        (["--fail-on", "recompile>0", "x.py"], "did you mean 'recompiles'"),
    ],
)
def test_mistakes_are_one_sentence(words, message, tmp_path: Path, monkeypatch, capsys) -> None:
    """Exit code 2, one line on stderr, nothing started, nothing left behind."""
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text("open('ran', 'w')")
    assert main(["run", *words]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.py"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.compilediag]\nstepz = 3", "unknown key 'stepz'"),
        ("[tool.compilediag]\nsteps = 'many'", "steps in .* must be int"),
        ("[tool.compilediag]\nsteps = true", "steps in .* must be int"),
        ("[tool]\ncompilediag = 3", "is no table"),
        ("tool = 3", "is no table"),
        ("[tool", "cannot be read"),
    ],
)
def test_a_wrong_table_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    """A misspelled key is not passed over in silence."""
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_defaults(tmp_path, TOML_KEYS)


def test_every_key_of_the_table_is_an_option(tmp_path: Path) -> None:
    """The table has the names of the command line: each of them is accepted and used."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    figures = str(tmp_path / "figures.prom")
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "USD"\n[[machine]]\ncpu = "*"\nper_hour = 1.0\n')
    values = {
        "output": "o", "name": "n", "steps": 3, "warmup": 2, "timeout": 5, "grace": 1.5,
        "quiet": False, "live": False, "json": False, "trace": True,
        "fail_on": "recompiles>0", "tlparse": True, "depyf": True,
        "prices": str(prices), "otlp": "http://localhost:4318", "prometheus_textfile": figures,
        "telemetry_every": 20, "html": str(tmp_path / "page.html"),
        "record": True,
    }  # fmt: skip
    assert values.keys() == TOML_KEYS[""].keys()
    options = fill_options(RunOptions, {}, check_tables(values, TOML_KEYS, "here"))
    named = {key.key: field for field, key in collect_options(RunOptions).items() if key.toml}
    given = {key: getattr(options, named[key]) for key in values}
    assert given == {**values, "fail_on": (Limit("recompiles", ">", 0),)}
    prepared = read_option_files(options)
    assert prepared.prices == read_prices(str(prices))
    assert prepared.telemetry == TelemetrySettings(
        otlp="http://localhost:4318",
        prometheus_textfile=figures,
        every_s=20.0,
    )


@pytest.mark.parametrize(
    ("given", "table", "live"),
    [
        ({}, {}, True),
        ({}, {"live": False}, False),
        ({"live": True}, {"live": False}, True),
        ({"live": False}, {"live": True}, False),
    ],
)
def test_flags_win(given: dict[str, bool], table: dict[str, object], live: bool) -> None:
    """Over the table of pyproject.toml, whichever of both has the default."""
    assert fill_options(RunOptions, given, table).live is live


def test_a_file_that_nests_too_deep(tmp_path: Path) -> None:
    """One sentence, where the parser of TOML gives up."""
    (tmp_path / "pyproject.toml").write_text("x = " + "[" * 5000)
    with pytest.raises(UsageError, match="nested too deep"):
        read_defaults(tmp_path, TOML_KEYS)
