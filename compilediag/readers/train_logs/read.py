"""Trainer output in, its steps and its ending out: nanoGPT, Hugging Face, Lightning, Megatron,
torchtitan, MaxText, and what a pattern file adds.

Any bytes are accepted, and the time is linear in them. A line that looks like one of a step and
cannot be read is counted, a figure that was not told is no figure.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from compilediag.readers.compression import Opened
from compilediag.readers.torch_logs.counts import ANSI
from compilediag.readers.train_logs.ending import EndingReader
from compilediag.readers.train_logs.line_layouts import Layouts
from compilediag.readers.train_logs.lines import log_lines, named_rank
from compilediag.readers.train_logs.patterns import BAR, END, STEP, LinePattern, Told
from compilediag.readers.train_logs.progress_bars import BAR_MARKER, Bar, Bars, NamelessBars, bar_in
from compilediag.readers.train_logs.series import Stream, covered_by, ended_steps, number_of
from compilediag.readers.train_logs.train_notes import notes_of
from compilediag.timeline.train_log import TrainLog

STREAMS_LIMIT = 10_000
"""Most ranks and trainers told apart."""

FEWEST_TO_RECOGNISE = 2
"""Step lines that make a file the output of a trainer, where nobody named the file."""

_ANSI = re.compile(ANSI.pattern.encode())
_TRACEBACK = b"Traceback (most recent call last)"

Key = tuple[str, str | None]


def read_train_log(path: str, shapes: Sequence[LinePattern]) -> TrainLog | None:
    """What the output at `path` says; None where no line of it tells of a step."""
    opened = Opened(path)
    found = train_log_of(opened.pieces(), shapes)
    if found is None or opened.problem is None:
        return found
    return replace(found, notes=(*found.notes, f"the log ends early: {opened.problem}"))


def train_log_of(chunks: Iterable[bytes], shapes: Sequence[LinePattern]) -> TrainLog | None:
    """The same of bytes."""
    reader = _Reader(shapes)
    for raw, cut in log_lines(chunks):
        reader.take(raw, cut=cut)
    return reader.log()


def tells_steps(head: bytes, shapes: Sequence[LinePattern]) -> bool:
    """Whether the first bytes of a file are those of a trainer's output."""
    if not any(shape.marker in head for shape in shapes if shape.kind == STEP):
        return False
    reader = _Reader(shapes)
    for raw, cut in log_lines([head]):
        reader.take(raw, cut=cut)
    return sum(stream.lines for stream in reader.streams.values()) >= FEWEST_TO_RECOGNISE


@dataclass(slots=True)
class _Reader:
    """State between the lines of one output."""

    shapes: Sequence[LinePattern]
    streams: dict[Key, Stream] = field(default_factory=dict[Key, Stream])
    ending: EndingReader = field(default_factory=EndingReader)
    whole: dict[str, float] = field(default_factory=dict[str, float])
    counts: dict[str, int] = field(
        default_factory=lambda: {"unread": 0, "cut": 0, "other_streams": 0}
    )
    lines: int = 0
    layouts: Layouts = field(default_factory=Layouts)
    _marked: tuple[LinePattern, ...] = ()
    _bars: tuple[LinePattern, ...] = ()
    _before: str | None = None
    _bar_shape: LinePattern | None = None

    def __post_init__(self) -> None:
        self._marked = tuple(shape for shape in self.shapes if shape.kind != BAR)
        self._bars = tuple(shape for shape in self.shapes if shape.kind == BAR)

    def take(self, raw: bytes, *, cut: bool) -> None:
        """The next line."""
        self.lines += 1
        if cut:
            self.counts["cut"] += 1
        if self.layouts.known:
            read = self.layouts.read(raw.decode("utf-8", "replace"))
            if read is not None:
                shape, rank, told = read
                self._step(shape, rank or None, told, raw)
                return
        whole = raw
        if b"\x1b" in raw:
            raw = _ANSI.sub(b"", raw)
        known = False
        for shape in self._marked:
            if shape.marker in raw and not (shape.unless and shape.unless in raw):
                known = self._marked_line(shape, raw, whole)
                if known:
                    break
        if BAR_MARKER in raw and self._bar_line(raw, drawn_over=known):
            # What a program prints next may stand on the line of its bar.
            known = known or _TRACEBACK not in raw
        if not known:
            self.ending.line(raw)

    def _marked_line(self, shape: LinePattern, raw: bytes, whole: bytes) -> bool:
        """Whether the line, which is `whole` with its escapes, is of this shape."""
        rank, text = named_rank(raw.decode("utf-8", "replace"))
        told = fields_of(shape, text)
        if any(name not in told for name in shape.needs):
            self.counts["unread"] += bool(told)
            return False
        if shape.kind == END:
            self.ending.end(raw)
            self.whole.update({name: number_of(spelled) for name, spelled in told.items()})
            return True
        if shape.kind == STEP:
            self.layouts.learn(shape, whole.decode("utf-8", "replace"), told)
            self._step(shape, rank, told, raw)
        elif (stream := self._stream(shape, rank)) is not None:
            stream.note(told)
            self.ending.line(raw)
        return True

    def _step(self, shape: LinePattern, rank: str | None, told: Told, raw: bytes) -> None:
        stream = self._stream(shape, rank)
        if stream is not None:
            stream.take(told)
        self.ending.step(raw)

    def _bar_line(self, raw: bytes, *, drawn_over: bool) -> bool:
        """Whether the line is a bar that some trainer draws for its steps."""
        rank, text = named_rank(raw.decode("utf-8", "replace"))
        bar = bar_in(text)
        shape = None if bar is None else self._drawn_by(bar.before)
        if bar is None or shape is None:
            return False
        stream = self._stream(shape, rank)
        if stream is not None and _drawn(stream, shape, bar) and not drawn_over:
            self.ending.step(raw)
        return True

    def _drawn_by(self, before: str) -> LinePattern | None:
        """The shape of the bars behind such a text; one text stands before thousands of them."""
        if before != self._before:
            fits = (each for each in self._bars if each.before and each.before.match(before))
            self._before, self._bar_shape = before, next(fits, None)
        return self._bar_shape

    def _stream(self, shape: LinePattern, rank: str | None) -> Stream | None:
        key = (shape.trainer, rank)
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= STREAMS_LIMIT:
                self.counts["other_streams"] += 1
                return None
            stream = self.streams[key] = Stream(shape, rank)
        elif shape.kind == STEP and stream.shape is not shape:
            stream.shape = shape
        return stream

    def log(self) -> TrainLog | None:
        """What was read, told of one trainer and one rank."""
        told = [stream for stream in self.streams.values() if stream.lines or stream.bars]
        if not told:
            return None
        lead = _lead(told)
        log = _log_of(lead)
        counts = {"lines": self.lines, **self.counts, "steps": lead.lines}
        for name in ("repeated", "over_limit", "backwards", "grad_norms_not_finite"):
            counts[name] = getattr(lead, name)
        counts["other_streams"] += len(told) - 1
        return replace(
            log,
            whole=self.whole,
            peaks=_peaks(self.streams.values()),
            finished=self.ending.finished,
            ending=self.ending.ending(),
            tail=self.ending.tail(),
            losses_not_finite=sum(item.losses_not_finite for item in told),
            losses=sum(item.losses for item in told),
            counts=counts,
            notes=notes_of(
                log, counts, sorted({_spoken(item) for item in told if item is not lead})
            ),
        )


def fields_of(shape: LinePattern, text: str) -> Told:
    """The figures of a line, each as it is spelled."""
    told: Told = {}
    for name, spellings in shape.fields.items():
        for spelling in spellings:
            place = spelling.place(text)
            if place is not None:
                told[name] = text[place[0] : place[1]]
                break
    return told


def _drawn(stream: Stream, shape: LinePattern, bar: Bar) -> bool:
    """Takes the drawing of a bar; whether it is known to tell of further steps."""
    if shape.fields:
        stream.note(fields_of(shape, bar.after))
    if not bar.before:
        stream.nameless = stream.nameless or NamelessBars(shape.mean_rate)
        stream.nameless.take(bar)
        return False
    stream.bars = stream.bars or Bars(shape.mean_rate)
    before = stream.bars.drawn_steps
    stream.bars.take(bar)
    return stream.bars.drawn_steps > before


def _lead(streams: Sequence[Stream]) -> Stream:
    """The lowest rank of the trainer that told most; one that told little does not lead."""
    most: dict[str, int] = {}
    for stream in streams:
        most[stream.shape.trainer] = max(most.get(stream.shape.trainer, 0), _told_by(stream))
    trainer = max(most, key=lambda name: most[name])
    leading = [
        stream
        for stream in streams
        if stream.shape.trainer == trainer and 2 * _told_by(stream) >= most[trainer]
    ]
    return min(leading, key=_rank_order)


def _peaks(streams: Iterable[Stream]) -> dict[str, float]:
    """Of the fullest device of all ranks."""
    highest: dict[str, float] = {}
    for stream in streams:
        for name, peak in stream.peaks.items():
            highest[name] = max(peak, highest.get(name, 0.0))
    return highest


def _told_by(stream: Stream) -> int:
    return stream.lines + (stream.bars.drawn_steps if stream.bars is not None else 0)


def _rank_order(stream: Stream) -> tuple[bool, int, str]:
    digits = re.search(r"\d{1,9}\Z", stream.rank or "")
    return stream.rank is None, int(digits[0]) if digits else 0, stream.rank or ""


def _spoken(stream: Stream) -> str:
    return (
        stream.shape.trainer if stream.rank is None else f"{stream.shape.trainer} in {stream.rank}"
    )


def _log_of(stream: Stream) -> TrainLog:
    """The series of a stream; where its lines tell no seconds, those of its bars."""
    log = TrainLog(
        trainer=stream.shape.trainer,
        rank=stream.rank,
        numbers=stream.numbers,
        seconds=stream.seconds,
        covered=covered_by(stream),
        clock="timestamps" if stream.shape.seconds == "between" else "trainer",
        ended_steps=ended_steps(stream),
        rates=stream.padded_rates(),
        last=stream.last,
        losses=stream.losses,
        losses_not_finite=stream.losses_not_finite,
    )
    if any(not math.isnan(value) for value in stream.seconds):
        return log
    bars = stream.bars or (stream.nameless.of_training() if stream.nameless is not None else None)
    if bars is None:
        return replace(log, clock=None)
    bars.end()
    stretches = bars.stretches
    return replace(
        log,
        numbers=array("d", [item.number for item in stretches]),
        seconds=array("d", [item.step_s for item in stretches]),
        covered=array("d", [item.steps for item in stretches]),
        clock="bar" if stretches else None,
        ended_steps=bars.steps,
        rates={},
    )
