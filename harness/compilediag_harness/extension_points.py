"""What extensions do inside the user's process, by name: the only place that knows one.

A point names a module below `compilediag_harness.extensions` and an attribute of it, "x:y". It is
imported when it is used; where the module is missing, what it would do is left out.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

PACKAGE = "compilediag_harness.extensions"

EXPERIMENTS = "experiments:install"
"""Logs metrics to the experiment that the program has open, from a run's folder."""


def load(point: str) -> Any:
    """What a point names; None where its module is missing."""
    module, _, attribute = point.partition(":")
    name = f"{PACKAGE}.{module}"
    try:
        found = find_spec(name) is not None
    except ModuleNotFoundError:  # a folder above it is missing
        found = False
    return getattr(import_module(name), attribute) if found else None
