"""Another tool has put its own function where torch asks why it must recompile.

It forwards to the original, but around everyone who was listening there. torch's metrics and its
log tell of a recompile that the listeners never heard of: the sources disagree, so the verdict is
blind.
"""

import torch
from torch._dynamo import convert_frame, guards

questions = []


def count_questions(*arguments, **options):
    reasons = guards.get_and_maybe_log_recompilation_reasons(*arguments, **options)
    questions.append(reasons)
    return reasons


convert_frame.get_and_maybe_log_recompilation_reasons = count_questions


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
print(f"{len(questions)} recompile")
