"""A receipt's file: the same bytes, however long its lists are and in however many pieces."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compilediag.receipt import spelling
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import as_plain, from_plain
from compilediag.receipt.spelling import encoded, pieces_of

EXAMPLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "receipt-example.json").read_text(encoding="utf-8")
)


def in_one(receipt: Receipt) -> bytes:
    """The file as msgspec alone spells it."""
    return msgspec.json.format(msgspec.json.encode(as_plain(receipt)), indent=1) + b"\n"


def with_many(events: int) -> Receipt:
    """The example with so many compiles."""
    raw = copy.deepcopy(EXAMPLE)
    first = raw["compile"]["events"][0]
    raw["compile"]["events"] = [{**first, "compile_id": f"{n}/0 \n\u00e9"} for n in range(events)]
    return from_plain(Receipt, raw)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=30,
)
@given(events=st.integers(0, 12), together=st.integers(1, 5))
def test_pieces_are_the_file(monkeypatch: pytest.MonkeyPatch, events: int, together: int) -> None:
    """Wherever lists are taken apart, the bytes are those of the whole."""
    monkeypatch.setattr(spelling, "ITEMS_TOGETHER", together)
    receipt = with_many(events)
    assert encoded(receipt) == in_one(receipt)


def test_a_large_receipt_comes_in_small_pieces() -> None:
    """No piece holds more than so many items, and the bytes are those of the whole."""
    receipt = with_many(5000)
    pieces = list(pieces_of(receipt))
    whole = in_one(receipt)
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) < len(whole) / 10


@pytest.mark.parametrize("where", ["receipt", "section", "item"])
def test_fields_of_others_are_spelled_too(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """What a newer version wrote stays, in whatever object it stands."""
    monkeypatch.setattr(spelling, "ITEMS_TOGETHER", 2)
    raw = as_plain(with_many(7))
    node = {"receipt": raw, "section": raw["compile"], "item": raw["compile"]["events"][6]}[where]
    node["of a later version"] = [1, {"deep": "\n"}]
    receipt = from_plain(Receipt, raw)
    assert encoded(receipt) == in_one(receipt)
    assert json.loads(encoded(receipt)) == raw
