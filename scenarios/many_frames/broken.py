"""Seventy small functions are compiled after the one that recompiled.

torch keeps the last 64 compilation records. A tool that reads them at the end of the run has
lost the first ones, and with them the only recompile.
"""

import torch


@torch.compile(backend="eager", dynamic=False)
def first(values):
    return values * 2.0


def make_stage(number):
    def stage(values):
        return values + number

    # Functions with one code object would share one cache; each stage gets its own.
    stage.__code__ = stage.__code__.replace(co_name=f"stage_{number}")
    return torch.compile(stage, backend="eager")


torch.manual_seed(0)
first(torch.ones(4))
first(torch.ones(6))
values = torch.ones(4)
for number in range(70):
    values = make_stage(number)(values)
print(f"70 stages: {values.sum().item():.1f}")
