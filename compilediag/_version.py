"""The version of this package, as pyproject.toml and receipts give it."""

from __future__ import annotations

__version__ = "0.1.0"
