"""Nothing is printed inside of the compiled function, however logging is configured."""

import logging.config

import torch


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


@torch.compile(backend="eager", dynamic=True)
def doubled_more(values):
    doubled = values * 2.0
    return doubled + 1.0


print(f"{double(torch.ones(4)).sum().item():.1f}")
logging.config.dictConfig(
    {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)
print("doubled")
print(f"{doubled_more(torch.ones(4)).sum().item():.1f}")
