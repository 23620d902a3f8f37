"""Programs that are no script in the working directory: `python -m` of a package in an editable
install, tests, ranks. The changed sources are found wherever they are imported from."""

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compilediag.cli import main

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

MARK = "torch._dynamo.maybe_mark_dynamic(x, 0)"


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def mark(name: str) -> None:
    """Make the change: a size is marked as dynamic."""
    path = Path(name)
    path.write_text(path.read_text().replace("pass  # mark", MARK))


def record(*words: str) -> None:
    assert main(["run", "--record", "--quiet", *words]) == 0


def certify(*words: str) -> tuple[int, dict[str, Any]]:
    """Certify and return the exit code and the document."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["certify", "--json", "--quiet", *words])
    assert len(out.getvalue()) <= 2_001  # a newline
    return code, json.loads(out.getvalue())


MODEL = """
import torch

def forward(x, w):
    pass  # mark
    return compiled(x, w)

@torch.compile(backend="eager")
def compiled(x, w):
    return (x @ w).relu().sum()
"""

DRIVER = """
import pathlib, sys
import editable_finder
editable_finder.install()  # as the .pth file of the install does
import mylib, torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    factor = float(pathlib.Path("factor.dat").read_text()) * float(([*sys.argv, "1"])[1])
    data = torch.arange(44.0).reshape(11, 4)
    for batch in DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork"):
        print(f"loss {mylib.forward(batch, torch.ones(4, 2)).item() * factor:.4f}", flush=True)
"""

FINDER = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "mylib":
            folder = {folder!r}
            file = f"{{folder}}/__init__.py"
            return spec_from_file_location("mylib", file, submodule_search_locations=[folder])

def install():
    sys.meta_path.append(Finder)
"""


def test_an_editable_install_run_as_a_module_with_data_that_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        {
            "src/mylib/__init__.py": "from mylib.model import forward\n",
            "src/mylib/model.py": MODEL,
            "app/tool/__init__.py": "",
            "app/tool/__main__.py": DRIVER,
            "app/editable_finder.py": FINDER.format(folder=str(tmp_path / "src" / "mylib")),
            "app/factor.dat": "0.5",
            ".gitignore": "*.dat\n__pycache__\n.compilediag\n",
        }
    )
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    monkeypatch.chdir("app")
    record("-m", "tool")
    mark("../src/mylib/model.py")
    code, document = certify("--no-vary", "--also", "-m tool 2", "--", "-m", "tool")
    assert (code, document["verdict"]) == (0, "proved"), document
    assert (document["change"], document["executions"]) == (["../src/mylib/model.py"], 3)
    names = [point["name"] for point in document["points"] if point["outcome"] == "holds"]
    assert "also -m tool 2" in names


TEST = """
import pytest, torch
from package import forward

@pytest.mark.parametrize("rows", [3, 4, 5])
def test_sizes(rows, weights):
    print("tested", rows)
    assert forward(torch.ones(rows, 4), weights) >= 0
"""


def test_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    conftest = "import pytest, torch\n\nweights = pytest.fixture(lambda: torch.ones(4, 2))\n"
    write({"package.py": MODEL, "conftest.py": conftest, "tests/test_sizes.py": TEST})
    words = ("-m", "pytest", "-q", "-s", "tests/test_sizes.py")
    record(*words)
    mark("package.py")
    Path("conftest.py").write_text(conftest.replace("torch.ones(4, 2)", "torch.ones(4, 1 + 1)"))
    code, document = certify("--no-vary", "--", *words)
    assert (code, document["executions"]) == (0, 1), document
    # What a fixture and a test do is a part of the program.
    Path("conftest.py").write_text(conftest.replace("torch.ones(4, 2)", "torch.ones(4, 2) * 2"))
    code, document = certify("--no-vary", "--", *words)
    assert code == 3, document


GENERATE = """
import torch

@torch.compile(backend="eager")
def score(x):
    return x.cumsum(0).tanh()

def generate(x):
    for _ in range(2):
        x = torch.cat((x, score(x)[-1:]))
    return x

for rows in (3, 4):
    print(generate(torch.ones(rows)).tolist())
"""


def test_where_calls_get_other_arguments_the_function_above_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write({"train.py": GENERATE})
    record("train.py")
    padded = "score(torch.nn.functional.pad(x, (0, max(64, len(x)) - len(x))))[len(x) - 1:][:1]"
    write({"train.py": GENERATE.replace("score(x)[-1:]", padded)})
    code, document = certify("--", "train.py")
    assert (code, document["executions"]) == (0, 3), document
    # A longer one is cut off in silence.
    write({"train.py": GENERATE.replace("score(x)[-1:]", padded.replace("max(64, len(x))", "64"))})
    code, document = certify("--", "train.py")
    assert code == 4, document
    assert "beyond the run: size" in json.dumps(document)


REPEAT = """
import torch

def layer(x):
    return (x @ x.T).tanh() @ x

def repeat(x, times):
    for _ in range(times):
        x = layer(x)
    return x

repeat = torch.compile(repeat, backend="eager")
for times in (2, 3, 4):
    print(repeat(torch.ones(3, 4) / 4, times).tolist())
"""


def test_where_less_is_compiled_at_once_the_recorded_calls_stand_for_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the function that is no longer compiled itself the new state makes the same calls."""
    monkeypatch.chdir(tmp_path)
    write({"train.py": REPEAT})
    record("train.py")
    inner = REPEAT.replace("repeat = torch.compile(repeat,", "layer = torch.compile(layer,")
    write({"train.py": inner})
    code, document = certify("--", "train.py")
    assert (code, document["executions"]) == (0, 2), document
    write({"train.py": inner.replace("times):", "min(times, 4)):")})
    code, document = certify("--", "train.py")
    assert (code, document["executions"]) == (3, 2), document


def run_and_read_next(capfd: pytest.CaptureFixture[str], *options: str) -> str:
    """Run the program and read the command that leads on."""
    assert main(["run", "--no-live", *options, "t.py"]) == 0
    return capfd.readouterr().err.rpartition("next: compilediag ")[2].strip()


def test_after_an_edit_of_a_recorded_run_its_proof_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before it is made, and again after an edit of what was proved; the gate only behind it."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "t.py"
    source = (
        "import torch\n"
        'compiled = torch.compile(lambda x: x.sum(), backend="eager")\n'
        "for n in range(8):\n"
        "    x = torch.ones(2 + n % 3)\n"
        "    print(compiled(x).item())\n"
    )
    marked = source.replace("print", "torch._dynamo.mark_dynamic(x, 0); print")
    program.write_text(source)
    run_and_read_next(capfd, "--record")
    program.write_text(marked)
    assert run_and_read_next(capfd) == "certify -- t.py"
    assert main(["certify", "--quiet", "--", "t.py"]) == 0, capfd.readouterr()
    capfd.readouterr()
    assert run_and_read_next(capfd) == "gate --update"
    program.write_text(marked.replace("x.sum()", "x.sum() * 2"))
    assert run_and_read_next(capfd) == "certify -- t.py"
