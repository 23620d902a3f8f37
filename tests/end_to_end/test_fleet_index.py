"""The index beside receipts: the files are the truth whatever happens to it, or to them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_pieces import indexed_copy, receipts_of_two_lanes, same
from many_receipts import content

from compilediag.extensions.fleet import folder as folders
from compilediag.extensions.fleet.folder import INDEX_NAME, load_fleet


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return receipts_of_two_lanes(tmp_path_factory.mktemp("made"))


@pytest.fixture
def receipts(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them with an index; files count as settled at once."""
    monkeypatch.setattr(folders, "SETTLED_S", -1.0)
    return indexed_copy(made, tmp_path / "receipts")


def test_many_processes_at_once(receipts: Path) -> None:
    """Processes that read and index while receipts come and go all end well, and afterwards the
    index says what the files say."""
    program = """
import sys
from compilediag.extensions.fleet import folder
folder.SETTLED_S = -1.0
for _ in range(6):
    assert len(folder.load_fleet(sys.argv[1]).entries) >= 60
"""
    (receipts / INDEX_NAME).unlink()
    command = [sys.executable, "-c", program, str(receipts)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for number in range(300, 330):
        part = receipts / ".part"
        part.write_bytes(content(number))
        part.rename(receipts / f"r{number:05d}.json")
    for child in running:
        assert child.communicate()[1] == b""
        assert child.returncode == 0
    load_fleet(str(receipts))
    found = load_fleet(str(receipts))
    assert found.files_read == 0
    assert same(found, receipts)
    assert sorted(name for name in os.listdir(receipts) if name[0] == ".") == [INDEX_NAME]
