"""GPT-2 (transformers), decoding with a cache that grows.

The first call has the prompt and no cache, the second one token and a cache, and from then on the
cache holds one more token each time. Three compiles, and then it stays: torch has made the length
of the cache dynamic. Where that is too slow, transformers has a static cache.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(
    n_layer=2, n_head=2, n_embd=64, vocab_size=256, n_positions=64, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config).eval()
compiled = torch.compile(model, backend="eager")

tokens = torch.randint(0, 256, (2, 8))
with torch.no_grad():
    output = compiled(tokens, use_cache=True)
    for _ in range(8):
        tokens = output.logits[:, -1:].argmax(-1)
        output = compiled(tokens, past_key_values=output.past_key_values, use_cache=True)
print(f"cache of {output.past_key_values.get_seq_length()} tokens")
