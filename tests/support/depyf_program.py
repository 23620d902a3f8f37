"""The program that the tests of depyf compile."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from command_line import compilediag

from compilediag.runs.tools.depyf import Decompiled, decompile_run

PROGRAM = """
import pathlib
import torch

@torch.compile(backend="eager")
def scale(x, n):
    y = x * n
    print("runs", n)
    return y + 1

for n in (2, 3):
    scale(torch.ones(4), n)
with open("ran", "a") as file:
    file.write("once ")
"""


def run_depyf(folder: Path) -> tuple[Path, Any, str, str]:
    """The folder of `run --depyf` on the program; its receipt and output."""
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    options = ("--depyf", "--no-live", "--output", "out")
    done = compilediag("run", *options, "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    receipt = json.loads((folder / "out" / "receipt.json").read_text(encoding="utf-8"))
    return folder, receipt, done.stdout, done.stderr


def second(tmp_path: Path, code: str, time_s: float = 60.0, **more: Any) -> Decompiled:
    """The second run of a program that writes notes as the child does, or does not."""
    command = [sys.executable, "-S", "-c", f"import os\n{code}"]
    known = {"PATH": os.environ["PATH"]}
    return decompile_run(command, known, str(tmp_path / "into"), time_s=time_s, **more)
