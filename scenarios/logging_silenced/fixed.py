"""Logging is configured with `disable_existing_loggers` off, and nothing loses its voice."""

import logging.config

import torch

logging.config.dictConfig(
    {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


torch.manual_seed(0)
for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
