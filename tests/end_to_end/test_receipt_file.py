"""Receipts on disk: whole or not at all, found where they are, refused with one sentence."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt

DATA = Path(__file__).parents[1] / "data"


WRITER = """
import sys
from pathlib import Path
from compilediag.receipt.file import read_receipt, write_receipt
receipt = read_receipt(Path(sys.argv[1]))
while True:
    write_receipt(receipt, Path(sys.argv[2]))
    print("written", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("writes", [1, 2, 7])
def test_a_killed_writer_leaves_a_whole_receipt(tmp_path: Path, writes: int) -> None:
    """SIGKILL in the middle of endless rewriting: the file that is there is whole and readable."""
    source, path = DATA / "receipt-example.json", tmp_path / "receipt.json"
    arguments = [sys.executable, "-c", WRITER, str(source), str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert [child.stdout.readline() for _ in range(writes)] == ["written\n"] * writes
        child.kill()
    assert read_receipt(path) == msgspec.json.decode(source.read_bytes(), type=Receipt)
