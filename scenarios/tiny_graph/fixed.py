"""The loop over the cell is compiled: one graph a step, in which the operations are fused."""

import torch

STEPS = 240
HORIZON = 20


class Decay(torch.nn.Module):
    """A running sum that forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.9))

    def cell(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.rate * state + x

    @torch.compile
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state = self.rate * inputs[0]
        for x in inputs[1:]:
            state = self.cell(state, x)
        return state


def main() -> None:
    torch.manual_seed(0)
    model = Decay()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.rand(HORIZON, 16)
    for _ in range(STEPS):
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
