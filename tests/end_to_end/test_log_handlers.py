"""What `run` puts in force in torch's logging reaches no handler but its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("forked")

COMPILES = """
import logging
import sys
import torch

def compiles():
    f = torch.compile(lambda x, n: x + n, backend="eager", dynamic=False)
    for n in range(3):
        f(torch.ones(2), n)

    def g(x):
        torch._dynamo.graph_break()
        return x + 1

    torch.compile(g, backend="eager")(torch.ones(2))
"""

HANDLERS = """
shown = logging.StreamHandler(sys.stdout)
shown.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
logging.basicConfig(level=logging.DEBUG, handlers=[shown])
logging.getLogger("mine").debug("mine")
for name in sys.argv[1:]:
    logging.getLogger(name).addHandler(shown)
compiles()
"""

FAILS = """
def test_it():
    compiles()
    assert False
"""


def printed(*words: str, folder: Path, logs: str = "") -> str:
    """What a program prints on both streams, without the seconds that pytest measures."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **({"TORCH_LOGS": logs} if logs else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return re.sub(r"\b[\d.]+s\b( \(.*?\))?", "SECONDS", done.stdout)


OURS = ("-m", "compilediag", "run", "--quiet")


def test_the_report_of_pytest_is_that_of_a_plain_run(tmp_path: Path) -> None:
    """A failing test that recompiles and breaks its graph: not a line more in the report."""
    (tmp_path / "test_x.py").write_text(COMPILES + FAILS)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_x.py")
    plain = printed(*words, folder=tmp_path)
    assert "Captured log call" in plain
    assert printed(*OURS, *words, folder=tmp_path) == plain


@pytest.mark.parametrize(
    "loggers", [(), ("torch",), ("torch._dynamo", "torch._dynamo.guards")], ids=" ".join
)
def test_handlers_of_the_program_get_the_records_of_a_plain_run(
    loggers: tuple[str, ...], tmp_path: Path
) -> None:
    """On the root logger, on torch's own, whenever they were put there; and torch_logs.txt has
    the records that the handlers do not get."""
    (tmp_path / "x.py").write_text(COMPILES + HANDLERS)
    plain = printed("x.py", *loggers, folder=tmp_path)
    assert plain.startswith("mine DEBUG mine")
    assert printed(*OURS, "-o", "out", "x.py", *loggers, folder=tmp_path) == plain
    kept = (tmp_path / "out" / "torch_logs.txt").read_text()
    assert "[__recompiles]" in kept
    assert "[__graph_breaks]" in kept


def test_what_the_user_enabled_reaches_the_users_handlers(tmp_path: Path) -> None:
    """TORCH_LOGS=recompiles: these records, and no graph break."""
    (tmp_path / "x.py").write_text(COMPILES + HANDLERS)
    words = ("x.py", "torch._dynamo")
    plain = printed(*words, folder=tmp_path, logs="recompiles")
    ours = printed(*OURS, *words, folder=tmp_path, logs="recompiles")
    assert len(re.findall("__recompiles DEBUG", plain)) == 2
    assert re.findall("^torch.*", ours, re.MULTILINE) == re.findall("^torch.*", plain, re.MULTILINE)
