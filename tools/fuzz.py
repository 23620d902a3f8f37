"""Feeds damaged records and documents to their readers, and reports how many, in how many seconds.

    python tools/fuzz.py [--inputs N] [--seconds S] [--seed N]

Inputs are pieces of recorded traces, text logs, journals and output of trainers, mutated: bytes
and lines changed, dropped, repeated, moved, cut, or replaced by what readers are known to fail on.
Every input is read, and one in a hundred of each record goes on to a receipt. Receipts, lock files
and configuration are damaged too (`fuzz_documents.py`). `make fuzz` calls it; an exception ends it,
and names the input.
"""

from __future__ import annotations

import argparse
import binascii
import gzip
import itertools
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import fuzz_documents

from compilediag.extensions.train_logs.patterns import load_built_in
from compilediag.extensions.train_logs.read import read_train_log
from compilediag.readers.journal import ProcessJournal, decode_line
from compilediag.readers.torch_logs import parse_text_events
from compilediag.readers.torch_trace.read import parse_trace
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Timeline, fold

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
PIECE_BYTES = 8192
WHOLE_EVERY = 100
"""Every so many inputs go all the way to a receipt."""

HOSTILE = (
    b"\xff\xfe",
    b"\0",
    b"\r",
    b"\n\t",
    b"\n",
    b"] {",
    b'"',
    b"{" * 2000,
    b"[" * 2000,
    b"9" * 400,
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b'"\\ud800"',
    b"../../etc/passwd",
    b"<script>",
    b"\x1b]0;x\x07",
    b'"frame_id": -1, ',
    b'"rank": 1e30, ',
)

Reader = Callable[[bytes], tuple[ProcessJournal, ...]]
Feed = Callable[[random.Random], None]


def main() -> int:
    """0 when no input raised, 1 after the first that did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so much CPU time")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    targets = _targets()
    begun = time.process_time()
    done = slowest = 0.0
    for number in range(asked.inputs):
        before = time.process_time()
        if before - begun > asked.seconds:
            break
        source = random.Random(f"{asked.seed}-{number}")  # noqa: S311 - no secret
        name, feed = targets[number % len(targets)]
        try:
            feed(source)
        except Exception:
            traceback.print_exc()
            print(f"input {number} of seed {asked.seed} ({name}) raised", file=sys.stderr)
            return 1
        slowest = max(slowest, time.process_time() - before)
        done += 1
    spent = time.process_time() - begun
    print(f"{done:.0f} inputs, {spent:.0f} CPU s, 0 exceptions, slowest {slowest * 1000:.0f} ms")
    return 0


def mutated(source: random.Random, content: bytes) -> bytes:
    """The content with one to eight faults."""
    for _ in range(source.randint(1, 8)):
        content = source.choice(_FAULTS)(source, content)
    return content


def _targets() -> list[tuple[str, Feed]]:
    records = [(name, _records(read, content)) for name, read, content in _recorded()]
    return [*records, *fuzz_documents.targets(mutated)]


def _records(read: Reader, whole: bytes) -> Feed:
    """Pieces of a record, damaged; one in a hundred goes all the way to a receipt."""
    count = itertools.count()

    def feed(source: random.Random) -> None:
        journals = read(mutated(source, _piece(source, whole)))
        if next(count) % WHOLE_EVERY == 0:
            _receipt(journals)

    return feed


def _recorded() -> list[tuple[str, Reader, bytes]]:
    traces = [gzip.decompress(path.read_bytes()) for path in sorted(DATA.glob("traces*/*.gz"))]
    logs = [path.read_bytes() for path in sorted(DATA.glob("torch_logs*.txt"))]
    found: list[tuple[str, Reader, bytes]] = []
    found += [("trace", _trace, item) for item in traces]
    found += [("text", _text, item) for item in logs]
    found.append(("journal", _journal, _lines_of_a_journal()))
    printed = [path.read_bytes() for path in sorted(DATA.glob("train_logs/*"))]
    found += [("train log", _train_log, item) for item in printed]
    return found


def _trace(content: bytes) -> tuple[ProcessJournal, ...]:
    return parse_trace([content], "rank_1.log")


def _text(content: bytes) -> tuple[ProcessJournal, ...]:
    return parse_text_events([content], "log")


def _journal(content: bytes) -> tuple[ProcessJournal, ...]:
    for line in content.split(b"\n"):
        decode_line(line)
    return ()


def _train_log(content: bytes) -> tuple[ProcessJournal, ...]:
    log = read_train_log([content], load_built_in())
    if log is not None:
        timeline = Timeline(train_log=log)
        build_receipt(timeline, diagnose(timeline), RunMetadata("0" * 26, "2026-01-01T00:00:00Z"))
    return ()


def _lines_of_a_journal() -> bytes:
    body = b'0 {"k":"EvidenceLost","t":0.5,"step":1,"source":"a","reason":"b"}'
    return b"\n".join(b"%08x " % binascii.crc32(body) + body for _ in range(50))


def _piece(source: random.Random, whole: bytes) -> bytes:
    """Some records from anywhere, and now and then the beginning, which holds the strings."""
    start = source.choice((0, source.randrange(max(1, len(whole)))))
    return whole[start : start + PIECE_BYTES]


def _receipt(journals: tuple[ProcessJournal, ...]) -> None:
    timeline = fold([journal.events for journal in journals])
    build_receipt(timeline, diagnose(timeline), RunMetadata("0" * 26, "2026-01-01T00:00:00Z"))


def _place(source: random.Random, content: bytes) -> int:
    return source.randrange(len(content) + 1)


def _flip(source: random.Random, content: bytes) -> bytes:
    at = _place(source, content)
    return content[:at] + bytes([source.randrange(256)]) + content[at + 1 :]


def _drop(source: random.Random, content: bytes) -> bytes:
    at = _place(source, content)
    return content[:at] + content[at + source.randint(1, 200) :]


def _repeat(source: random.Random, content: bytes) -> bytes:
    at = _place(source, content)
    return content[:at] + content[max(0, at - source.randint(1, 400)) :]


def _insert(source: random.Random, content: bytes) -> bytes:
    at = _place(source, content)
    return content[:at] + source.choice(HOSTILE) + content[at:]


def _cut(source: random.Random, content: bytes) -> bytes:
    return content[: _place(source, content)]


def _shuffle(source: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one, other = source.randrange(len(lines)), source.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


_FAULTS = (_flip, _drop, _repeat, _insert, _cut, _shuffle, _flip, _insert)

if __name__ == "__main__":
    sys.exit(main())
