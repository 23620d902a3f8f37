"""A graph network (PyTorch Geometric) on batches of graphs of any size.

Each batch has another number of nodes and of edges. Adding self loops breaks the graph in each
layer, and every piece behind a break is compiled for itself, again for each size it receives. Self
loops that are added once, when the data is made (`add_self_loops=False`), and the number of graphs
as an argument of the pooling remove the breaks.
"""

import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(8, 16)
        self.second = GCNConv(16, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, x, edges, batch):
        x = self.first(x, edges).relu()
        x = self.second(x, edges).relu()
        return self.head(global_mean_pool(x, batch))


def graph():
    nodes = int(torch.randint(5, 12, ()))
    edges = torch.randint(0, nodes, (2, 3 * nodes))
    return Data(x=torch.randn(nodes, 8), edge_index=edges, y=torch.randint(0, 2, (1,)))


torch.manual_seed(0)
network = Network()
compiled = torch.compile(network, backend="eager")
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

for step in range(6):
    data = Batch.from_data_list([graph() for _ in range(4)])
    logits = compiled(data.x, data.edge_index, data.batch)
    nn.functional.cross_entropy(logits, data.y).backward()
    optimizer.step()
    optimizer.zero_grad()
