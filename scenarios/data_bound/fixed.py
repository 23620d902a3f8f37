"""Train on samples that were made once, before the first step.

The same work is done, but not between two steps. Where it does not fit into memory, workers
(`num_workers`) do it beside the training.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH = 64, 16


class Texts(Dataset):
    def __init__(self):
        texts = [f"sample {number} " * 1500 for number in range(256)]
        self.samples = torch.stack([self.features_of(text) for text in texts])

    @staticmethod
    def features_of(text):
        features = [0.0] * WIDTH
        for place, character in enumerate(text):
            features[(place * 31 + ord(character)) % WIDTH] += 1.0
        return torch.tensor(features) / len(text)

    def __len__(self):
        return len(self.samples)

    def __getitems__(self, indices):
        return self.samples[indices].unbind()


torch.manual_seed(0)
torch.set_num_threads(1)  # so small a model gains nothing from more
model = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, 1))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for batch in DataLoader(Texts(), batch_size=BATCH):
    loss = compiled(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
