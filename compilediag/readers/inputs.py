"""What the paths of a command line are: traces, text logs, run directories, output of trainers.

A file is told by what it holds, and only a trace by its name alone. Names are those of the file
system; none is ever taken from what a file holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compilediag.readers.compression import BLOCK_BYTES, SNIFFED_BYTES, Opened, plain_head
from compilediag.readers.journal import journal_names
from compilediag.readers.storage import above, below, files_below, heads_of, is_uri, local_path
from compilediag.readers.torch_logs.counts import PREFIX

if TYPE_CHECKING:
    from compilediag.readers.train_logs.patterns import LinePattern

FILES_LIMIT = 200_000
"""Most files looked at below the paths of one command; the others are counted."""

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


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read."""

    path: str
    """Of a file or a folder of this machine, or a URI."""
    kind: str
    """"trace", "text", "run" (a folder with journals), "train" (output of a trainer), "foreign",
    "unreadable", "files_over_limit"."""
    why: str | None = None
    """Why it cannot be used."""
    may_train: bool = False
    """A trainer's output may stand in it; a text log of torch is often one too."""
    count: int = 1
    """Files that it stands for."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A file before it is looked into."""

    path: str
    named: bool = False
    """The user gave it, and not the folder it lies in."""
    known: Source | None = None
    """What it is, where that is told without its bytes."""

    @property
    def asked_together(self) -> bool:
        """Its first bytes are asked for with those of others."""
        return self.known is None and not self.named and is_uri(self.path)


def sources_of(
    paths: Sequence[str], shapes: Sequence[LinePattern] | None = None
) -> tuple[Source, ...]:
    """Everything below the paths, each file once, in the order of the paths and of their names;
    `shapes` are the lines by which a trainer's output is known, by default those of the package.

    Raises:
        UsageError: a URI cannot be listed, or what it needs is not installed.
    """
    places: dict[str, _Place] = {}
    beyond = 0
    for path in paths:
        for place in _places(path):
            if len(places) < FILES_LIMIT:
                places.setdefault(place.path, place)
            else:
                beyond += place.path not in places
    found: dict[str, Source] = {}
    for source in _looked_into(places.values(), shapes):
        found.setdefault(source.path, source)
    if beyond:
        why = f"only {FILES_LIMIT} files of one command are looked at"
        found[""] = Source(paths[-1], BEYOND, why, count=beyond)
    return tuple(found.values())


def _places(path: str) -> Iterator[_Place]:
    """Every file at and below a path that was given."""
    if is_uri(path):
        local = local_path(path)
        if local is None:
            yield from _remote(path)
            return
        path = local
    # A link that the user names is followed; links inside of folders are not.
    real = os.path.realpath(path)
    if os.path.isdir(real):
        yield from _below(real)
    else:
        yield _Place(real, named=True)


def _below(folder: str) -> Iterator[_Place]:
    for here, folders, names in os.walk(folder):
        if journal_names(here):
            yield _Place(here, known=Source(here, RUN))
            # Its own trace tells the same run a second time.
            folders.clear()
            continue
        folders.sort()
        for name in sorted(names):
            path = os.path.join(here, name)
            if not os.path.islink(path):
                yield _Place(path, known=_by_name(path))


def _remote(location: str) -> Iterator[_Place]:
    """The same at a URI, where a folder is what its files have in common."""
    files = list(files_below(location))
    runs = {
        os.path.dirname(file.below)
        for file in files
        if _JOURNAL_NAME.fullmatch(os.path.basename(file.below))
    }
    given: set[str] = set()
    for file in files:
        run = _run_above(os.path.dirname(file.below), runs) if file.below else None
        if run is not None:
            if run not in given:
                given.add(run)
                folder = below(location, run)
                yield _Place(folder, known=Source(folder, RUN))
            continue
        path = below(location, file.below)
        known = _by_name(path) if file.openable else Source(path, UNREADABLE, _NOT_OPENED)
        if known is None and file.empty:
            known = Source(path, FOREIGN, "it is empty")
        yield _Place(path, named=not file.below, known=known)


_NOT_OPENED = "its name is one that fsspec would take for another place"


def _run_above(folder: str, runs: set[str]) -> str | None:
    """The outermost folder of a run that a file lies in."""
    parts = folder.split("/") if folder else []
    above_it = ("/".join(parts[:depth]) for depth in range(len(parts) + 1))
    return next((each for each in above_it if each in runs), None)


def _by_name(path: str) -> Source | None:
    """A trace under the name that torch gives it need not be looked into."""
    return Source(path, TRACE) if _TRACE_NAME.search(os.path.basename(path)) else None


def _looked_into(
    places: Iterable[_Place], shapes: Sequence[LinePattern] | None
) -> Iterator[Source]:
    places = list(places)
    heads = heads_of((each.path for each in places if each.asked_together), SNIFFED_BYTES)
    for place in places:
        if place.known is not None:
            yield place.known
        elif place.named:
            yield _named(place.path)
        elif place.asked_together:
            head = next(heads)
            if isinstance(head, str):
                yield Source(place.path, UNREADABLE, head)
            else:
                yield _told_by(place.path, plain_head(head), shapes)
        else:
            yield _found(place.path, shapes)


def _named(path: str) -> Source:
    """A file that was named: what is no trace is taken for a text log, if it is text. What a
    trainer printed may begin after any number of other lines."""
    opened = Opened(path, BLOCK_BYTES)
    head = opened.head()
    if _JOURNAL_LINE.match(head):
        return Source(above(path), RUN)
    kind = _kind_of(path, head)
    if kind != FOREIGN:
        return Source(path, kind, may_train=kind == TEXT)
    if opened.problem is not None and not head:
        return Source(path, UNREADABLE, opened.problem)
    if head and b"\0" not in head:
        return Source(path, TEXT, may_train=True)
    return Source(path, FOREIGN, "it holds nothing of torch's" if head else "it is empty")


def _found(path: str, shapes: Sequence[LinePattern] | None) -> Source:
    """A file in a folder: only its beginning tells what it is."""
    opened = Opened(path)
    head = opened.head()
    unread = opened.problem is not None and not head and os.path.isfile(path)
    if unread and not path.endswith(DOCUMENTS):
        return Source(path, UNREADABLE, opened.problem)
    return _told_by(path, head, shapes)


def _told_by(path: str, head: bytes, shapes: Sequence[LinePattern] | None) -> Source:
    kind = _kind_of(path, head)
    if kind not in {TEXT, FOREIGN} or path.endswith(DOCUMENTS) or not _is_trainers(head, shapes):
        return Source(path, kind)
    return Source(path, TRAIN if kind == FOREIGN else TEXT, may_train=True)


def _is_trainers(head: bytes, shapes: Sequence[LinePattern] | None) -> bool:
    # Where all is known by its name nothing of trainers is loaded.
    from compilediag.readers.train_logs.patterns import built_in
    from compilediag.readers.train_logs.read import tells_steps

    return tells_steps(head, built_in() if shapes is None else shapes)


def _kind_of(path: str, head: bytes) -> str:
    if _TRACE_LINE.search(head) or _by_name(path) is not None:
        return TRACE
    for line in head.split(b"\n")[:2000]:
        if PREFIX.search(line[:8192].decode("utf-8", "replace")):
            return TEXT
    return FOREIGN
