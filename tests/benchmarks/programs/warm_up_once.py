"""Warms up three sizes with inductor, forward and backward, and prints what its cache answered."""

import json

import torch

import compilediag


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
    compiled = torch.compile(model, dynamic=False)
    fixed = compilediag.FixedShape(compiled, dims={"input": 0}, buckets=[8, 32, 128])
    fixed.warmup(torch.randn(5, 64))
    counted = torch._dynamo.utils.counters["inductor"]
    hits, misses = counted["fxgraph_cache_hit"], counted["fxgraph_cache_miss"]
    print(json.dumps({"hits": hits, "misses": misses}))


if __name__ == "__main__":
    main()
