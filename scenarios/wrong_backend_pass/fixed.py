"""The pass of the backend puts clamp_min in the place of relu: the numbers are those of eager."""

import torch
from torch import nn

STEPS = 8


def with_clamp(graph, inputs):
    """Every relu becomes a clamp at zero."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.relu):
        node.target, node.args = torch.clamp_min, (node.args[0], 0.0)
    graph.recompile()
    return graph.forward


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 256)

    def forward(self, features):
        return torch.tanh(self.hidden(features))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(256, 256)
        self.out = nn.Linear(256, 4)

    def forward(self, hidden):
        return self.out(torch.relu(self.hidden(hidden)))


def main():
    torch.manual_seed(0)
    encoder, head = Encoder(), Head()
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01)
    encode = torch.compile(encoder, backend=with_clamp)
    classify = torch.compile(head, backend=with_clamp)
    for _ in range(STEPS):
        loss = classify(encode(torch.randn(1024, 64))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
