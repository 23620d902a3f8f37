"""The switches are read once, where the layer is built, and one configuration is compiled.

A process uses one combination; what varies between experiments does not vary inside one.
"""

import torch


def build_layer(activation, norm):
    function = getattr(torch, activation)

    @torch.compile(backend="eager")
    def layer(tokens):
        hidden = function(tokens)
        if norm == "l2":
            return hidden / hidden.norm()
        if norm == "max":
            return hidden / hidden.abs().max()
        return hidden

    return layer


torch.manual_seed(0)
layer = build_layer("sigmoid", "max")
for step in range(6):
    print(f"step {step}: {layer(torch.rand(8)).sum():.4f}")
