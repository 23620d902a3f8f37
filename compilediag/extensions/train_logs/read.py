"""Reads the output of trainers, by patterns.toml and the user's pattern file: steps and ending.

Any bytes are accepted, and the time is linear in them. A line that looks like that of a step and
cannot be read is counted; a figure that was not printed stays absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compilediag.extensions.train_logs.ending import EndingReader
from compilediag.extensions.train_logs.patterns import (
    BAR,
    END,
    STEP,
    LinePattern,
    load_patterns,
    split_rank,
)
from compilediag.extensions.train_logs.series import (
    BAR_MARKER,
    Bar,
    Bars,
    NamelessBars,
    Stream,
    compute_covered,
    count_ended_steps,
    parse_bar,
    parse_number,
)
from compilediag.readers.lines import decode_plain_text, split_lines
from compilediag.readers.storage import PlainStream
from compilediag.timeline.recorded import TrainLog

LINE_LIMIT = 16_384
"""Longest line read, in bytes; the rest of a longer one is dropped, and the line counted."""

STREAMS_LIMIT = 10_000
"""Most ranks and trainers that are distinguished."""

MIN_STEP_LINES = 2
"""Step lines by which a file that nobody named is recognised as the output of a trainer."""

MAX_NAMED = 4
"""Most other ranks and trainers named in a note."""

_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of trainers' output that the core uses (`TrainLogReader`)."""

    patterns: Sequence[LinePattern]

    @property
    def trainers(self) -> tuple[str, ...]:
        """The names of those that it knows."""
        return tuple(dict.fromkeys(pattern.trainer for pattern in self.patterns))

    def has_steps(self, head: bytes) -> bool:
        """True if the first bytes of a file are those of a trainer's output."""
        markers = (pattern.marker for pattern in self.patterns if pattern.kind == STEP)
        if not any(marker.encode() in head for marker in markers):
            return False
        streams = _read([head], self.patterns).streams.values()
        return sum(stream.lines for stream in streams) >= MIN_STEP_LINES

    def read(self, path: str) -> TrainLog | None:
        """Read the output at `path`; None where no line of it is that of a step."""
        stream = PlainStream(path)
        log = read_train_log(stream.read_chunks(), self.patterns)
        if log is None or stream.problem is None:
            return log
        return replace(log, notes=(*log.notes, f"the log ends early: {stream.problem}"))


def make_reader(patterns: str | None) -> Reader:
    """Make the reader of the trainers that the package knows, and of those in a pattern file.

    Raises:
        UsageError: the pattern file cannot be used.
    """
    return Reader(load_patterns(patterns))


def read_train_log(chunks: Iterable[bytes], patterns: Sequence[LinePattern]) -> TrainLog | None:
    """Read the bytes of a trainer's output; None where no line is that of a step."""
    return _read(chunks, patterns).build_log()


def _read(chunks: Iterable[bytes], patterns: Sequence[LinePattern]) -> _Reader:
    reader = _Reader(patterns)
    for line in split_lines(chunks, LINE_LIMIT, carriage_returns=True):
        if line.raw:
            reader.take(decode_plain_text(line.raw), cut=line.cut)
    return reader


@dataclass(slots=True)
class _Reader:
    """State between the lines of one output."""

    patterns: Sequence[LinePattern]
    streams: dict[tuple[str, str | None], Stream] = field(
        default_factory=dict[tuple[str, str | None], Stream]
    )
    """By trainer and rank."""
    ending: EndingReader = field(default_factory=EndingReader)
    whole: dict[str, float] = field(default_factory=dict[str, float])
    counts: dict[str, int] = field(
        default_factory=lambda: {"unread": 0, "cut": 0, "other_streams": 0}
    )
    lines: int = 0

    def take(self, text: str, *, cut: bool) -> None:
        """Take the next line."""
        self.lines += 1
        self.counts["cut"] += cut
        known = any(self._take_marked_line(pattern, text) for pattern in self.patterns)
        if BAR_MARKER in text and self._take_bar_line(text, drawn_over=known):
            # What a program prints next may be on the line of its bar.
            known = known or _TRACEBACK not in text
        if not known:
            self.ending.add_line(text)

    def _take_marked_line(self, pattern: LinePattern, text: str) -> bool:
        """Take the line if it is one of this pattern; whether it is."""
        if pattern.kind == BAR or pattern.marker not in text:
            return False
        if pattern.unless and pattern.unless in text:
            return False
        rank, line = split_rank(text)
        figures = pattern.find_figures(line)
        if any(name not in figures for name in pattern.needs):
            self.counts["unread"] += bool(figures)
            return False
        if pattern.kind == END:
            self.ending.add_end(text)
            self.whole.update({name: parse_number(figure) for name, figure in figures.items()})
            return True
        stream = self._get_stream(pattern, rank)
        if pattern.kind == STEP:
            if stream is not None:
                stream.take(figures)
            self.ending.add_step(text)
        elif stream is not None:
            stream.note_figures(figures)
            self.ending.add_line(text)
        return True

    def _take_bar_line(self, text: str, *, drawn_over: bool) -> bool:
        """Take the line if it is a bar that a trainer draws for its steps; whether it is."""
        rank, line = split_rank(text)
        bar = parse_bar(line)
        if bar is None:
            return False
        drawn = (
            (candidate, named)
            for candidate in self.patterns
            if candidate.bar_name and (named := candidate.bar_name.match(bar.before))
        )
        pattern, named = next(drawn, (None, None))
        if pattern is None or named is None:
            return False
        # A text that changes with each drawing begins with what tells one bar from the next.
        text, bar = bar.before + bar.after, bar._replace(before=named[1 if named.lastindex else 0])
        stream = self._get_stream(pattern, rank)
        if stream is None:
            return True
        stream.note_figures(pattern.find_figures(text))
        if _take_bar(stream, pattern, bar) and not drawn_over:
            self.ending.add_step(text)
        return True

    def _get_stream(self, pattern: LinePattern, rank: str | None) -> Stream | None:
        key = (pattern.trainer, rank)
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= STREAMS_LIMIT:
                self.counts["other_streams"] += 1
                return None
            stream = self.streams[key] = Stream(pattern, rank)
        elif pattern.kind == STEP:
            stream.pattern = pattern
        return stream

    def build_log(self) -> TrainLog | None:
        """Build the log of one trainer and one rank; None where no line was that of a step."""
        streams = [stream for stream in self.streams.values() if stream.lines or stream.bars]
        if not streams:
            return None
        lead = _choose_lead(streams)
        peaks: dict[str, float] = {}  # of the fullest device of all ranks
        for stream in self.streams.values():
            for name, peak in stream.peaks.items():
                peaks[name] = max(peak, peaks.get(name, 0.0))
        log = _build_log(lead)
        counts = {"lines": self.lines, **self.counts, "steps": lead.lines}
        for name in ("repeated", "over_limit", "backwards", "grad_norms_not_finite"):
            counts[name] = lead.left_out[name]
        counts["other_streams"] += len(streams) - 1
        others = sorted(
            {
                stream.pattern.trainer + (f" in {stream.rank}" if stream.rank is not None else "")
                for stream in streams
                if stream is not lead
            }
        )
        notes = [*_describe_clock(log), *_describe_left_out(counts)]
        if others:
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            names = ", ".join(others[:MAX_NAMED])
            notes.append(f"other step lines are not in the figures: {names}{more}")
        return replace(
            log,
            whole=self.whole,
            peaks=peaks,
            finished=self.ending.finished,
            ending=self.ending.find_ending(),
            tail=self.ending.get_tail(),
            losses_not_finite=sum(stream.losses_not_finite for stream in streams),
            losses=sum(stream.losses for stream in streams),
            counts=counts,
            notes=tuple(notes),
        )


def _take_bar(stream: Stream, pattern: LinePattern, bar: Bar) -> bool:
    """Take the drawing of a bar; whether it is known to show further steps."""
    if not bar.before:
        stream.nameless = stream.nameless or NamelessBars(pattern.rate == "mean")
        stream.nameless.take(bar)
        return False
    stream.bars = stream.bars or Bars(pattern.rate == "mean")
    before = stream.bars.drawn_steps
    stream.bars.take(bar)
    return stream.bars.drawn_steps > before


def _choose_lead(streams: Sequence[Stream]) -> Stream:
    """Choose the lowest rank of the trainer with most steps that has at least half as many."""
    streams = [stream for stream in streams if not stream.pattern.below] or streams
    most = max(streams, key=_count_steps)
    leading = [
        stream
        for stream in streams
        if stream.pattern.trainer == most.pattern.trainer
        and 2 * _count_steps(stream) >= _count_steps(most)
    ]

    def get_rank_order(stream: Stream) -> tuple[bool, int, str]:
        digits = re.search(r"\d{1,9}\Z", stream.rank or "")
        return stream.rank is None, int(digits[0]) if digits else 0, stream.rank or ""

    return min(leading, key=get_rank_order)


def _count_steps(stream: Stream) -> int:
    return stream.lines + (stream.bars.drawn_steps if stream.bars is not None else 0)


def _build_log(stream: Stream) -> TrainLog:
    """Build the series of a stream; where its lines hold no seconds, those of its bars."""
    log = TrainLog(
        trainer=stream.pattern.trainer,
        rank=stream.rank,
        numbers=stream.numbers,
        seconds=stream.seconds,
        covered=compute_covered(stream),
        clock="timestamps" if stream.pattern.seconds == "between" else "trainer",
        ended_steps=count_ended_steps(stream),
        rates={name: stream.pad_series(name) for name in stream.rates},
        last=stream.last,
        losses=stream.losses,
        losses_not_finite=stream.losses_not_finite,
    )
    if any(not math.isnan(value) for value in stream.seconds):
        return log
    bars = stream.bars or (stream.nameless.find_training() if stream.nameless is not None else None)
    if bars is None:
        return replace(log, clock=None)
    bars.finish()
    return replace(
        log,
        numbers=bars.numbers,
        seconds=bars.seconds,
        covered=bars.covered,
        clock="bar" if bars.numbers else None,
        ended_steps=bars.steps,
        rates={},
    )


def _describe_clock(log: TrainLog) -> Iterator[str]:
    """Describe where the seconds are from."""
    means = [covered for covered in log.covered if covered > 1]
    if log.clock == "timestamps":
        yield (
            "step times are the time between two lines, by their timestamps: evaluations and "
            "checkpoints between them are in it"
        )
    elif log.clock == "bar":
        yield (
            "step times are means over stretches of a progress bar: evaluations while it is drawn "
            "are in them"
        )
    elif log.clock is None:
        yield "the log tells no time of a step"
    elif means and not all(map(math.isnan, log.seconds)):
        yield f"step times are means over {means[0]:g} steps each, as the trainer printed them"


def _describe_left_out(counts: Mapping[str, int]) -> Iterator[str]:
    """Describe the lines of which something was left out."""
    reasons = {
        "unread": "like the line of a step, but not to be read",
        "cut": "too long, and cut",
        "repeated": "a step that was reported before, as by ranks whose lines bear no name",
        "backwards": "back in time or in steps, so that no step time was made of it",
        "over_limit": "more than are stored",
        "grad_norms_not_finite": "the norm of the gradients was not finite",
    }
    for name, text in reasons.items():
        if counts.get(name):
            yield f"{counts[name]:,} line{'s' if counts[name] > 1 else ''}: {text}"
