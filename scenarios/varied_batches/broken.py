"""A policy scores queries with their corruptions, of which every query has another number.

The candidates of a query are one batch. Compiled with `dynamic=False`, as CUDA graphs need it, every
new number of candidates compiles the policy again; from the ninth on it would run eagerly.
"""

import torch
from torch import nn

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

with torch.no_grad():
    for queries, corruptions in CORRUPTIONS:
        candidates = candidates_of(queries, corruptions)
        scores = compiled(candidates)
        assert torch.allclose(scores, policy(candidates))
        ranks = (scores.view(queries, -1)[:, 1:] > scores.view(queries, -1)[:, :1]).sum(1) + 1
        print(f"{queries} queries x {corruptions} corruptions: mrr {(1 / ranks).mean():.3f}")
