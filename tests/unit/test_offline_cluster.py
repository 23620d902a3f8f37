"""`analyze --cluster`: what is said before anything is read."""

from pathlib import Path

import pytest
from rank_folders import folder_of_ranks

from compilediag import cli
from compilediag.errors import UsageError
from compilediag.runs.offline.many_ranks import connect_workers


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what needs nothing."""
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(UsageError, match=r"pip install 'compilediag\[dask\]'.*--jobs N"),
        connect_workers("tcp://localhost:1"),
    ):
        pass


@pytest.mark.filterwarnings("ignore")
def test_no_scheduler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence."""
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr("compilediag.runs.offline.many_ranks.CONNECT_S", 0.2)
    with (
        pytest.raises(UsageError, match="no dask scheduler answers at tcp://127"),
        connect_workers("tcp://127.0.0.1:9"),
    ):
        pass


def test_options_that_contradict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tlparse runs where the command runs."""
    arguments = ["analyze", str(folder_of_ranks(tmp_path / "in")), "--cluster", "tcp://x:1"]
    assert cli.main([*arguments, "--tlparse"]) == 2
    assert cli.main([*arguments, "-j", "2"]) == 2
    assert capsys.readouterr().err.count("give one") == 2
