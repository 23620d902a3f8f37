"""A warm-up in a second process finds the backend's work of the first in torch's cache on disk."""

import json
import os
import sys
from pathlib import Path

import pytest
from command_line import captured

pytest.importorskip("torch")


PROGRAM = """
import json
import torch
import compilediag as cd

torch.manual_seed(0)
weight = torch.randn(8, 8)

@torch.compile(dynamic=False)
def project(rows):
    return rows @ weight

fixed = cd.FixedShape(project, dims={"rows": 0}, buckets=[4, 8])
with torch.no_grad():
    begun = fixed.warmup(torch.randn(3, 8))
counted = torch._dynamo.utils.counters["inductor"]
print(json.dumps([begun, counted["fxgraph_cache_hit"], counted["fxgraph_cache_miss"]]))
"""
"""A product of matrices: inductor calls torch for it, and no C++ compiler."""

NO_CACHES = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_GRAPH_CACHE")


def test_a_second_process_hits_what_the_first_compiled(tmp_path: Path) -> None:
    """Both trace two sizes; the first misses both in inductor's cache, the second none."""
    program = tmp_path / "warm.py"
    program.write_text(PROGRAM, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in NO_CACHES}
    environment = {**kept, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}

    def warmed(*before: str) -> list[int]:
        """Compiles that began, hits and misses."""
        command = [sys.executable, *before, str(program)]
        done = captured(*command, cwd=tmp_path, env=environment, check=True)
        begun, hits, misses = json.loads(done.stdout.splitlines()[-1])
        return [begun, hits, misses]

    assert warmed() == [2, 0, 2]
    assert warmed() == [2, 2, 0]
    supervised = ("-m", "compilediag", "run", "--output", str(tmp_path / "run"))
    assert warmed(*supervised) == [2, 2, 0], "a supervised run has the keys of a plain one"
