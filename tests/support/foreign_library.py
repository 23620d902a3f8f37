"""A package that lies where packages are installed, for tests of what is a library's line."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SOURCE = '''"""Compiled code of other people."""

import functools
import logging

import torch
from torch import nn


def scatter(values, count):
    return values.new_zeros(count).index_add(0, torch.arange(values.size(0)) % count, values)


def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @wrapped
    def forward(self, values, count, scale=None):
        return scatter(self.linear(values).sum(1), count)


class Printing(nn.Module):
    def forward(self, values):
        values = values + 1
        torch._dynamo.graph_break()
        return values * 2


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def restore(self, calls):
        self.calls = calls

    def forward(self, values):
        self.calls += 1
        return values + self.calls


class Trainer:
    def __init__(self, model):
        self.model = torch.compile(model, backend="eager", dynamic=False)

    def fit(self, batches):
        for values in batches:
            self.model(values, 2)


def skipped(values):
    for item in iter(lambda: 1, 1):
        yield item
    yield values
'''

LINES = SOURCE.splitlines()


def line_of(text: str) -> int:
    """The line of the package that contains a text."""
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@contextmanager
def installed(folder: Path) -> Iterator[ModuleType]:
    """The package `foreignlib`, imported from `folder`/site-packages."""
    place = folder / "site-packages"
    package = place / "foreignlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE, encoding="utf-8")
    sys.path.insert(0, str(place))
    try:
        yield importlib.import_module("foreignlib")
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("foreignlib", None)
