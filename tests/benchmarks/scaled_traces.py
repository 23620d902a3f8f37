"""A recorded trace made as large as is asked for, or of as many ranks, and still a valid trace.

Copy k of it compiles frames of its own: k times the number of frames is added to every frame id,
in the envelopes, metrics, timeline events and printed reasons, and digests of changed payloads are
written again. Interned strings are the same, and told once. Times are those of the first copy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_RECORD = re.compile(rb"[^\t\n][^\n]*\n(?:\t[^\n]*\n)*")
_EVENT = re.compile(rb"\] \{\"(\w+)\"")
_ENVELOPE_ID = re.compile(rb'(?<="frame_id": )(\d+)(?!.*"frame_id")')
_METRICS_ID = re.compile(
    rb'(?<="compile_id": ")(\d+)(?=/)|(?<="frame_key": ")(\d+)(?=")'
    rb'|(?<="recompile_reason": ")(\d+)(?=/\d)|(?<="frame_id": )(\d+)(?!.*"frame_id")'
)
_EVENT_ID = re.compile(rb'(?<="compile_id": ")(\d+)(?=/)')
_REASON_ID = re.compile(rb'(?:(?<=\t)|(?<=^")|(?<=\t"))(\d+)(?=/\d+: )', re.MULTILINE)
_DIGEST = re.compile(rb'(?<="has_payload": ")[0-9a-f]{32}(?="\}$)')
_PLACE = b'"frame_id": '


@dataclass(frozen=True, slots=True)
class Template:
    """Bytes with a hole for each frame id."""

    text: bytes
    """Percent signs doubled, `%d` for the ids."""
    frames: tuple[int, ...]

    @classmethod
    def of(cls, raw: bytes, ids: re.Pattern[bytes] | None) -> Template:
        """`ids` finds the numbers of frames."""
        if ids is None:
            return cls(raw.replace(b"%", b"%%"), ())
        frames = tuple(int(found[0]) for found in ids.finditer(raw))
        parts = [part.replace(b"%", b"%%") for part in _between(raw, ids)]
        return cls(b"%d".join(parts), frames)

    def filled(self, shift: int) -> bytes:
        """The bytes with `shift` added to every id."""
        return self.text % tuple(frame + shift for frame in self.frames)


def _between(raw: bytes, ids: re.Pattern[bytes]) -> Iterator[bytes]:
    at = 0
    for found in ids.finditer(raw):
        yield raw[at : found.start()]
        at = found.end()
    yield raw[at:]


@dataclass(frozen=True, slots=True)
class Piece:
    """One record."""

    metadata: Template
    payload: Template
    once: bool
    """Only in the first copy."""

    @classmethod
    def of(cls, record: bytes) -> Piece:
        line, _, payload = record.partition(b"\n")
        event = _EVENT.search(line)
        kind = event[1] if event else b""
        in_payload = None
        if kind == b"chromium_event":
            in_payload = _EVENT_ID
        elif b'"name": "recompile_reasons"' in line[:400]:
            in_payload = _REASON_ID
        in_line = _METRICS_ID if kind.endswith(b"compilation_metrics") else _ENVELOPE_ID
        return cls(Template.of(line, in_line), Template.of(payload, in_payload), kind == b"str")

    def copy(self, shift: int, rank: int | None) -> bytes:
        """The record with `shift` added to its frames, written by `rank`."""
        line = self.metadata.filled(shift)
        payload = self.payload.filled(shift)
        if self.payload.frames:
            plain = payload[1:-1].replace(b"\n\t", b"\n")
            digest = hashlib.md5(plain, usedforsecurity=False).hexdigest().encode()
            line = _DIGEST.sub(digest, line)
        if rank is not None and _PLACE in line:
            head, _, tail = line.rpartition(_PLACE)
            line = b'%s"rank": %d, %s%s' % (head, rank, _PLACE, tail)
        return line + b"\n" + payload


def pieces_of(recorded: bytes) -> tuple[tuple[Piece, ...], int]:
    """The records of a trace, and how many frames it has."""
    pieces = tuple(Piece.of(found[0]) for found in _RECORD.finditer(recorded))
    frames = {frame for piece in pieces for frame in piece.metadata.frames}
    return pieces, 1 + max(frames, default=0)


def write_large(recorded: bytes, path: Path, size: int) -> int:
    """A trace of about `size` bytes; how many copies it holds."""
    pieces, frames = pieces_of(recorded)
    copies = max(1, round(size / len(recorded)))
    with path.open("wb") as file:
        for copy in range(copies):
            file.writelines(_copy(pieces, copy, frames, None))
    return copies


def write_ranks(recorded: bytes, folder: Path, ranks: int) -> int:
    """A folder with the trace of each rank; their bytes."""
    pieces, frames = pieces_of(recorded)
    size = 0
    for rank in range(ranks):
        text = b"".join(_copy(pieces, 0, frames, rank))
        size += len(text)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_{rank:08x}.log").write_bytes(text)
    return size


def _copy(pieces: Sequence[Piece], copy: int, frames: int, rank: int | None) -> Iterator[bytes]:
    for piece in pieces:
        if not (copy and piece.once):
            yield piece.copy(copy * frames, rank)
