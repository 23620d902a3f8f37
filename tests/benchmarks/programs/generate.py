"""Text of a small Llama of random weights, a static cache, compiled for Dynamo alone: LAYERS.

Prompts of other lengths and batches need other caches, and each of these recompiles.
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PROMPTS = ((2, 6), (2, 9), (1, 12), (3, 7))
"""Batch and length."""
NEW_TOKENS = 16


def main(layers: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    model.forward = torch.compile(model.forward, backend="eager")
    for batch, length in PROMPTS:
        prompt = torch.randint(3, config.vocab_size, (batch, length))
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            cache_implementation="static",
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
