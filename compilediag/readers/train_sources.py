"""The outputs of trainers among what is to be read, and several of them put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from compilediag.readers.compression import Opened
from compilediag.readers.inputs import TEXT, TRAIN, Source
from compilediag.readers.torch_logs.events import read_text_events
from compilediag.timeline.train_log import TrainLog

if TYPE_CHECKING:
    from compilediag.readers.train_logs.patterns import LinePattern

_TAGS = (b"[__recompiles", b"[__graph_breaks")
_LONGEST_TAG = max(map(len, _TAGS))

Logs = Mapping[str, TrainLog]
"""Path to what the output there says."""


def logs_in(sources: Iterable[Source], shapes: Sequence[LinePattern] | None) -> Logs:
    """What trainers say in the sources that may hold their output."""
    paths = [source.path for source in sources if source.may_train]
    if not paths:
        return {}
    # Where no trainer's output may stand nothing of trainers is loaded.
    from compilediag.readers.train_logs.patterns import built_in
    from compilediag.readers.train_logs.read import read_train_log

    shapes = built_in() if shapes is None else shapes
    read = ((path, read_train_log(path, shapes)) for path in paths)
    return {path: log for path, log in read if log is not None}


def known(sources: Iterable[Source], logs: Logs) -> tuple[Source, ...]:
    """The sources, each for what it is now known to be: a text without a message of torch's is a
    trainer's output and no second opinion, for its silence would contradict a trace."""
    return tuple(
        replace(source, kind=TRAIN)
        if source.kind == TEXT and source.path in logs and not _torch_speaks(source.path)
        else source
        for source in sources
    )


def _torch_speaks(path: str) -> bool:
    """Whether a recompile or a break is told there; each process opens with two events."""
    return _holds_tags(path) and any(len(item.events) > 2 for item in read_text_events(path))


def _holds_tags(path: str) -> bool:
    """Whether torch's tags stand there at all, which is seen many times faster."""
    before = b""
    for piece in Opened(path).pieces():
        text = before + piece
        if any(tag in text for tag in _TAGS):
            return True
        before = text[-_LONGEST_TAG:]
    return False


def together(logs: Logs) -> TrainLog | None:
    """One record of them: that which tells most steps, with what was counted in all of them."""
    every = sorted(logs.values(), key=lambda log: -_told_by(log))
    if len(every) < 2:
        return every[0] if every else None
    counts: dict[str, int] = {}
    for log in every:
        for name, number in log.counts.items():
            counts[name] = counts.get(name, 0) + number
    failed = next((log for log in every if log.ending is not None), None)
    others = f"step lines of {len(every) - 1} more files are not in the figures"
    return replace(
        every[0],
        counts=counts,
        losses=sum(log.losses for log in every),
        losses_not_finite=sum(log.losses_not_finite for log in every),
        ending=None if failed is None else failed.ending,
        tail=(every[0] if failed is None else failed).tail,
        notes=(*every[0].notes, others),
    )


def _told_by(log: TrainLog) -> int:
    return log.ended_steps or log.step_lines
