"""The first function gets one size: 71 frames, each compiled once."""

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
first(torch.ones(4))
values = torch.ones(4)
for number in range(70):
    values = make_stage(number)(values)
print(f"70 stages: {values.sum().item():.1f}")
