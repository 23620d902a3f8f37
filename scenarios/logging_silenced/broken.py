"""The program configures logging after its first compile, with Python's default settings.

`dictConfig` disables every logger that exists already, also those in which torch reports graph
breaks. The next function breaks its graph: torch's log says nothing of it, and the report does.
"""

import logging.config

import torch


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


@torch.compile(backend="eager", dynamic=True)
def reported(values):
    doubled = values * 2.0
    print("doubled")
    return doubled + 1.0


print(f"{double(torch.ones(4)).sum().item():.1f}")
logging.config.dictConfig(
    {
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)
print(f"{reported(torch.ones(4)).sum().item():.1f}")
