"""TORCH_TRACE bytes taken apart: what is read, what is lost, and that nothing raises."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_lines import HEAD, line

from compilediag.readers.torch_trace import scan
from compilediag.readers.torch_trace.records import ARTIFACTS
from compilediag.readers.torch_trace.scan import WANTED, Losses, TraceRecord, TraceScanner

REASON = line(b'{"artifact": {"name": "recompile_reasons"}, "frame_id": 0}', b"0/0: n == 2\nStack:")
OTHER = line(b'{"exported_graph": {}}', b'{\n"name": "x"\n}')
TIMING = line(
    b'{"chromium_event": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}',
    b'{"name": "dynamo", "ts": 1.0, "ph": "B"}',
)
STRING = line(b'{"str": ["a.py", 0]}')
WHOLE = STRING + OTHER + REASON + OTHER + STRING


def scanned(*pieces: bytes) -> tuple[list[TraceRecord], Losses]:
    scanner = TraceScanner(WANTED, ARTIFACTS)
    return list(scanner.iterate_records(pieces)), scanner.losses


def cut(content: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


LOSSY = (
    *(STRING, b"print of the program\n\n", REASON, b"\n\tof no record\n", HEAD, b"\n", OTHER),
    *(REASON.replace(b"n == 2", b"n == 3"), b"\r\n", REASON, STRING[:-1]),
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 97, 10_000])
def test_pieces_of_any_size_hold_the_same_records(size: int) -> None:
    """A record, a payload line or a number may be cut anywhere between two reads."""
    records, losses = scanned(*cut(WHOLE, size))
    assert [item.kind for item in records] == ["str", "artifact", "str"]
    assert [item.payload for item in records] == [b"", b"0/0: n == 2\nStack:", b""]
    assert (losses.counts, losses.torn) == ({}, False)


def test_losses_are_the_same_wherever_a_file_is_cut() -> None:
    """Foreign, empty and broken lines beside payloads, in two pieces and in many."""
    content = b"".join(LOSSY)
    records, losses = scanned(content)
    assert [item.kind for item in records] == ["str", "artifact", "artifact", "str"]
    assert losses.counts == {"bad_prefix": 2, "bad_payload_hash": 1}
    for at in range(1, len(content)):
        assert scanned(content[:at], content[at:]) == (records, losses)
    for size in range(1, 300):
        assert scanned(*cut(content, size)) == (records, losses)


@pytest.mark.parametrize(
    ("foreign", "lost"),
    [
        (HEAD, 1),
        (HEAD[:40], 1),
        (b'V1121 said "no" before its event] {"exported_graph": 1}', 1),
        (b'V1121 of the program, which said "no"', 1),
        (b"V1121 " + b"x" * 5000 + b'] {"exported_graph": 1}', 1),
        (b"V1121 " + b"x" * 3000 + b'] {"exported_graph": 1}', 0),
        (b'V1121 too short] {"exported_graph": 1}', 1),
    ],
    ids=["no event", "cut", "a quotation first", "only a quotation", "far", "not too far", "near"],
)
def test_a_line_is_of_another_kind_by_its_own_event(foreign: bytes, lost: int) -> None:
    """The event stands behind the first quotation mark of the line itself: where it has none, the
    event of the next line is not taken for it."""
    records, losses = scanned(STRING + foreign + b"\n" + OTHER + STRING)
    assert [item.kind for item in records] == ["str", "str"]
    assert losses.counts == ({"bad_prefix": lost} if lost else {})


@pytest.mark.parametrize(
    "changed", [REASON.replace(b"n == 2", b"n == 3"), TIMING.replace(b"1.0", b"2.0")]
)
def test_a_payload_that_was_changed_is_not_used(changed: bytes) -> None:
    """torch writes the digest of a payload; where it does not fit, the record is not believed."""
    records, losses = scanned(changed + STRING)
    assert [item.kind for item in records] == ["str"]
    assert losses.counts == {"bad_payload_hash": 1}


@pytest.mark.parametrize("cut_bytes", [1, 10, 40, len(REASON) - 70])
def test_a_cut_payload_is_a_torn_tail(cut_bytes: int) -> None:
    """A process that was killed while it wrote leaves half a record; what is before it counts."""
    records, losses = scanned((STRING + REASON)[:-cut_bytes])
    assert len(records) == (2 if cut_bytes == 1 else 1)
    assert losses.torn == (cut_bytes != 1)


LONG = HEAD + b'{"str": ["' + b"x" * 5000 + b'", 1]}\n'
LONG_OTHER = HEAD + b'{"exported_graph": "' + b"x" * 5000 + b'"}\n\t' + b"y" * 5000 + b"\n"
LONG_PAYLOAD = line(b'{"artifact": {"name": "dynamo_graph_break_reason"}}', b"x" * 1500)


@pytest.mark.parametrize(
    ("long", "lost"),
    [(LONG, {"too_long": 1}), (LONG_OTHER, {}), (LONG_PAYLOAD, {"too_long": 1})],
    ids=["line", "another kind", "payload"],
)
def test_long_lines_cost_no_memory_and_are_counted(long, lost, monkeypatch) -> None:
    """A line over the limit is passed over, and the records after it are read. One of another kind
    is no loss: nothing of it would have been used."""
    monkeypatch.setattr(scan, "LINE_LIMIT", 1000)
    monkeypatch.setattr(scan, "PAYLOAD_LIMIT", 100)
    records, losses = scanned(*cut(STRING + long + REASON, 64))
    assert [item.kind for item in records][-1] == "artifact"
    assert records[0].kind == "str"
    assert losses.counts == lost


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 60), st.integers(0, len(WHOLE)))
def test_no_bytes_raise(noise: bytes, size: int, at: int) -> None:
    """Any bytes, anywhere in a trace, in pieces of any size."""
    content = WHOLE[:at] + noise + WHOLE[at:]
    whole, losses = scanned(content)
    pieces, again = scanned(*cut(content, size))
    assert (pieces, again) == (whole, losses)
