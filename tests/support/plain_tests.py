"""Tests as libraries write them about what torch.compile does and logs: `pytest plain_tests.py`.

All but the last pass in a plain run. What each test's process can see at its end is written by
`plain_plugin.py`.
"""

from __future__ import annotations

import logging
import unittest
from collections.abc import Iterator

import pytest
import torch
from plain_programs import Kept, batch, compiled_update, eager, recompiles_and_breaks, wrapped
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

DYNAMO = logging.getLogger("torch._dynamo")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._logging.set_logs()


def test_records_by_handlers() -> None:
    """One for each handler: torch's own, and those of pytest."""
    torch._logging.set_logs(recompiles=True)
    records: list[str] = []
    with wrapped("torch._dynamo", records):
        recompiles_and_breaks()
    recompiled = [text for text in records if " Recompiling" in text]
    print(len(records), len(recompiled), DYNAMO.filters)
    print([type(one).__name__ for one in DYNAMO.handlers])


def test_caplog(caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG everywhere, and on one logger."""
    with caplog.at_level(logging.DEBUG):
        recompiles_and_breaks()
    logs = [record.name for record in caplog.records]
    caplog.clear()
    torch._dynamo.reset()
    with caplog.at_level(logging.DEBUG, logger="torch._dynamo"):
        recompiles_and_breaks()
    print(logs, [record.name for record in caplog.records])


def test_caplog_of_what_is_enabled(caplog: pytest.LogCaptureFixture) -> None:
    torch._logging.set_logs(recompiles=True, graph_breaks=True)
    recompiles_and_breaks()
    names = [one.name for one in caplog.records if one.name.startswith("torch._dynamo")]
    assert sorted(name.rpartition(".")[2] for name in names) == ["__graph_breaks", "__recompiles"]


def test_structured_trace() -> None:
    """Whoever listens to torch's trace gets it."""
    kept = Kept()
    trace = logging.getLogger("torch.__trace")
    trace.addHandler(kept)
    recompiles_and_breaks()
    trace.removeHandler(kept)
    print(len(kept.records), len(trace.handlers))


def test_frames_are_counted() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x, n: x * n, backend=counter, dynamic=False)
    for n in (2, 3, 3):
        double(batch(), n)
    assert counter.frame_count == 2
    assert counters["frames"] == {"total": 2, "ok": 2}
    assert counters["stats"]["unique_graphs"] == 2


def test_a_compiled_update() -> None:
    losses, _ = compiled_update()
    print(dict(counters["frames"]), losses)
    assert len(losses) == 5


def test_reset_in_the_middle() -> None:
    recompiles_and_breaks()
    torch._dynamo.reset()
    recompiles_and_breaks()
    assert counters["frames"]["total"] == 8


def test_no_recompile() -> None:
    double = eager(lambda x: x * 2)
    double(batch())
    with torch._dynamo.config.patch(error_on_recompile=True):
        double(batch())
        with pytest.raises(torch._dynamo.exc.RecompileError):
            double(batch().double())


def test_error_in_compiled_code() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        eager(broken)(batch())
    with pytest.raises(torch._dynamo.exc.Unsupported):
        eager(lambda x: broken(x) + 1, fullgraph=True)(batch())


class LogsTest(unittest.TestCase):
    def test_asserted(self) -> None:
        torch._logging.set_logs(recompiles=True)
        with self.assertLogs("torch._dynamo", level="DEBUG") as logs:
            recompiles_and_breaks()
        assert sum("Recompiling" in text for text in logs.output) == 1

    def test_none_asserted(self) -> None:
        with self.assertNoLogs("torch._dynamo", level="WARNING"):
            recompiles_and_breaks()


def test_that_fails() -> None:
    """Its report shows what pytest has captured."""
    recompiles_and_breaks()
    logging.getLogger("mine").warning("a message of the test")
    raise AssertionError("always")
