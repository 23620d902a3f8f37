"""What the paths of a command line are: traces, text logs, run directories, output of trainers.

A file is told by what it holds, never by its name alone. Names are those of the file system; none
is ever taken from what a file holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compilediag.readers.journal import journal_names
from compilediag.readers.openers import Opened
from compilediag.readers.text import PREFIX
from compilediag.readers.train_shapes import LineShape, built_in
from compilediag.readers.trainlog import tells_steps

FILES_LIMIT = 200_000
"""Most files looked at below the folders of one command."""

TRACE, TEXT, RUN, TRAIN, FOREIGN = "trace", "text", "run", "train", "foreign"

DOCUMENTS = (".md", ".rst", ".py", ".ipynb", ".html", ".json", ".jsonl", ".csv", ".toml", ".yaml")
"""In a folder these are no output of a trainer, though they may quote one."""

_TRACE_LINE = re.compile(
    rb"(?:\A|\n)[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} \d{1,20} ?[^\"\n]{1,4096}\] \{\"\w"
)
_TRACE_NAME = re.compile(r"dedicated_log_torch_trace_")
_JOURNAL_LINE = re.compile(rb"[0-9a-f]{8} \d{1,15} \{\"k\"")


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read."""

    path: str
    kind: str
    """"trace", "text", "run" (a folder with journals), "train" (output of a trainer), "foreign"."""
    why: str | None = None
    """Of a foreign file that was named: why it cannot be used."""
    may_train: bool = False
    """A trainer's output may stand in it; a text log of torch is often one too."""


def sources_of(
    paths: Sequence[str], shapes: Sequence[LineShape] | None = None
) -> tuple[Source, ...]:
    """Everything below the paths, each file once, in the order of the paths and of their names;
    `shapes` are the lines by which a trainer's output is known."""
    shapes = built_in() if shapes is None else shapes
    found: dict[str, Source] = {}
    for path in paths:
        # A link that the user names is followed; links inside of folders are not.
        real = os.path.realpath(path)
        for source in _below(real, shapes) if os.path.isdir(real) else (_named(real),):
            found.setdefault(source.path, source)
            if len(found) >= FILES_LIMIT:
                return tuple(found.values())
    return tuple(found.values())


def _below(folder: str, shapes: Sequence[LineShape]) -> Iterator[Source]:
    for here, folders, names in os.walk(folder):
        if journal_names(here):
            yield Source(here, RUN)
            # Its own trace tells the same run a second time.
            folders.clear()
            continue
        folders.sort()
        for name in sorted(names):
            path = os.path.join(here, name)
            if not os.path.islink(path):
                yield _found(path, shapes)


def _named(path: str) -> Source:
    """A file that was named: what is no trace is taken for a text log, if it is text. What a
    trainer printed may begin after any number of other lines."""
    if _JOURNAL_LINE.match(head := Opened(path).head()):
        return Source(os.path.dirname(path), RUN)
    kind = _kind_of(path, head)
    if kind != FOREIGN:
        return Source(path, kind, may_train=kind == TEXT)
    opened = Opened(path)
    head = opened.head()
    if opened.problem is not None and not head:
        return Source(path, FOREIGN, opened.problem)
    if head and b"\0" not in head:
        return Source(path, TEXT, may_train=True)
    return Source(path, FOREIGN, "it holds nothing of torch's" if head else "it is empty")


def _found(path: str, shapes: Sequence[LineShape]) -> Source:
    """A file in a folder: only its beginning tells what it is."""
    head = Opened(path).head()
    kind = _kind_of(path, head)
    if kind not in {TEXT, FOREIGN} or path.endswith(DOCUMENTS) or not tells_steps(head, shapes):
        return Source(path, kind)
    return Source(path, TRAIN if kind == FOREIGN else TEXT, may_train=True)


def _kind_of(path: str, head: bytes) -> str:
    if _TRACE_LINE.search(head) or _TRACE_NAME.search(os.path.basename(path)):
        return TRACE
    for line in head.split(b"\n")[:2000]:
        if PREFIX.search(line[:8192].decode("utf-8", "replace")):
            return TEXT
    return FOREIGN
