"""The program configures logging after it imported torch, with Python's default settings.

`dictConfig` disables every logger that exists already, torch's structured trace among them.
From here on torch compiles in silence, and a tool that only listens would report zero. A run
whose evidence was cut off is not clean: the verdict is blind.
"""

import logging.config

import torch

logging.config.dictConfig(
    {
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


torch.manual_seed(0)
for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
