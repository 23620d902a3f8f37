"""A compiled callable called bare and through a FixedShape, in turn: OUT CALLS PAIRS ROWS FOLDER.

Both run at 64 rows: bare with 64, through the FixedShape with ROWS padded to 64. Microseconds of
CPU a call are written as pairs.
"""

import json
import sys
import time

import torch

import compilediag

SIZE = 64


def main(out: str, calls: str, pairs: str, rows: str, _folder: str) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    compiled = torch.compile(model, backend="eager", dynamic=False)
    fixed = compilediag.FixedShape(compiled, dims={"input": 0}, buckets=[8, SIZE])
    whole, part = torch.randn(SIZE, 16), torch.randn(int(rows), 16)

    def block(function, batch) -> float:
        began = time.process_time()
        for _ in range(int(calls)):
            function(batch)
        return (time.process_time() - began) / int(calls) * 1e6

    with torch.no_grad():
        fixed.warmup(part)
        bare, padded = lambda: block(compiled, whole), lambda: block(fixed, part)
        found = []
        for number in range(int(pairs) + 2):
            second = padded() if number % 2 else None
            first = bare()
            found.append((first, padded() if second is None else second))
    with open(out, "w") as file:
        json.dump(found[2:], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
