"""Checkpoints seen without a word of the program's."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import watched
from torch._dynamo import utils

from compilediag.timeline.process import unpack_batches
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.spans import span
from compilediag_harness.wire import Event, SpanEnded

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """The events of a session with every collector."""
    with watched() as received:
        yield received


def names(events: list[Event]) -> list[str]:
    """The spans that are written; the first of a quarter of a second is written at once."""
    spans._write(0)  # pyright: ignore[reportPrivateUsage]
    return [event.name for event in unpack_batches(events) if isinstance(event, SpanEnded)]


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_torch_save_is_a_checkpoint(events: list[Event], options: dict[str, Any]) -> None:
    """In both of its formats, and what was saved is what is loaded."""
    file = io.BytesIO()
    saved = {"weight": torch.arange(8.0)}
    torch.save(saved, file, **options)
    file.seek(0)
    assert torch.equal(torch.load(file)["weight"], saved["weight"])
    assert names(events) == ["checkpoint"]


def test_a_checkpoint_of_the_program_s_own_counts_once(events: list[Event]) -> None:
    """What is saved inside a span for checkpoints is that span's; elsewhere it is one."""
    with span("save_checkpoint"):
        torch.save([1], io.BytesIO())
    with span("eval"):
        torch.save([1], io.BytesIO())
    assert names(events) == ["save_checkpoint", "checkpoint", "eval"]


def test_a_save_that_fails_passes_through(events: list[Event]) -> None:
    """The user's exception is the user's."""

    class Stubborn:
        def __reduce__(self) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        torch.save(Stubborn(), io.BytesIO())
    assert names(events) == ["checkpoint"]


def test_distributed_checkpoints(events: list[Event], tmp_path: Path) -> None:
    """`torch.distributed.checkpoint` is watched from its import on, whoever holds its functions."""
    saver = pytest.importorskip("torch.distributed.checkpoint")
    saver.save({"weight": torch.ones(4)}, checkpoint_id=tmp_path / "one", no_dist=True)
    loaded = {"weight": torch.zeros(4)}
    saver.load(loaded, checkpoint_id=tmp_path / "one", no_dist=True)
    assert torch.equal(loaded["weight"], torch.ones(4))
    assert names(events) == ["checkpoint"]


def test_a_save_in_compiled_code_breaks_it_as_without_us(events: list[Event]) -> None:
    """Dynamo meets torch's own functions, as in a plain run: no frame of ours is compiled."""
    utils.clear_compilation_metrics()

    def whole(x: Any) -> Any:
        y = x + 1
        torch.save(y, io.BytesIO())
        return y * 2

    compiled = torch.compile(whole, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    rows = [str(row.co_name) for row in utils.get_compilation_metrics() if row.has_guarded_code]
    assert all("whole" in name for name in rows)
    assert names(events) == ["checkpoint"] * 3
