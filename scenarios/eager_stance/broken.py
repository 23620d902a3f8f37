"""A service is warmed up with one batch size, then set never to compile again.

Under the stance "eager_on_recompile" a batch of another size compiles nothing and reports nothing:
it runs eager, at every call.
"""

import torch


@torch.compile(backend="eager", dynamic=False)
def score(batch):
    return (batch * 2.0).sum()


score(torch.ones(8, 4))
torch.compiler.set_stance("eager_on_recompile")
for rows in (8, 8, 5, 8, 5):
    print(rows, score(torch.ones(rows, 4)).item())
