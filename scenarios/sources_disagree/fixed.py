"""The other tool wraps what it finds instead of replacing it, and the size is declared dynamic."""

import torch
from torch._dynamo import convert_frame

questions = []
found = convert_frame.get_and_maybe_log_recompilation_reasons


def count_questions(*arguments, **options):
    reasons = found(*arguments, **options)
    questions.append(reasons)
    return reasons


convert_frame.get_and_maybe_log_recompilation_reasons = count_questions


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
print(f"{len(questions)} recompiles")
