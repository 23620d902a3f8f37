"""A stream of 40 batches of 32 sizes in CUDA graphs, in one way: HOW OUT [DEVICE].

HOW is "static" (dynamic=False, the recompile limit raised), "automatic" (torch's default) or "four"
(a FixedShape of four sizes chosen by the planner, warmed up). The stream comes once to compile and
record, then ten times: milliseconds a batch of these, the device waited for at their end, and
torch's own list of recordings are written, with the seconds of everything before.
"""

import json
import random
import sys
import time

import torch

import compilediag

PASSES = 10


def main(how: str, out: str, device: str = "cuda") -> None:
    torch._dynamo.config.recompile_limit = 64
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    draw = random.Random(5)
    sizes = draw.sample(range(2, 129), 32)
    sizes += draw.choices(sizes, k=8)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(16)]
    model = torch.nn.Sequential(*layers).to(device)
    dynamic = None if how == "automatic" else False
    function = torch.compile(model, mode="reduce-overhead", dynamic=dynamic)
    batches = [torch.randn(size, 256, device=device) for size in sizes]
    began = time.perf_counter()
    with torch.no_grad():
        if how == "four":
            function = compilediag.FixedShape(function, dims={"input": 0})
            function.observe(sizes)
            function.fit(4)
            function.warmup(batches[0])
        for _ in range(3):  # warm up, record, replay
            for batch in batches:
                function(batch)
        wait()
        ready_s = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(PASSES):
            for batch in batches:
                function(batch)
        wait()
        batch_ms = (time.perf_counter() - began) / PASSES / len(batches) * 1e3
    recordings = len(torch._dynamo.utils.compilation_time_metrics.get("CUDAGraphNode.record", ()))
    with open(out, "w") as file:
        json.dump({"recordings": recordings, "batch_ms": batch_ms, "ready_s": ready_s}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
