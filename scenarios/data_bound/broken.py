"""Train on samples that are made again each time they are asked for.

Every sample is parsed, character by character, in the process that trains. The model is small and
compiled, and it hardly matters: most of each step is waiting for the batch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH = 64, 16


class Texts(Dataset):
    def __init__(self):
        self.texts = [f"sample {number} " * 1500 for number in range(256)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        features = [0.0] * WIDTH
        for place, character in enumerate(self.texts[index]):
            features[(place * 31 + ord(character)) % WIDTH] += 1.0
        return torch.tensor(features) / len(self.texts[index])


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
