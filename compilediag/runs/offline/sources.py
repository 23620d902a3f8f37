"""Records of runs, found and read: traces, text logs, run directories, output of trainers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from compilediag.errors import UsageError
from compilediag.readers.inputs import (
    NOTHING,
    RUN,
    TEXT,
    TRACE,
    Input,
    TrainLogReader,
    list_inputs,
    load_built_in_reader,
    merge_train_logs,
)
from compilediag.readers.journal import ProcessJournal, read_run
from compilediag.readers.torch_logs import read_text_events, read_text_log
from compilediag.readers.torch_trace.read import parse_rank, read_trace
from compilediag.runs.run_directory import list_text_logs, read_joined_logs
from compilediag.timeline.recorded import TrainLog
from compilediag.timeline.timeline import TextLog


@dataclass(frozen=True, slots=True)
class LoadedSources:
    """Everything that was read, before it is folded."""

    journals: tuple[ProcessJournal, ...]
    """One a process, ordered by rank."""
    text_log: TextLog | None = None
    """A second opinion, where text logs lie beside traces or journals."""
    sources: tuple[Input, ...] = ()
    named: frozenset[int] = frozenset()
    """Ranks in file names, also of files that hold nothing."""
    root: str = field(default_factory=os.getcwd)
    """The working directory: files below it are the user's own."""
    train_log: TrainLog | None = None
    """What a trainer printed of its steps."""
    warmup: int | None = None
    """Steps of it that the user calls warm-up."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which something was read, ascending."""
        ranks = {get_rank(journal) for journal in self.journals}
        return tuple(sorted(rank for rank in ranks if rank is not None))


def read_record(paths: Sequence[str]) -> LoadedSources:
    """Reads whatever lies at and below the paths.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    return read_sources(find_sources(paths))


def find_sources(paths: Sequence[str], trainers: TrainLogReader | None = None) -> tuple[Input, ...]:
    """Find what lies at and below the paths; `trainers` reads what trainers print.

    Raises:
        UsageError: a path does not exist, or nothing of torch's lies there.
    """
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder {path}")
    sources = list_inputs(paths, trainers)
    if any(source.kind not in NOTHING for source in sources):
        return sources
    why = next((f" ({source.why})" for source in sources if source.why), "")
    records = (
        f"nothing to analyze lies in {', '.join(paths)}{why}: it was searched for records of "
        "TORCH_TRACE, messages of TORCH_LOGS (there are none where nothing recompiled)"
    )
    known = load_built_in_reader()
    if known is None:
        raise UsageError(
            f"{records} and journals of compilediag; the extension train_logs, which reads the "
            "step lines of trainers, is not installed"
        )
    raise UsageError(
        f"{records}, journals of compilediag, and step lines of trainers "
        f"({', '.join(known.trainers)}); for the lines of another trainer give --patterns FILE, "
        "see docs/howto/trainlog.md"
    )


def read_sources(sources: tuple[Input, ...]) -> LoadedSources:
    """Reads the sources: journals of traces and run directories, text logs."""
    journals = [journal for source in sources for journal in read_source(source)]
    texts = [source.path for source in sources if source.kind == TEXT]
    runs = [source.path for source in sources if source.kind == RUN]
    text_log = None
    if not journals:
        journals = [journal for path in texts for journal in read_text_events(path)]
    elif paths := [*texts, *(path for run in runs for path in list_text_logs(run))]:
        text_log = read_text_log(read_joined_logs(paths))
    by_rank = sorted(
        journals, key=lambda journal: (get_rank(journal) is None, get_rank(journal) or 0)
    )
    named = (parse_named_rank(source) for source in sources)
    ranks = frozenset(rank for rank in named if rank is not None)
    trained = merge_train_logs(source.log for source in sources if source.log is not None)
    return LoadedSources(tuple(by_rank), text_log, sources, ranks, train_log=trained)


def read_source(source: Input) -> tuple[ProcessJournal, ...]:
    """Read the processes of one trace or run directory; other sources hold none of their own."""
    if source.kind == TRACE:
        return read_trace(source.path)
    return read_run(source.path) if source.kind == RUN else ()


def parse_named_rank(source: Input) -> int | None:
    """Parse the rank in the name of a trace; None of another source, or where it has none."""
    return parse_rank(os.path.basename(source.path)) if source.kind == TRACE else None


def get_rank(journal: ProcessJournal) -> int | None:
    """Return the rank of the process; None where it has none or its start is not recorded."""
    return journal.started.rank if journal.started is not None else None
