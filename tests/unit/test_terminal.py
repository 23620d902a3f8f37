"""Every command writes to any stdout, and no text of the target acts on the terminal."""

import io
import json
import sys
from pathlib import Path

import pytest
from many_receipts import measured, written
from screens import acting

from compilediag import cli
from compilediag.receipt.file import read_receipt
from compilediag.runs.supervised.child import Outcome

DATA = Path(__file__).parents[1] / "data" / "views"
EVIL = "é\x07\x1b[2J\x7f\x9b2J\u202e→"
"""A letter beside ASCII, C0, DEL, C1, a bidi override, a sign."""


@pytest.fixture
def receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A receipt with hostile text in every field that has text of the target."""
    raw = json.loads((DATA / "findings.json").read_text(encoding="utf-8"))
    raw["header"]["run"]["argv_redacted"] = ["caf.py", EVIL]
    raw["header"]["lane"]["name"] = EVIL
    raw["header"]["provenance"]["git_message_short"] = EVIL
    for finding in raw["findings"]:
        finding["variable"] = finding["evidence"]["actual"] = EVIL
        finding["location"] = {"file": f"{EVIL}.py", "line": 3, "function": EVIL}
    (tmp_path / "hostile.json").write_text(json.dumps(raw), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    loaded = read_receipt("hostile.json")
    outcome = Outcome(0, ".", loaded, "receipt.json")
    monkeypatch.setattr("compilediag.runs.supervised.run", lambda *_: outcome)
    monkeypatch.setattr("compilediag.extensions.cadence.probe.probe", lambda *_: outcome)
    return "hostile.json"


def run(encoding: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command whose stdout and stderr have an encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return cli.main(arguments), stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--json", "caf.py"),
        ("probe", "--json", "caf.py"),
        ("show", "--json", "hostile.json"),
        ("diff", "--json", "hostile.json", "hostile.json"),
        ("plan", "--json", "hostile.json"),
        ("gate", "hostile.json", "--any-code", "--fail-on", "recompiles>900", "--format", "json"),
        ("gate", "hostile.json", "--any-code", "--fail-on", "recompiles>900", "--format", "sarif"),
        ("gate", "hostile.json", "--any-code", "--fail-on", "recompiles>900", "--format", "gitlab"),
    ],
    ids=" ".join,
)
def test_json_is_printable_ascii_in_every_encoding(arguments, encoding, receipt, monkeypatch):
    """C0, C1, DEL and bidi characters of the target are escaped, and the text is still there."""
    code, printed = run(encoding, monkeypatch, *arguments)
    assert code == 0
    assert printed.isascii()
    assert acting(printed) == set()
    json.loads(printed)
    if "hostile.json" not in arguments or arguments[0] == "show":
        assert json.loads(printed)["header"]["run"]["argv_redacted"][1] == EVIL


@pytest.mark.parametrize("name", ["stats", "trend"])
def test_json_of_many_receipts_is_printable_ascii(name: str, tmp_path: Path, monkeypatch) -> None:
    """As above, for a folder of receipts."""
    lane = {"header__lane__name": EVIL, "header__provenance__git_message_short": EVIL}
    folder = written(tmp_path / "many", range(3), lambda index: measured(**lane))
    code, printed = run("ascii", monkeypatch, name, str(folder), "--json")
    assert (code, acting(printed)) == (0, set())
    assert json.loads(printed)["lanes"][0]["lane"]["name"] == EVIL


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8", "utf-16"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("run", "--help"),
        ("run", "caf.py"),
        ("show", "hostile.json"),
        ("show", "--md", "hostile.json"),
        ("explain", "1", "hostile.json"),
        ("explain", "CD103"),
        ("explain", "--list"),
        ("gate", "hostile.json", "--any-code", "--fail-on", "recompiles>900"),
    ],
    ids=" ".join,
)
def test_screens_survive_every_encoding(arguments, encoding, receipt, monkeypatch) -> None:
    """What an encoding lacks is written as an escape; nothing of the target acts on a terminal."""
    code, printed = run(encoding, monkeypatch, *arguments)
    assert code == 0
    assert acting(printed.removeprefix("\ufeff")) == set()
