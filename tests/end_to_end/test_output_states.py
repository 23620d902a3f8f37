"""Whatever becomes of our own output, the exit code is the target's, and the receipt is written."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TARGET = """
import sys
print("mine")
sys.stdout.flush()
sys.exit(int(sys.argv[1]))
"""

STATES = {
    "terminal": "",
    "stderr closed": "2>&-",
    "stdout closed": ">&-",
    "both closed": ">&- 2>&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "both full": ">/dev/full 2>&1",
    "stderr full": "2>/dev/full",
    "reader of stdout gone": "2>/dev/null",
    "reader of both gone": "2>&1",
    "ASCII": "",
}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def in_shell(words: list[str], state: str, folder: Path) -> int:
    """The exit code of a command whose streams are as a shell sets them."""
    environ = {**os.environ, **(ASCII if state == "ASCII" else {})}
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written: that of `| true` may go later
    with os.fdopen(writer, "wb") as unread:
        return subprocess.run(
            ["bash", "-c", f"{shlex.join(words)} {STATES[state]}"],
            cwd=folder,
            env=environ,
            stdout=unread if "reader" in state else subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        ).returncode


CASES = [*((state, "7") for state in STATES), *((s, "0") for s in STATES if "full" in s)]
"""A code of the target's own in every state; 0 where Python ends with one of its own instead."""


@pytest.mark.parametrize(("state", "code"), CASES)
def test_exit_code_and_receipt_in_every_state_of_the_streams(state, code: str, tmp_path) -> None:
    """As the target alone has it, and in the receipt; also where the receipt is for stdout (there
    the target prints on stderr), and for a file."""
    (tmp_path / "é.py").write_text(TARGET)
    ours = [sys.executable, "-m", "compilediag", "run", "-o"]
    plain = in_shell([sys.executable, "é.py", code], state, tmp_path)
    assert in_shell([*ours, "a", "--json=a.json", "é.py", code], state, tmp_path) == plain
    told = json.loads((tmp_path / "a.json").read_text())
    assert told.pop("next").startswith("compilediag ")
    kept = json.loads((tmp_path / "a" / "receipt.json").read_text())
    assert told == {name: value for name, value in kept.items() if name != "next"}
    assert told["header"]["run"]["exit_code"] == plain
    if "closed" in state:  # a closed stream takes nothing, and so fails nothing
        plain = int(code)
    else:
        on_stderr = f"import sys; sys.stdout = sys.stderr; {TARGET}"
        plain = in_shell([sys.executable, "-c", on_stderr, code], state, tmp_path)
    assert in_shell([*ours, "b", "--json", "é.py", code], state, tmp_path) == plain
    told = json.loads((tmp_path / "b" / "receipt.json").read_text())
    assert told["header"]["run"]["exit_code"] == plain


def run(folder: Path, source: str, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder."""
    (folder / "x.py").write_text(source)
    command = [sys.executable, "-m", "compilediag", "run", *options]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.run(command, cwd=folder, text=True, check=False, **streams)


def test_json_alone_is_on_stdout(tmp_path: Path) -> None:
    """What the target prints is on stderr, where the verdict would be."""
    done = run(tmp_path, "print('mine')", "--json", "-o", "out", "x.py")
    kept = (tmp_path / "out/receipt.json").read_text()
    told = json.loads(done.stdout)
    assert (told["next"], done.stderr) == ("compilediag explain CD901", "mine\n")
    assert done.stdout == kept.replace('"next": null', f'"next": "{told["next"]}"', 1)


def test_json_in_a_file_leaves_the_screen_as_it_is(tmp_path: Path) -> None:
    """stdout is the target's, stderr has the verdict; --json=X after TARGET is the target's."""
    done = run(tmp_path, "import sys; print(sys.argv[1:])", "--json=f", "x.py", "--json=g")
    assert done.stdout == "['--json=g']\n"
    assert "blind" in done.stderr
    assert json.loads((tmp_path / "f").read_text())["status"] == "complete"
    assert not (tmp_path / "g").exists()


def test_a_file_that_cannot_be_written_costs_no_run(tmp_path: Path) -> None:
    """Found before the target starts."""
    done = run(tmp_path, "open('ran', 'w')", "--json=no/f", "x.py")
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, False)
    assert "names no file in an existing folder" in done.stderr


def test_where_json_cannot_be_printed_the_verdict_is_on_stderr(tmp_path: Path) -> None:
    """A full disk behind stdout: the reason, and what would be shown without --json."""
    with open("/dev/full", "w") as full:
        done = run(tmp_path, "raise SystemExit(5)", "--json", "x.py", stdout=full)
    assert done.returncode == 5
    assert "stdout cannot be written" in done.stderr
    assert "blind" in done.stderr
