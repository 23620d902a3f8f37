"""Writes a trace that holds what traces hold: frames, recompiles, graph breaks, backward graphs.

`TORCH_TRACE=DIR python traced.py large|small`; `small` is one function with a few recompiles.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, BLOCKS, STEPS = 64, 4, 4, 10


class Block(nn.Module):
    """Attention and a feed-forward part, with a graph break between them on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, *, broken: bool) -> Tensor:
        rows, length, _ = x.shape
        split = self.heads(self.first(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        if broken:
            torch._dynamo.graph_break()
        return x + self.wide(self.second(x))


class Net(nn.Module):
    """Positions that grow when they are too few, a mode that changes, a read of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.zeros(1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.mode = 0

    def forward(self, x: Tensor, scale: float) -> Tensor:
        if len(self.positions) < x.shape[1]:
            self.positions = torch.randn(x.shape[1], WIDTH)
        x = x + self.positions[: x.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x, broken=number == 1)
        if x.sum().item() > 1e9:
            x = x * 2
        return (x * scale).sum() + self.mode


def scaled(x: Tensor, factor: float) -> Tensor:
    """Compiled again for every kind of number."""
    y = x * factor
    print(end="")
    return y.sin()


def large() -> None:
    """Training of the model for some steps, with everything that makes it compile again."""
    model = Net()
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(STEPS):
        model.mode = step // 3
        length = (8, 8, 16, 16, 24)[step % 5]
        compiled(torch.randn(2, length, WIDTH), 1.0 if step < 5 else 0.5 * step).backward()
    with torch.no_grad():
        compiled(torch.randn(2, 8, WIDTH), 1.0)
    small()


def small() -> None:
    """One function, with whole numbers and then others."""
    compiled = torch.compile(scaled, backend="aot_eager")
    for number in range(4):
        compiled(torch.randn(4), number if number < 2 else float(number))


if __name__ == "__main__":
    torch.manual_seed(0)
    {"large": large, "small": small}[sys.argv[1]]()
