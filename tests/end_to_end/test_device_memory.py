"""Memory of CUDA devices, with allocators made by hand: there is no GPU where the tests run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

# --- reading ---


PROGRAM = """
import json
import torch
from compilediag.runs.watch import watch
with watch() as seen:
    for _ in range(4):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
memory = seen.receipt.memory
faults = [fault.where for fault in seen.timeline.faults]
print(json.dumps([torch.cuda.is_initialized(), faults, memory.host_peak_bytes > 10**6]))
"""


def test_a_cpu_run_initialises_nothing() -> None:
    """In a process of its own: CUDA stays as it was, and nothing of ours fails."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COMPILEDIAG")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(done.stdout) == [False, [], True]
