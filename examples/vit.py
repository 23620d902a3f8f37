"""A vision transformer (DINOv2, transformers) with a drop-path schedule and a smaller last batch.

The schedule writes a Python number into each block, once an epoch. Dynamo guards such a number, so
the first change compiles the whole model again; then torch keeps it symbolic. Two values set in a
warm-up move that compile to the start. The one of the last batch goes away with `drop_last=True`.
"""

import torch
from torch import nn
from transformers import Dinov2Config, Dinov2ForImageClassification
from transformers.models.dinov2.modeling_dinov2 import Dinov2DropPath

torch.manual_seed(0)
config = Dinov2Config(
    image_size=28,
    patch_size=14,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=2,
    drop_path_rate=0.1,
    num_labels=10,
)
model = Dinov2ForImageClassification(config)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
paths = [layer for layer in model.modules() if isinstance(layer, Dinov2DropPath)]

for epoch in range(4):
    for path in paths:
        path.drop_prob = 0.1 * (epoch + 1) / 4
    for batch in (8, 8, 5):
        logits = compiled(torch.randn(batch, 3, 28, 28)).logits
        nn.functional.cross_entropy(logits, torch.randint(0, 10, (batch,))).backward()
        optimizer.step()
        optimizer.zero_grad()
