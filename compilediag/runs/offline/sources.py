"""Records of runs from anywhere, found and read: traces, text logs, run directories, and the output
of trainers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compilediag.errors import UsageError
from compilediag.readers.compression import open_stream
from compilediag.readers.inputs import (
    NOTHING,
    RUN,
    TEXT,
    TRACE,
    Source,
    merge,
    sources_of,
    train_logs_in,
    with_train_logs,
)
from compilediag.readers.journal import Journal, read_run
from compilediag.readers.parallel import cores, map_ordered
from compilediag.readers.storage import is_uri, join, local_path, names_in, size_of
from compilediag.readers.torch_logs.counts import read_text_log
from compilediag.readers.torch_logs.events import read_text_events
from compilediag.readers.torch_trace.read import rank_in_name, read_trace
from compilediag.timeline.timeline import TextLog
from compilediag.timeline.train_log import TrainLog

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from compilediag.readers.train_logs.patterns import LinePattern

WORTH_BYTES = 32 << 20
"""Less than this is read sooner than worker processes start."""

WORTH_SOURCES = 32
"""As many sources are worth workers however small they are: each rank gets a receipt."""


@dataclass(frozen=True, slots=True)
class LoadedSources:
    """Everything that was read, before it is folded."""

    journals: tuple[Journal, ...]
    """One a process, ordered by rank."""
    text_log: TextLog | None
    """A second opinion, where text logs lie beside traces or journals."""
    sources: tuple[Source, ...]
    named: frozenset[int]
    """Ranks that file names tell, also of files that hold nothing."""
    root: str = field(default_factory=os.getcwd)
    """The working directory: files below it are the user's own."""
    train_log: TrainLog | None = None
    """What a trainer printed of its steps."""
    warmup: int | None = None
    """Steps of it that were called warm-up."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which something was read."""
        return tuple(
            sorted({rank for item in self.journals if (rank := rank_of(item)) is not None})
        )


def read_record(paths: Sequence[str], executor: Executor | None = None) -> LoadedSources:
    """Reads whatever lies at and below the paths.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    return read_sources(find_sources(paths), executor)


def find_sources(
    paths: Sequence[str], shapes: Sequence[LinePattern] | None = None
) -> tuple[Source, ...]:
    """What lies at and below the paths; `shapes` are the lines that trainers print.

    Raises:
        UsageError: a path does not exist, nothing of torch's lies there, or a URI needs what is not
            installed.
    """
    for path in paths:
        here = local_path(path) if is_uri(path) else path
        if here is not None and not os.path.exists(here):
            raise UsageError(f"there is no file or folder {path}")
    sources = sources_of(paths, shapes)
    if all(source.kind in NOTHING for source in sources):
        why = next((f" ({source.why})" for source in sources if source.why), "")
        raise UsageError(
            f"no trace, text log or journal lies in {', '.join(paths)}{why}: give the folder that "
            "TORCH_TRACE named, a file of TORCH_LOGS, a run directory of compilediag, or what a "
            "trainer printed"
        )
    return sources


def read_sources(
    sources: tuple[Source, ...],
    executor: Executor | None = None,
    shapes: Sequence[LinePattern] | None = None,
) -> LoadedSources:
    """The record that the sources are; one task a source where there is an executor."""
    found = map_ordered(read_source, readable_in(sources), executor)
    journals = [item for read in found for item in read]
    return record_of(sources, journals, shapes=shapes)


def record_of(
    sources: tuple[Source, ...],
    journals: Sequence[Journal],
    root: str | None = None,
    shapes: Sequence[LinePattern] | None = None,
) -> LoadedSources:
    """The record of sources whose journals were read, in the order of the sources."""
    logs = train_logs_in(sources, shapes)
    sources = with_train_logs(sources, logs)
    texts = [source for source in sources if source.kind == TEXT]
    text_log = None
    if not journals:
        journals = [item for source in texts for item in read_text_events(source.path)]
    elif texts or any(source.kind == RUN for source in sources):
        text_log = _text_log([*texts, *(item for item in sources if item.kind == RUN)])
    named = ranks_named(sources)
    ordered = sorted(journals, key=lambda item: (rank_of(item) is None, rank_of(item) or 0))
    root = os.getcwd() if root is None else root
    return LoadedSources(tuple(ordered), text_log, sources, named, root, merge(logs))


def workers_worth(sources: Sequence[Source]) -> int:
    """How many processes should read the sources: one a core, and one where they are little."""
    paths = [source.path for source in readable_in(sources)]
    if len(paths) < WORTH_SOURCES and sum(map(_size, paths)) < WORTH_BYTES:
        return 1
    return max(1, min(cores(), len(paths)))


def readable_in(sources: Sequence[Source]) -> list[Source]:
    """Those that `read_source` reads: each holds processes of its own."""
    return [source for source in sources if source.kind in {TRACE, RUN}]


def read_source(source: Source) -> tuple[Journal, ...]:
    """The processes of one trace or run directory: one task of many. Picklable both ways."""
    if source.kind == TRACE:
        return read_trace(source.path)
    if source.kind == RUN:
        return read_run(source.path)
    return ()


def ranks_named(sources: Sequence[Source]) -> frozenset[int]:
    """Ranks that the names of traces tell, also of traces that hold nothing."""
    named = (rank_named(item) for item in sources)
    return frozenset(rank for rank in named if rank is not None)


def rank_named(source: Source) -> int | None:
    """The rank that the name of a trace tells."""
    return rank_in_name(os.path.basename(source.path)) if source.kind == TRACE else None


def rank_of(journal: Journal) -> int | None:
    """The rank that the process told."""
    return journal.started.rank if journal.started is not None else None


def _text_log(sources: Sequence[Source]) -> TextLog | None:
    """All text logs as one second opinion: those named, and those of run directories."""
    paths = [source.path for source in sources if source.kind == TEXT]
    for source in sources:
        if source.kind == RUN:
            names = sorted(n for n in names_in(source.path) if n.startswith("torch_logs"))
            paths += [join(source.path, name) for name in names]
    return read_text_log(_joined(paths)) if paths else None


def _joined(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        yield from open_stream(path).chunks()
        yield b"\n"  # a torn end must not run into the next file


def _size(path: str) -> int:
    try:
        return size_of(path)
    except OSError:
        return 0
