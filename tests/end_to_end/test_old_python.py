"""A Python older than 3.10: one sentence, wherever it meets compilediag, and the target runs on.

Its version is pretended: the machine may have none. What it reads must be in its own syntax.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import captured

ROOT = Path(__file__).parents[2]
BOOTSTRAP = ROOT / "harness" / "compilediag_harness" / "bootstrap" / "sitecustomize.py"
PRETEND = "import sys; sys.version_info = (3, 9, 18, 'final', 0); sys.argv = [{argv!r}]\n"
ATTACH = """import contextlib
with contextlib.suppress(ImportError):
    import sitecustomize
print('compilediag_harness' in sys.modules)
"""


def pretending(code: str, argv: str = "x.py", **environ: str) -> subprocess.CompletedProcess[str]:
    return captured(
        sys.executable, "-S", "-c", PRETEND.format(argv=argv) + code, env={**os.environ, **environ}
    )


@pytest.mark.parametrize(
    ("file", "version"), [(BOOTSTRAP, (3, 6)), (ROOT / "compilediag" / "__init__.py", (3, 7))]
)
def test_an_old_python_can_read_it(file: Path, version: tuple[int, int]) -> None:
    """Else a SyntaxError would be all that it says."""
    ast.parse(file.read_text("utf-8"), feature_version=version)


def test_the_target_runs_and_the_reason_is_kept(tmp_path: Path) -> None:
    """Nothing of the harness is imported, nothing is printed."""
    run_dir, path = str(tmp_path), str(BOOTSTRAP.parent)
    done = pretending(ATTACH, PYTHONPATH=path, COMPILEDIAG_RUN_DIR=run_dir)
    assert (done.stdout, done.stderr) == ("False\n", "")
    (note,) = tmp_path.glob("attach-fault-*.txt")
    assert note.read_text().startswith("Python 3.9.18 (")
    assert "is older than 3.10" in note.read_text()


@pytest.mark.parametrize(("argv", "error"), [("-m", ""), ("x.py", "ImportError: ")])
def test_compilediag_itself(argv: str, error: str) -> None:
    """`python3.9 -m compilediag` ends with the sentence alone; an import raises it."""
    done = pretending("import compilediag", argv, PYTHONPATH=str(ROOT))
    version = sys.version.split()[0]
    sentence = f"compilediag needs Python 3.10 or newer, and this is {version}\n"
    assert done.stderr.endswith(error + sentence)
    assert (done.returncode, done.stderr == sentence) == (1, argv == "-m")
