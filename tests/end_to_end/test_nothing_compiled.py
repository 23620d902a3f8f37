"""Programs that compile nothing: the reason is the true one, and its remedy, followed to the
letter, gives a compiled frame by torch's own count."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import compilediag

pytestmark = pytest.mark.usefixtures("forked")

DDP = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
model = {model}
model(torch.randn(4, 8))
torch.distributed.destroy_process_group()
from torch._dynamo.utils import get_compilation_metrics

print("graphs", sum(bool(row.graph_op_count) for row in get_compilation_metrics()))
"""
WRAPPED = 'torch.compile(DistributedDataParallel(module), backend="eager")'
INSIDE = 'DistributedDataParallel(torch.compile(module, backend="eager"))'

EXPORTS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()

class Branch(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1

batch = torch.export.Dim("batch")
torch.export.export(Model(), (torch.randn(4, 8),), strict={strict})
torch.export.export(
    Model(), (torch.randn(4, 8),), strict={strict}, dynamic_shapes={{"x": {{0: batch}}}}
)
try:
    torch.export.export(Branch(), (torch.randn(4, 8),), strict={strict})
except Exception as error:
    print(type(error).__name__)
"""


def run(folder: Path, source: str, *options: str) -> tuple[dict[str, Any], str, str]:
    """The receipt of a program, what it printed, and the screen."""
    (folder / "program.py").write_text(source)
    out = folder / f"out{len(list(folder.iterdir()))}"
    done = compilediag("run", "-o", str(out), *options, "program.py", cwd=folder)
    return json.loads((out / "receipt.json").read_text()), done.stdout, done.stderr


def nothing_compiled(receipt: dict[str, Any]) -> dict[str, Any]:
    """The finding that nothing was compiled, the only one of doubt."""
    (finding,) = [item for item in receipt["findings"] if item["rule"].startswith("CD9")]
    assert (finding["rule"], receipt["verdict"]) == ("CD901", "blind")
    return finding


def test_distributed_data_parallel_around_modules_of_torch(tmp_path: Path) -> None:
    """torch counts no graph; compiled inside the wrapper, as the remedy says, it counts one."""
    receipt, said, screen = run(tmp_path, DDP.format(model=WRAPPED))
    fix = nothing_compiled(receipt)["fix"]["summary"]
    assert "graphs 0" in said
    assert "DistributedDataParallel(torch.compile(module))" in fix
    assert "? nothing was compiled: torch runs its own wrapper" in screen
    mended, said, _ = run(tmp_path, DDP.format(model=INSIDE))
    assert "graphs 1" in said
    assert (mended["verdict"], mended["compile"]["graphs"]) == ("clean", 1)


@pytest.mark.parametrize("strict", [True, False])
def test_exports_live_and_in_their_trace(tmp_path: Path, *, strict: bool) -> None:
    """Also dynamic and failing ones: no frame, no eager fallback, the same in the trace."""
    receipt, _, screen = run(tmp_path, EXPORTS.format(strict=strict), "--trace")
    assert nothing_compiled(receipt)["evidence"]["why"] == "ahead_of_time"
    assert [receipt["compile"][key] for key in ("frames", "compiles", "eager_fallbacks")] == [0] * 3
    assert "not seen" not in screen
    (trace,) = tmp_path.glob("out*/artifacts/**/*.log")
    analyzed = compilediag("analyze", "-o", "again", str(trace), cwd=tmp_path)
    assert analyzed.returncode == 0, analyzed.stderr
    again = json.loads((tmp_path / "again/receipt.json").read_text())
    assert nothing_compiled(again)["evidence"]["why"] == "ahead_of_time"
    assert again["compile"]["frames"] == 0
