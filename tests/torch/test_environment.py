"""The facts of a run: read, never initialised; null where a machine does not tell."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from compilediag_harness.torch_internals import environment


class Silent:
    """A torch that knows nothing: every question raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_a_machine_that_tells_nothing_gives_nulls() -> None:
    """No question can break the run; the keys are always the same."""
    facts = environment.read(Silent())
    assert facts["torch"] is None
    assert facts["numerics_flags"] is None
    assert facts["python"].startswith("3.")
    assert facts["cpu_count"] == os.cpu_count()
    assert json.loads(json.dumps(facts)) == facts


def test_only_listed_variables_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name or prefix, bounded in length; a secret beside them is not read."""
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TORCH_LOGS", "x" * 10_000)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "none")
    facts = environment.read(Silent())
    assert facts["env"]["NCCL_DEBUG"] == "INFO"
    assert len(facts["env"]["TORCH_LOGS"]) < 600
    assert "secret" not in json.dumps(facts)
    assert (facts["rank"], facts["world_size"]) == (3, None)


def test_gpus_are_read_from_torch_only_when_it_is_initialised() -> None:
    """A program that has not touched CUDA does not begin to because of us."""
    properties = SimpleNamespace(
        name="GPU", total_memory=1024, major=9, minor=0, multi_processor_count=4
    )
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda _: properties,
    )
    torch = SimpleNamespace(cuda=cuda)
    assert environment.read(torch)["gpus"] == [
        {"index": 0, "name": "GPU", "memory_bytes": 1024, "capability": "9.0", "multiprocessors": 4}
    ]

    def refuse(_: int) -> None:
        raise AssertionError("CUDA was asked before it was initialised")

    cuda.is_initialized, cuda.get_device_properties = lambda: False, refuse
    assert isinstance(environment.read(torch)["gpus"], list)


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
