"""A program in a trial sees what it wrote, and the user's files stay byte for byte."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import glob, io, os, pathlib, shutil, sqlite3, sys, tempfile
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.trials.redirected_writes import RedirectedWrites
from compilediag_harness.wire import WriteProtection

here = os.getcwd()
trial = os.path.join(here, ".compilediag", "trial")
free = (os.path.join(here, ".compilediag"),)
recent = (os.path.join(here, "seen.txt"), os.path.join(here, "unseen.txt"))
RedirectedWrites(WriteProtection(trial, (here,), free, recent)).install(PostImport())

with open("old.txt", "w") as file:
    file.write("new")
assert open("old.txt").read() == "new"
with open("log.txt", "a") as file:
    file.write("more")
assert pathlib.Path("log.txt").read_text() == "logmore"
pathlib.Path("made.txt").write_text("made")
assert sorted(glob.glob("*.txt")) == sorted(
    ["old.txt", "log.txt", "made.txt", "seen.txt", "unseen.txt"]
) , glob.glob("*.txt")
os.makedirs("out/deep")
pathlib.Path("out/deep/x.tmp").write_bytes(b"x")
os.replace("out/deep/x.tmp", "old.txt")
assert open("old.txt").read() == "x" and os.listdir("out/deep") == []
os.remove("log.txt")
assert not os.path.exists("log.txt") and "log.txt" not in os.listdir()
try:
    open("log.txt")
except FileNotFoundError:
    pass
else:
    raise AssertionError
shutil.rmtree("data")
assert not os.path.exists("data/a.bin") and not os.path.isdir("data")
os.makedirs("folder2/deep"); open("folder2/deep/n", "w").close(); shutil.rmtree("folder2")
os.mkdir("data")
assert os.listdir("data") == []
os.rename("folder", "renamed")
assert open("renamed/f").read() == "f" and not os.path.exists("folder")
shutil.copy("renamed/f", "copied")
os.symlink("copied", "link")
assert open("link").read() == "f"
database = sqlite3.connect("rows.db")
database.execute("insert into t values (2)")
database.commit()
assert database.execute("select count(*) from t").fetchone() == (2,)
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
    file.write("t")
descriptor = os.open("fd.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.write(descriptor, b"d"); os.close(descriptor)
assert open("fd.txt").read() == "d"
for attempt in (
    lambda: open("fd.txt", "x"), lambda: open("seen.txt", "x"), lambda: os.mkdir("out")
):
    try:
        attempt()
    except FileExistsError:
        continue
    raise AssertionError
for wrong in ("nowhere/x", "old.txt/x"):
    try:
        open(wrong, "w")
    except OSError:
        continue
    raise AssertionError
"""


def list_files(folder: Path) -> dict[str, bytes | None]:
    """List what lies below a folder, the trial's own left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if ".compilediag" not in path.parts
    }


def test_user_files_stay(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("create table t (n)")
        database.execute("insert into t values (1)")
    database.close()
    (tmp_path / ".compilediag" / "trial").mkdir(parents=True)
    for name in ("old.txt", "log.txt", "seen.txt", "unseen.txt", "data/a.bin", "folder/f"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(Path(name).stem)
    before = list_files(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert list_files(tmp_path) == before


def test_files_that_are_read_are_noted(tmp_path: Path) -> None:
    (tmp_path / ".compilediag" / "trial").mkdir(parents=True)
    for name in ("seen.txt", "unseen.txt"):
        (tmp_path / name).touch()
    head = PROGRAM.partition("with open")[0]
    reads = "os.path.exists('unseen.txt'); open('seen.txt')"
    code = f"{head}\n{reads}\nopen('unseen.txt', 'a').write('x')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    log = tmp_path / ".compilediag" / "trial" / "read-files.txt"
    assert log.read_text().split() == [str(tmp_path / "seen.txt")]


def test_what_an_earlier_execution_made_is_not_there(tmp_path: Path) -> None:
    (tmp_path / ".compilediag" / "trial").mkdir(parents=True)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "weights.txt").write_text("old")
    head = PROGRAM.partition("with open")[0]
    head = head.replace("free, recent)", "free, recent, (os.path.join(here, 'made'),))")
    code = (
        f"{head}\nassert not os.path.exists('made/weights.txt')\n"
        "assert 'made' not in os.listdir()\nos.mkdir('made')\n"
        "open('made/weights.txt', 'x').write('new')\n"
        "assert open('made/weights.txt').read() == 'new' and os.listdir('made') == ['weights.txt']"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "made" / "weights.txt").read_text() == "old"
