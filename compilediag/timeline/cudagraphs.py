"""What CUDA graphs did in a process: recordings with their reasons, warm-ups, replays.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from compilediag_harness.wire import CudagraphRecorded, CudagraphsRan

_SKIP = re.compile(r"skipping cudagraphs? due to (?P<reason>.+)", re.DOTALL | re.IGNORECASE)
_VARIES = re.compile(r"\d+")
_LIMIT = "exceeding max re-recording limit"


@dataclass(frozen=True, slots=True)
class GraphCounts:
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
        """Recordings by reason; those beyond the ones told are "not told"."""
        found: dict[str, int] = {}
        for item in self.recorded:
            found[item.reason] = found.get(item.reason, 0) + 1
        if left := self.recordings - len(self.recorded):
            found["not told"] = left
        return found

    @property
    def distinct_sizes(self) -> int:
        """Of the inputs, over all recorded functions."""
        return len({(frame_of(item), item.mode, item.sizes) for item in self.recorded})


def frame_of(item: CudagraphRecorded) -> tuple[int, str]:
    """Epoch and frame id: each size of `dynamic=False` has a compile id of its own."""
    head, _, _ = item.compile_id.rpartition("/")
    return item.epoch, head or item.compile_id


def cudagraphs_of(
    process: int, events: Iterable[CudagraphRecorded | CudagraphsRan]
) -> list[CudagraphRun]:
    """One run, or none where the process told nothing of CUDA graphs."""
    recorded: list[CudagraphRecorded] = []
    batches: list[CudagraphsRan] = []
    for event in events:
        if isinstance(event, CudagraphRecorded):
            recorded.append(event)
        else:
            batches.append(event)
    if not recorded and not batches:
        return []
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
    """Of a process that was killed the last batch is missing: what was told one by one counts."""
    sums: dict[str, list[int]] = {}
    for batch in batches:
        rows = zip(batch.compile_ids, batch.recordings, batch.replays, batch.warmups, strict=False)
        for compile_id, *numbers in rows:
            total = sums.setdefault(compile_id, [0, 0, 0])
            for place, number in enumerate(numbers):
                total[place] += number
    told: dict[str, int] = {}
    for item in recorded:
        told[item.compile_id] = told.get(item.compile_id, 0) + 1
    for compile_id, number in told.items():
        total = sums.setdefault(compile_id, [0, 0, 0])
        total[0] = max(total[0], number)
    return {compile_id: GraphCounts(*numbers) for compile_id, numbers in sums.items()}


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
