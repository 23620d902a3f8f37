"""A target that removes or replaces the directory of its run loses no evidence."""

import json
import sys

import pytest
from command_line import captured

TARGET = """
import os, shutil, sys
from compilediag_harness import process
from compilediag_harness.wire import SpanEnded

def write(name):
    process.current.journal.write(SpanEnded(0.0, 0, name, 0.0, 0.1, 0, 1))

def is_open(path, pid):
    links = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        except OSError:
            pass
    return path in links

folder = os.environ["COMPILEDIAG_RUN_DIR"]
write("before")
while not is_open(process.current.journal.path, os.getppid()):
    pass
exec(sys.argv[1])
write("after")
sys.exit(5)
"""


@pytest.mark.parametrize(
    ("action", "place"),
    [
        ("shutil.rmtree(folder)", "same"),
        ("shutil.rmtree(os.path.dirname(folder))", "same"),
        ("shutil.rmtree(folder); open(folder, 'w').close()", "beside"),
        ("shutil.rmtree(folder); os.mkdir(folder)", "beside"),
        ("os.unlink(process.current.journal.path)", "beside"),
        (
            (
                "open(process.current.journal.path + '2', 'w').close(); "
                "os.replace(process.current.journal.path + '2', process.current.journal.path)"
            ),
            "beside",
        ),
        ("shutil.rmtree(os.getcwd())", "elsewhere"),
    ],
)
def test_what_was_recorded_before_and_after_is_in_the_receipt(action, place: str, tmp_path) -> None:
    """The exit code is the target's; a sentence names the place of journal and receipt."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "x.py").write_text(TARGET)
    words = ("-m", "compilediag", "run", "../x.py", action)
    env = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = captured(sys.executable, *words, cwd=work, env=env)
    assert done.returncode == 5, done.stderr
    assert "was removed while the program ran" in done.stderr
    (found,) = tmp_path.rglob("receipt.json")
    assert str(found.parent) in " ".join(done.stderr.split())
    told = json.loads(found.read_text())
    assert told["header"]["run"]["exit_code"] == 5
    (journal,) = found.parent.glob("journal-*.jsonl")
    assert '"before"' in journal.read_text()
    assert '"after"' in journal.read_text()
    where = "same" if str(found.parent) + "," in done.stderr else "beside"
    assert place == ("elsewhere" if ".compilediag" not in found.parts else where)
