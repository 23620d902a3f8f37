"""A stream of 40 batches of 32 sizes through inductor, in one way: HOW OUT.

HOW is "static" (dynamic=False, the recompile limit raised), "automatic" (torch's default), "one" or
"four" (a FixedShape of one or of four sizes chosen by the planner, without a warm-up). Compiles by
torch's own count and seconds of wall time are written.
"""

import json
import random
import sys
import time

import torch

import compilediag


def main(how: str, out: str) -> None:
    torch._dynamo.config.recompile_limit = 64
    draw = random.Random(5)
    sizes = draw.sample(range(2, 129), 32)
    sizes += draw.choices(sizes, k=8)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
    function = torch.compile(model, dynamic=None if how == "automatic" else False)
    if how in ("one", "four"):
        function = compilediag.FixedShape(function, dims={"input": 0})
        function.observe(sizes)
        function.fit(1 if how == "one" else 4)
    batches = [torch.randn(size, 64) for size in sizes]
    with torch.no_grad():
        began = time.perf_counter()
        for batch in batches:
            assert torch.allclose(function(batch), model(batch), atol=1e-5)
        wall_s = time.perf_counter() - began
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with open(out, "w") as file:
        json.dump({"compiles": graphs, "wall_s": wall_s}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
