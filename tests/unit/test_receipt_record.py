"""Typed records: the whole example is read, and what a later version adds does not disturb."""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.receipt.schema.receipt import Receipt

DATA = Path(__file__).parents[1] / "data"
EXAMPLE: dict[str, Any] = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))


def test_fields_of_later_versions_are_ignored() -> None:
    """Whatever a later version adds to a section, or to one of its items, the rest is read."""
    raw = copy.deepcopy(EXAMPLE)
    event, finding = raw["compile"]["events"][1], raw["findings"][0]
    for record in (raw, raw["header"]["lane"], raw["compile"], event, event["frame"], finding):
        record["new field"] = {"a": [1]}
    assert msgspec.convert(raw, Receipt) == msgspec.convert(EXAMPLE, Receipt)


def test_required_fields() -> None:
    """What reliability.md calls required is required, everything else is not."""
    required = {"schema", "schema_version", "receipt_id", "status", "header", "environment"}
    required |= {"compile", "checks", "completeness"}
    for key in EXAMPLE:
        raw = {name: value for name, value in EXAMPLE.items() if name != key}
        if key in required:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(raw, Receipt)
        else:
            assert msgspec.convert(raw, Receipt).receipt_id == EXAMPLE["receipt_id"]
