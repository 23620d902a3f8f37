"""A cluster for tests that runs every task where it is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest


class Direct:
    """A cluster that is none: every task is done when it is handed in."""

    def __init__(self) -> None:
        self.joined: list[int] = []

    def submit(self, task: Any, *arguments: Any, pure: bool, retries: int = 0) -> Any:
        plain = [self._plain(item) for item in arguments]
        if task.__name__ == "_joined":
            self.joined.append(len(plain[0]))
        return Done(task(*plain))

    def _plain(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self._plain(each) for each in cast(list[Any], item)]
        return item.result() if isinstance(item, Done) else item


class Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        return self._value


@contextmanager
def two_workers() -> Iterator[Any]:
    """Worker processes of this machine; skips the test where dask is not installed."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made
