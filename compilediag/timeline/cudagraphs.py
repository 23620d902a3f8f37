"""What CUDA graphs did in a process: recordings with their reasons, warm-ups, replays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.timeline.compiles import frame_id_of
from compilediag_harness.wire import CudagraphRecorded, CudagraphsRan

_SKIP = re.compile(r"skipping cudagraphs? due to (?P<reason>.+)", re.DOTALL | re.IGNORECASE)
_VARIES = re.compile(r"\d+")
_LIMIT = "exceeding max re-recording limit"


class GraphCounts(NamedTuple):
    """The graphs of one compile."""

    recordings: int
    replays: int
    warmups: int


@dataclass(frozen=True, slots=True)
class CudagraphRun:
    """The CUDA graphs of one process."""

    process: int
    recorded: tuple[CudagraphRecorded, ...]
    """One by one: all, or the first so many."""
    counts: dict[str, GraphCounts]
    """By compile id; of all recordings."""
    skips: int | None
    """torch's own count, silent ones included; None where the process did not end in order."""
    live_graphs: int | None
    pool_bytes: int | None
    lost: str | None
    """Why nothing could be watched, if so."""

    @property
    def recordings(self) -> int:
        return sum(item.recordings for item in self.counts.values())

    @property
    def replays(self) -> int:
        return sum(item.replays for item in self.counts.values())

    @property
    def warmups(self) -> int:
        return sum(item.warmups for item in self.counts.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Recordings by reason; those that were only counted are "not told"."""
        found = dict(Counter(item.reason for item in self.recorded))
        if left := self.recordings - len(self.recorded):
            found["not told"] = left
        return found

    @property
    def distinct_sizes(self) -> int:
        """Of the inputs, over all recorded functions."""
        return len({(frame_of(item), item.mode, item.sizes) for item in self.recorded})


def frame_of(item: CudagraphRecorded) -> tuple[int, str]:
    """Epoch and frame id: each size of `dynamic=False` has a compile id of its own."""
    return item.epoch, frame_id_of(item.compile_id)


def cudagraphs_of(
    process: int, events: Sequence[CudagraphRecorded | CudagraphsRan]
) -> list[CudagraphRun]:
    """The run of one process, from at least one event."""
    recorded = [event for event in events if isinstance(event, CudagraphRecorded)]
    batches = [event for event in events if isinstance(event, CudagraphsRan)]
    last = batches[-1] if batches else None
    return [
        CudagraphRun(
            process=process,
            recorded=tuple(recorded),
            counts=_counts(recorded, batches),
            skips=None if last is None else last.skips,
            live_graphs=None if last is None else last.live_graphs,
            pool_bytes=None if last is None else last.pool_bytes,
            lost=None if last is None else last.lost,
        )
    ]


def _counts(
    recorded: Iterable[CudagraphRecorded], batches: Iterable[CudagraphsRan]
) -> dict[str, GraphCounts]:
    """Of a process that was killed the last batch is missing: what was recorded one by one
    counts."""
    sums: dict[str, GraphCounts] = {}
    for batch in batches:
        rows = zip(batch.compile_ids, batch.recordings, batch.replays, batch.warmups, strict=False)
        for compile_id, *counts in rows:
            total = sums.get(compile_id, GraphCounts(0, 0, 0))
            sums[compile_id] = GraphCounts(*(a + b for a, b in zip(total, counts, strict=True)))
    for compile_id, count in Counter(item.compile_id for item in recorded).items():
        total = sums.get(compile_id, GraphCounts(0, 0, 0))
        sums[compile_id] = total._replace(recordings=max(total.recordings, count))
    return sums


def skip_reason(text: str) -> str | None:
    """torch's reason for leaving a CUDA graph out, from its warning; numbers are left out, so that
    equal reasons are equal. None for another text."""
    found = _SKIP.search(text)
    if found is None:
        return None
    if _LIMIT in text:
        return "re-recording limit"
    reason = found["reason"].split("\n")[0].split(". Found from")[0]
    return _VARIES.sub("N", reason.strip().rstrip(".:"))[:200]
