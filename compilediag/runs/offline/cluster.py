"""`analyze --cluster`: the workers of a Dask cluster as an executor."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compilediag.errors import UsageError

if TYPE_CHECKING:
    from concurrent.futures import Executor

CONNECT_S = 20
"""Longest wait for the scheduler, in seconds."""

RETRIES = 3
"""How often a task is tried again, beside those that a lost worker had: they are never lost."""


@contextmanager
def workers_at(address: str) -> Generator[Executor, None, None]:
    """The workers of the cluster whose scheduler is at `address`: "tcp://host:8786". They must see
    the sources under the same paths, or open their URIs.

    Raises:
        UsageError: dask is not installed here, or the scheduler does not answer.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise UsageError(
            "--cluster needs dask, which is not installed: pip install 'compilediag[dask]', here "
            "and on the workers; --jobs N needs nothing"
        ) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error) or type(error).__name__
        raise UsageError(f"no dask scheduler answers at {address}: {why}") from error
    with client:
        yield client.get_executor(pure=False, retries=RETRIES)
