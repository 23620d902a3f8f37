"""The program that the tests of depyf compile."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

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


def second(tmp_path: Path, code: str, time_s: float = 60.0, **more: Any) -> Decompiled:
    """The second run of a program that writes notes as the child does, or does not."""
    command = [sys.executable, "-S", "-c", f"import os\n{code}"]
    known = {"PATH": os.environ["PATH"]}
    return decompile_run(command, known, str(tmp_path / "into"), time_s=time_s, **more)
