"""The same policy behind `compilediag.FixedShape`: two sizes, whatever number of candidates comes.

Both sizes are compiled in the warm-up, after a check that padding changes no score; then nothing
compiles, and the scores are the same.
"""

import torch
from torch import nn

import compilediag as cd

CORRUPTIONS = [(4, 9), (7, 3), (2, 30), (5, 12), (11, 6), (3, 20), (7, 3)]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.entities = nn.Embedding(50, 16)
        self.head = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, candidates):
        return self.head(self.entities(candidates).flatten(1)).squeeze(-1)


def candidates_of(queries, corruptions):
    """Every query, and its corruptions: another last entity."""
    triples = torch.randint(50, (queries, 1, 3)).repeat(1, 1 + corruptions, 1)
    triples[:, 1:, 2] = torch.randint(50, (queries, corruptions))
    return triples.flatten(0, 1)


torch.manual_seed(0)
policy = Policy().eval()
compiled = torch.compile(policy, backend="eager", dynamic=False)
fixed = cd.FixedShape(compiled, dims={"candidates": 0}, buckets=[40, 80])

with torch.no_grad():
    fixed.warmup(torch.zeros(40, 3, dtype=torch.long), late="error")
    for queries, corruptions in CORRUPTIONS:
        candidates = candidates_of(queries, corruptions)
        scores = fixed(candidates)
        assert torch.allclose(scores, policy(candidates))
        ranks = (scores.view(queries, -1)[:, 1:] > scores.view(queries, -1)[:, :1]).sum(1) + 1
        print(f"{queries} queries x {corruptions} corruptions: mrr {(1 / ranks).mean():.3f}")
