"""Every batch is encoded with a mask; that of a full batch hides nothing."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
encoder = torch.compile(layer, backend="eager")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

for step in range(6):
    tokens = torch.randn(4, 8, 16)
    hidden = torch.zeros(4, 8, dtype=torch.bool)
    if step % 3 == 1:
        hidden = torch.arange(8) >= torch.tensor([[8], [5], [3], [7]])
    loss = encoder(tokens, src_key_padding_mask=hidden).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
