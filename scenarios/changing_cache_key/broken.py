"""A scale that is drawn anew at every start is a number in the graph: no start finds the graph of an
earlier one in a cache."""

import random

import torch

SCALE = random.Random().uniform(0.5, 1.5)


@torch.compile
def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * SCALE).sum()


def main() -> None:
    for _ in range(4):
        scaled(torch.ones(8))


if __name__ == "__main__":
    main()
