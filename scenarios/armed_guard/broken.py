"""A smoke test runs one step and reports zero recompiles. The second step would have one.

The cache of keys is filled by the call that was compiled with it empty: when the step ends, a
guard of the fresh graph is already false. Nothing has gone wrong yet, and the next call will
compile again.
"""

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.cached_keys = None

    def forward(self, queries, memory):
        if self.cached_keys is None:
            self.cached_keys = self.key(memory)
        return torch.softmax(queries @ self.cached_keys.transpose(-1, -2), dim=-1) @ memory


torch.manual_seed(0)
model = CachedAttention()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

loss = compiled(torch.randn(4, 8), torch.randn(6, 8)).square().mean()
loss.backward()
optimizer.step()
print(f"smoke test: one step, loss {loss.item():.4f}")
