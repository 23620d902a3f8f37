"""Train a small GPT with two metrics, each at a cadence of its own, under torch.compile.

The positional table has its full size from the start, and the hooks are not compiled. Whatever the
cadences are, nothing is compiled twice: the steps that fire cost what their metric costs. The price
is a graph break at each hook.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

import compilediag as cd

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 64, 64, 4, 128, 8


class PositionalEncoding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", self.build(LENGTH), persistent=False)

    def build(self, length):
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        angles = torch.arange(length).unsqueeze(1) * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, x):
        length = x.shape[1]
        return x + self.table[:length]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        batch, length, _ = x.shape
        shape = (batch, length, 3, HEADS, WIDTH // HEADS)
        return self.qkv(x).view(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x):
        mixed = F.scaled_dot_product_attention(*self.heads(x), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Widen(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)

    def forward(self, x):
        return F.gelu(self.up(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = PositionalEncoding()
        self.attention = Attention()
        self.widen, self.narrow = Widen(), nn.Linear(4 * WIDTH, WIDTH)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.position(self.embedding(tokens))
        x = x + self.attention(self.attention_norm(x))
        x = x + self.narrow(self.widen(self.mlp_norm(x)))
        return self.head(x)


def watch_activations(model):
    """The effective rank of the MLP's activations, when capturing is switched on."""
    capture = False
    latest = {"rank": torch.zeros(())}

    @torch.compiler.disable
    def record(module, inputs, output):
        if capture:
            values = torch.linalg.svdvals(output.detach().flatten(0, 1))
            latest["rank"] = values.sum() ** 2 / (values**2).sum()

    def set_capture(value):
        nonlocal capture
        capture = value

    model.widen.register_forward_hook(record)
    return latest, set_capture


def watch_entropy(model):
    """The attention entropy, while there is a slot for it in the stash.

    The fused attention does not hand out its weights, so the hook computes them again.
    """
    stash = {}

    @torch.compiler.disable
    def record(module, inputs, output):
        if "entropy" in stash:
            query, key, _ = module.heads(inputs[0].detach())
            weights = torch.softmax((query @ key.transpose(-1, -2)).double() / WIDTH**0.5, dim=-1)
            stash["entropy"] = -(weights * weights.clamp_min(1e-9).log()).sum(-1).mean().detach()

    model.attention.register_forward_hook(record)
    return stash


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model gains nothing from more
    model = GPT()
    latest, set_capture = watch_activations(model)
    stash = watch_entropy(model)
    compiled = torch.compile(model, backend=options.backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    activations = cd.cadence("activations", every=4)
    attention_entropy = cd.cadence("attention_entropy", every=6)

    def train(step):
        set_capture(activations.due(step))
        if attention_entropy.due(step):
            stash["entropy"] = torch.zeros(())
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
        logits = compiled(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        stash.clear()

    cd.drive(train, steps=options.steps)
    print(f"effective rank {latest['rank']:.1f}")


if __name__ == "__main__":
    main()
