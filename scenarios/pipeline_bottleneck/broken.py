"""Train on samples that an inference engine makes while training runs, one request at a time.

The engine takes a fifth of a second for a batch of eight, training takes a twentieth: the trainer
waits three quarters of its time. Both run on devices of their own, here stood in for by sleeping.
"""

import queue
import threading
import time

import torch
from torch import nn

import compilediag as cd

SLOTS = 1
BATCH, STEPS = 8, 12


class Engine:
    """Generates samples; every slot serves one request at a time."""

    def generate(self) -> torch.Tensor:
        time.sleep(0.2)  # the inference device is busy
        return torch.ones(BATCH, 16)


def produce(slot: int, engine: Engine, pool: queue.Queue, enough: threading.Event, loop) -> None:
    while not enough.is_set():
        with loop.infer(slot, samples=BATCH):
            batch = engine.generate()
        pool.put(batch)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    forward = torch.compile(model, backend="eager")
    forward(torch.ones(BATCH, 16)).sum().backward()  # compile before samples are wanted

    loop = cd.pipeline("rollout", slots=SLOTS)
    pool, enough = queue.Queue(), threading.Event()
    for slot in range(SLOTS):
        threading.Thread(
            target=produce, args=(slot, Engine(), pool, enough, loop), daemon=True
        ).start()
    for step in range(STEPS):
        with loop.dispatch_wait():
            batch = pool.get()
        loop.pool(pool.qsize() * BATCH)
        with loop.train(samples=BATCH):
            loss = forward(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)  # the training device is busy
        if step % 4 == 3:
            print(f"step {step}: {loop.line()}")
    enough.set()


if __name__ == "__main__":
    main()
