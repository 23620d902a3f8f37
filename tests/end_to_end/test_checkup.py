"""`compilediag doctor`: what makes it fail, what only warns, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compilediag import cli
from compilediag.commands import doctor


def test_this_environment_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real checks pass where the tests run, and the JSON says the same."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["usable"] is True
    assert {check["name"]: check["state"] for check in printed["checks"]}["attaching"] == "ok"
    assert {hook["name"] for hook in printed["hooks"]} >= {"metrics_rows", "recompile_reasons"}
    assert printed["versions"]["torch"]
    assert list(tmp_path.iterdir()) == []


def test_attaching_really_attaches() -> None:
    """A real child, started as a run starts it, writes its journal."""
    assert doctor._injection().state == "ok"
