"""Runs the programs of examples/ under compilediag, keeps the receipts, writes the gallery.

`make gallery` calls it in an environment that has what the programs import. `--page` runs nothing:
it writes the page from the receipts there are; `--check` only says whether the page is stale.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "tutorial" / "gallery.md"
NAMES = ("gpt2", "vit", "unet", "gnn", "ppo")
HOME = "/home/you"
"""What stands in receipts for the folders of the machine that made them."""

HEAD = """\
<!-- Written by `make gallery`; change examples/ instead. -->
# Five real architectures

Small programs on libraries as they are, with random weights, each the way such code is written.
They compile with `backend="eager"`, so that each runs in seconds on a CPU; causes and counts are
those of every backend, seconds are not. `make gallery` runs them again, in an environment
of its own, and the screens below are drawn from the receipts it leaves in `examples/receipts`. Look
further with, say, `compilediag explain 1 examples/receipts/gpt2.json`.
"""


def main() -> int:
    """1 when `--check` found the page stale, 2 when a program failed, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="these programs; else all")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    parser.add_argument("--check", action="store_true", help="run nothing, compare the page")
    options = parser.parse_args()
    if options.check:
        return int(PAGE.read_text(encoding="utf-8") != page())
    if not options.page:
        failed = [name for name in options.names or NAMES if not record(name)]
        if failed:
            print(f"failed: {' '.join(failed)}")
            return 2
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")
    return 0


def record(name: str) -> bool:
    """Runs one program in a folder of its own, and keeps its receipt where the run was whole."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        shutil.copy(EXAMPLES / f"{name}.py", folder)
        words = ["run", "--no-live", "--output", "run", f"{name}.py"]
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "caches")}
        done = subprocess.run(
            [sys.executable, "-m", "compilediag", *words],
            cwd=folder,
            env=os.environ | _paths() | caches,
            check=False,
        )
        receipt = folder / "run" / "receipt.json"
        if done.returncode != 0 or not receipt.is_file():
            return False
        kept = EXAMPLES / "receipts" / f"{name}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(_moved(receipt.read_text(encoding="utf-8"), folder), encoding="utf-8")
    return True


def _paths() -> dict[str, str]:
    """For the program's process, this checkout's compilediag, whether it is installed or not."""
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'harness'}"}


def _moved(text: str, folder: Path) -> str:
    """A receipt whose paths are those of nobody's machine."""
    return text.replace(str(folder), f"{HOME}/examples").replace(sys.prefix, f"{HOME}/.venv")


def page() -> str:
    """The page, from the programs and their receipts."""
    return "\n".join([HEAD, *(line for name in NAMES for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    program = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(program)) or ""
    title, _, body = text.partition("\n\n")
    yield f"## {title.removesuffix('.')}\n"
    yield f"{body}\n"
    yield f"```text\n{_screen(name)}```\n"
    yield f"The program, `examples/{name}.py`:\n"
    yield f"```python\n{program.partition('import ')[1]}{program.partition('import ')[2]}```\n"


def _screen(name: str) -> str:
    """The verdict of a receipt, as `compilediag show` prints it into a pipe."""
    fixed = {"COLUMNS": "100", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "compilediag", "show", f"examples/receipts/{name}.json"],
        cwd=ROOT,
        env=os.environ | _paths() | fixed,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
