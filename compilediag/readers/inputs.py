"""Inputs at the paths of a command line: traces, text logs, run directories, output of trainers.

A file is recognised by its content, and only a trace by its name alone. Paths are those of the file
system; none is ever taken from a file's content.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Protocol

from compilediag import extension_points
from compilediag.readers.storage import PlainStream
from compilediag.readers.torch_logs import PREFIX, read_text_log
from compilediag.timeline.recorded import TrainLog

FILES_LIMIT = 200_000
"""Most files examined below the paths of one command; the others are counted."""

TRACE, TEXT, RUN, TRAIN, FOREIGN = "trace", "text", "run", "train", "foreign"
UNREADABLE, BEYOND = "unreadable", "files_over_limit"
"""What may be anything: it is counted among the losses, under these names."""

NOTHING = frozenset({FOREIGN, UNREADABLE, BEYOND})
"""Kinds of which nothing is read."""

DOCUMENTS = (".md", ".rst", ".py", ".ipynb", ".html", ".json", ".jsonl", ".csv", ".toml", ".yaml")
"""In a folder these are no output of a trainer, though they may quote one."""

_TRACE_LINE = re.compile(
    rb"(?:\A|\n)[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} \d{1,20} ?[^\"\n]{1,4096}\] \{\"\w"
)
_TRACE_NAME = re.compile(r"dedicated_log_torch_trace_")
_JOURNAL_NAME = re.compile(r"journal-.*\.jsonl", re.DOTALL)
_JOURNAL_LINE = re.compile(rb"[0-9a-f]{8} \d{1,15} \{\"k\"")


class TrainLogReader(Protocol):
    """Recogniser and reader of the output of trainers, given by an extension."""

    @property
    def trainers(self) -> tuple[str, ...]:
        """The names of those that it knows."""
        ...

    def has_steps(self, head: bytes) -> bool:
        """True where the first bytes of a file are those of a trainer's output."""
        ...

    def read(self, path: str) -> TrainLog | None:
        """Read the output at `path`; None where no line of it is that of a step."""
        ...


@cache
def load_built_in_reader() -> TrainLogReader | None:
    """Load the reader of trainers that need no pattern file; None if its extension is missing."""
    point = extension_points.TRAIN_LOG_READER
    if not extension_points.is_installed(point):
        return None
    return extension_points.load(point, "the output of a trainer")(None)


@dataclass(frozen=True, slots=True)
class Input:
    """One thing to read."""

    path: str
    """Of a file or a folder."""
    kind: str
    """"trace", "text", "run" (a folder with journals), "train" (output of a trainer), "foreign",
    "unreadable", "files_over_limit"."""
    why: str | None = None
    count: int = 1
    """Files that it stands for."""
    log: TrainLog | None = None
    """What a trainer printed there; a text log of torch may have it as well."""


class _Candidate(NamedTuple):
    """A file before its content is examined."""

    path: str
    named: bool = False
    """The user gave it, and not the folder that holds it."""
    known: Input | None = None
    """What it is, where that needs no content."""


def list_inputs(paths: Sequence[str], trainers: TrainLogReader | None = None) -> tuple[Input, ...]:
    """List everything below the paths, each file once, in the order of the paths and of their
    names; `trainers` recognises a trainer's output, by default that of the package."""
    candidates: dict[str, _Candidate] = {}
    beyond = 0
    for path in paths:
        for candidate in _iterate_candidates(path):
            if len(candidates) < FILES_LIMIT:
                candidates.setdefault(candidate.path, candidate)
            else:
                beyond += candidate.path not in candidates
    inputs: dict[str, Input] = {}
    for candidate in candidates.values():
        source = _recognize_file(candidate, trainers)
        inputs.setdefault(source.path, source)
    if beyond:
        why = f"only {FILES_LIMIT} files of one command are looked at"
        inputs[""] = Input(paths[-1], BEYOND, why, count=beyond)
    return tuple(inputs.values())


def _iterate_candidates(given: str) -> Iterator[_Candidate]:
    """Iterate over files at and below a path; a folder with journals is one candidate."""
    # A link that the user names is followed; links inside folders are not.
    location = os.path.realpath(given)
    if not os.path.isdir(location):
        yield _Candidate(location, named=True)
        return
    for folder, folders, names in os.walk(location):
        folders.sort()
        if any(map(_JOURNAL_NAME.fullmatch, names)):
            folders.clear()  # a trace in a run directory holds the same run again
            yield _Candidate(folder, known=Input(folder, RUN))
            continue
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield _Candidate(path, known=_recognize_by_name(path))


def _recognize_by_name(path: str) -> Input | None:
    """Recognise a trace by the name that torch gives it, without reading it; None: any other."""
    return Input(path, TRACE) if _TRACE_NAME.search(os.path.basename(path)) else None


def _recognize_file(candidate: _Candidate, trainers: TrainLogReader | None) -> Input:
    """Recognise a file in a folder by its beginning only. Of those that the user named, any text
    that is no trace is read whole: a trainer's output may begin after any number of other lines."""
    path, named, known = candidate
    if known is not None:
        return known
    stream = PlainStream(path)
    head = stream.read_head()
    if named and _JOURNAL_LINE.match(head):
        return Input(os.path.dirname(path), RUN)
    if _TRACE_LINE.search(head) or _recognize_by_name(path) is not None:
        return Input(path, TRACE)
    lines = (line[:8192].decode("utf-8", "replace") for line in head.split(b"\n")[:2000])
    kind = TEXT if any(map(PREFIX.search, lines)) else FOREIGN
    if not named and path.endswith(DOCUMENTS):
        return Input(path, kind)
    if stream.problem and not head and (named or os.path.isfile(path)):
        return Input(path, UNREADABLE, stream.problem)
    if named and (not head or b"\0" in head):
        return Input(path, FOREIGN, "it holds nothing of torch's" if head else "it is empty")
    # The readers of trainers' output are loaded only where there may be one.
    trainers = trainers or load_built_in_reader()
    if not named and (trainers is None or not trainers.has_steps(head)):
        return Input(path, kind)
    return _recognize_text(path, trainers)


def _recognize_text(path: str, trainers: TrainLogReader | None) -> Input:
    """Recognise a text by all of it: one without a message of torch's is a trainer's output and no
    second opinion, for its silence would contradict a trace."""
    log = trainers.read(path) if trainers is not None else None
    text = read_text_log(PlainStream(path).read_chunks())
    if log is not None and not (text.recompiling_lines or text.break_sites or text.limit_warnings):
        return Input(path, TRAIN, log=log)
    if text.log_lines:
        return Input(path, TEXT, log=log)
    return Input(path, FOREIGN, "nothing of torch's or a trainer's stands in it")


def merge_train_logs(logs: Iterable[TrainLog]) -> TrainLog | None:
    """Merge logs to the one with the most steps, with the counts of all of them; None of none."""
    ordered = sorted(logs, key=lambda log: -(log.ended_steps or log.step_lines))
    if len(ordered) < 2:
        return ordered[0] if ordered else None
    lead = ordered[0]
    counts = Counter[str]()
    for log in ordered:
        counts.update(log.counts)
    failed = next((log for log in ordered if log.ending is not None), None)
    others = f"step lines of {len(ordered) - 1} more files are not in the figures"
    return replace(
        lead,
        counts=dict(counts),
        losses=sum(log.losses for log in ordered),
        losses_not_finite=sum(log.losses_not_finite for log in ordered),
        ending=None if failed is None else failed.ending,
        tail=(failed or lead).tail,
        notes=(*lead.notes, others),
    )
