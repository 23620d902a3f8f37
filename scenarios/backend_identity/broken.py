"""A helper wraps the function with `torch.compile` and a new backend object for every request.

The cache belongs to the function's code, and an entry fits only the backend object it was made
by. A fresh closure per request therefore compiles the same code again each time.
"""

import torch


def scale(values):
    return values * 2.0 + 1.0


def counting_backend(log):
    def compile_graph(graph, example_inputs):
        log.append(len(graph.graph.nodes))
        return graph.forward

    return compile_graph


torch.manual_seed(0)
log = []
for request in range(4):
    compiled = torch.compile(scale, backend=counting_backend(log))
    print(f"request {request}: {compiled(torch.randn(8)).sum().item():.4f}, compiled {len(log)}")
