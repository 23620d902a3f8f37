"""The public surface of `import compilediag as cd`: what it holds, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys

CHILD = """
import sys
import compilediag as cd
from compilediag import cadence, drive, span, step
for _ in range(3):
    with span("x"):
        step()
assert drive(lambda step: cadence("c", 2).due(step), steps=3) == 3
import threading
assert threading.active_count() == 1
print(sorted({"torch", "rich", "click", "msgspec", "numpy"} & set(sys.modules)))
"""


def test_it_is_inert_and_imports_nothing_heavy(tmp_path: os.PathLike[str]) -> None:
    """Without `compilediag run`: no torch, no terminal library, no thread, no file."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert os.listdir(tmp_path) == []
