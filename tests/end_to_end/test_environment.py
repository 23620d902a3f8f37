"""The facts of a run: read, never initialised; null where a machine does not tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CHILD = """
import json, sys, warnings
warnings.simplefilter("error")
import torch
from compilediag_harness.torch_internals import environment
before = set(sys.modules)
torch.set_float32_matmul_precision("high")
facts = environment.read(torch)
new = sorted(name for name in set(sys.modules) - before if name.startswith("torch"))
print(json.dumps([facts, new, torch.cuda.is_initialized(), "torch._dynamo" in sys.modules]))
"""


def test_reading_changes_nothing() -> None:
    """A fresh process: no warning, no CUDA, no new torch module; the flags are the program's."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCH_COMPILE_JOB_ID": "job"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    facts, new, initialised, dynamo = json.loads(done.stdout)
    assert (new, initialised, dynamo) == ([], False, False)
    assert facts["numerics_flags"]["matmul_precision"] == "high"
    assert facts["numerics_flags"]["autocast_cpu"] is None
    assert facts["numerics_flags"]["num_threads"] >= 1
    assert facts["precision"] == "fp32"
    assert facts["compile"]["job_id"] == "job"
    assert facts["compile"]["dynamo_loaded"] is False
    assert facts["torch"][0].isdigit()
