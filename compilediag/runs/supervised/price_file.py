"""Reads the price table of the user, before anything is started."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from compilediag.errors import UsageError

if TYPE_CHECKING:
    from compilediag.receipt.prices import PriceTable

MAX_BYTES = 1 << 20

VARIABLE = "COMPILEDIAG_PRICES"
"""Path of a table, where neither `--prices` nor pyproject.toml names one."""


def read_prices(path: str) -> PriceTable:
    """The table in a TOML file.

    Raises:
        UsageError: it cannot be read, or is no price table.
    """
    from compilediag.receipt.prices import table_of

    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path} is larger than 1 MiB: this is not a price table")
        raw = toml.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"the price table {path} cannot be read: {error.strerror or error}"
        ) from error
    except ValueError as error:
        raise UsageError(f"the price table {path} is not TOML: {error}") from error
    return table_of(raw, os.path.basename(path), hashlib.sha256(content).hexdigest())
