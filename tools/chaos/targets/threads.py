"""64 threads call one compiled function, each with a word of its own, at once."""

import threading

import torch


def scaled(x: torch.Tensor, factor: str) -> torch.Tensor:
    return x * 2 if factor == "double" else x + 1


compiled = torch.compile(scaled, backend="eager")
start = threading.Barrier(64)
sums: list[float] = []


def call(index: int) -> None:
    start.wait()
    sums.append(float(compiled(torch.ones(4), f"word {index}").sum()))


threads = [threading.Thread(target=call, args=(index,)) for index in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("total", sum(sums), flush=True)
