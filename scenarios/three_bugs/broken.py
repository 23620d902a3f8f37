"""Train a character-level GPT, with metrics, under torch.compile.

The run is correct and its loss falls, but some steps take seconds instead of milliseconds. Three
independent habits each make torch compile the whole model again: a positional table that grows
when it is first used, a metric hook that reads a flag of its closure, and an attention-entropy
hook that looks into a dict which somebody fills later. torch reports them one at a time.
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

TEXT = """Shall I compare thee to a summer's day? Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May, and summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines, and often is his gold complexion dimm'd;
And every fair from fair sometime declines, by chance or nature's changing course untrimm'd."""
VOCABULARY = sorted(set(TEXT))
TOKENS = torch.tensor([VOCABULARY.index(character) for character in TEXT])

WIDTH, HEADS, LENGTH, BATCH = 32, 2, 24, 8
ACTIVATIONS_EVERY = 4
ENTROPY_EVERY = 6


class PositionalEncoding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", self.build(1), persistent=False)

    def build(self, length):
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        angles = torch.arange(length).unsqueeze(1) * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, x):
        length = x.shape[1]
        if self.table.shape[0] < length:
            self.table = self.build(length)
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


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), WIDTH)
        self.position = PositionalEncoding()
        self.lower, self.upper = Block(), Block()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(VOCABULARY))

    def forward(self, tokens):
        x = self.position(self.embedding(tokens))
        x = self.upper(self.lower(x))
        return self.head(self.norm(x))


def watch_activations(model):
    """The mean activation of the last block, when capturing is switched on."""
    capture = False
    latest = {"activation": torch.zeros(())}

    def record(module, inputs, output):
        if capture:
            latest["activation"] = output.detach().abs().mean()

    def set_capture(value):
        nonlocal capture
        capture = value

    model.upper.register_forward_hook(record)
    return latest, set_capture


def watch_entropy(model):
    """The attention entropy of the first block, once somebody put a slot for it into the stash.

    The fused attention does not hand out its weights, so the hook computes them again.
    """
    stash = {}

    def record(module, inputs, output):
        if "entropy" in stash:
            query, key, _ = module.heads(inputs[0].detach())
            weights = torch.softmax(query @ key.transpose(-1, -2) / WIDTH**0.5, dim=-1)
            stash["entropy"] = -(weights * weights.clamp_min(1e-9).log()).sum(-1).mean().detach()

    model.lower.attention.register_forward_hook(record)
    return stash


def batch():
    starts = torch.randint(len(TOKENS) - LENGTH - 1, (BATCH,))
    rows = torch.stack([TOKENS[start : start + LENGTH + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = GPT()
    latest, set_capture = watch_activations(model)
    stash = watch_entropy(model)
    compiled = torch.compile(model, backend=options.backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for step in range(options.steps):
        started = time.perf_counter()
        set_capture(step > 0 and step % ACTIVATIONS_EVERY == 0)
        if step == ENTROPY_EVERY:
            stash["entropy"] = torch.zeros(())
        inputs, targets = batch()
        loss = F.cross_entropy(compiled(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        notes = f"  activation {latest['activation']:.3f}" if step % ACTIVATIONS_EVERY == 0 else ""
        notes += f"  entropy {stash['entropy']:.3f}" if "entropy" in stash else ""
        seconds = time.perf_counter() - started
        print(f"step {step:2d}  loss {loss.item():.4f}  {seconds:6.3f} s{notes}", flush=True)


if __name__ == "__main__":
    main()
