"""A backend of the program's own rewrites graphs, and its pass is wrong: it leaves relu out, so that
negative numbers stay. Nothing fails and training goes on, with other numbers than eager."""

import torch
from torch import nn

STEPS = 8


def without_relu(graph, inputs):
    """Every relu is left out, and its input taken instead."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.relu):
        node.replace_all_uses_with(node.args[0])
        graph.graph.erase_node(node)
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
    encode = torch.compile(encoder, backend=without_relu)
    classify = torch.compile(head, backend=without_relu)
    for _ in range(STEPS):
        loss = classify(encode(torch.randn(1024, 64))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
