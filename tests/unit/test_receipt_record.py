"""Typed records: the whole example survives, and so does everything this version does not know."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import (
    UNKNOWN_FIELD,
    Record,
    as_plain,
    from_plain,
    has_unknown,
)

DATA = Path(__file__).parents[1] / "data"
EXAMPLE: dict[str, Any] = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def objects(value: Any) -> list[dict[str, Any]]:
    """Every object inside a JSON value, outermost first."""
    found: list[dict[str, Any]] = []
    if isinstance(value, dict):
        found.append(value)
        for item in value.values():
            found += objects(item)
    elif isinstance(value, list):
        for item in value:
            found += objects(item)
    return found


def contained(part: Any, whole: Any, path: str = "") -> list[str]:
    """Paths at which `whole` does not hold what `part` holds."""
    if isinstance(part, dict):
        missing = [f"{path}.{key} is missing" for key in part if key not in whole]
        return missing + [
            line for key in part if key in whole for line in contained(part[key], whole[key], key)
        ]
    if isinstance(part, list):
        if len(part) != len(whole):
            return [f"{path} has {len(whole)} elements"]
        return [
            line
            for place, (left, right) in enumerate(zip(part, whole, strict=True))
            for line in contained(left, right, f"{path}[{place}]")
        ]
    return [] if part == whole else [f"{path} is {whole!r}"]


def kinds(kind: type[Record] = Record) -> list[type[Record]]:
    """Every kind of record, the base first."""
    return [kind, *(each for below in kind.__subclasses__() for each in kinds(below))]


def test_no_annotation_is_text() -> None:
    """Annotations that are text are compiled one by one when a command reads its receipt."""
    ours = [kind for kind in kinds() if kind.__module__.startswith("compilediag.")]
    text = {
        f"{kind.__module__}.{kind.__name__}.{name}"
        for kind in ours
        for name, annotation in inspect.get_annotations(kind).items()
        if isinstance(annotation, str)
    }
    assert text == set()
    assert Receipt in ours


def test_every_key_of_the_example_is_ours() -> None:
    """The fixed keys of the design are known, with their values, and none is unknown."""
    receipt = from_plain(Receipt, EXAMPLE)
    assert contained(EXAMPLE, as_plain(receipt)) == []
    assert not has_unknown(receipt)


def test_keys_stand_in_the_order_of_the_example() -> None:
    """A reader of the file finds the sections where the design has them; later ones stand beside
    what they belong to."""
    written = list(as_plain(from_plain(Receipt, EXAMPLE)))
    assert [key for key in written if key in EXAMPLE] == list(EXAMPLE)


@given(st.data())
def test_unknown_fields_survive_at_every_level(data: st.DataObject) -> None:
    """Whatever is added to any object of a receipt is there after reading and writing."""
    raw = copy.deepcopy(EXAMPLE)
    places = st.sampled_from(range(len(objects(raw))))
    # From the last to the first: what is added inside of an object comes after it.
    for place in sorted(data.draw(st.sets(places, max_size=4)), reverse=True):
        # "new field" is a key of no section; the maps among the objects take only their own type.
        target = objects(EXAMPLE)[place]
        if any(target == record for record in _records(EXAMPLE)):
            objects(raw)[place]["new field"] = data.draw(JSON)
    once = as_plain(from_plain(Receipt, raw))
    assert contained(raw, once) == []
    assert as_plain(from_plain(Receipt, once)) == once


def _records(raw: Any) -> list[dict[str, Any]]:
    """The objects that are sections with fixed keys, not maps with any names."""
    maps = (
        raw["completeness"]["records_lost"],
        raw["header"]["provenance"]["source_sha256"],
        raw["header"]["run"]["env_allowlisted"],
        raw["environment"]["hooks_available"],
        raw["compile"]["recompiles_by_family"],
        raw["steps"]["sketch"]["buckets"],
        raw["goodput"]["badput_s"],
        raw["cudagraph"]["recordings_by_reason"],
        raw["extensions"],
    )
    return [item for item in objects(raw) if item not in maps]


def test_a_changed_record_keeps_its_unknown_fields() -> None:
    """Replacing one field of a record that was read loses nothing."""
    raw = {**copy.deepcopy(EXAMPLE), "later": [1]}
    receipt = msgspec.structs.replace(from_plain(Receipt, raw), status="failed")
    assert as_plain(receipt)["later"] == [1]
    assert as_plain(receipt)["status"] == "failed"


def test_the_inner_name_of_unknown_fields_is_not_a_way_in() -> None:
    """A file that spells our own bookkeeping key gets no influence on it."""
    raw = {**copy.deepcopy(EXAMPLE), UNKNOWN_FIELD: {"status": "failed", "x": 1}}
    receipt = from_plain(Receipt, raw)
    assert receipt.unknown == {}
    assert "x" not in as_plain(receipt)


@pytest.mark.parametrize(
    ("key", "value"), [("status", "fine"), ("compile", None), ("findings", [{}]), ("checks", [])]
)
def test_wrong_types_are_refused(key: str, value: Any) -> None:
    """A field of another type is an error, not a guess."""
    with pytest.raises(msgspec.ValidationError):
        from_plain(Receipt, {**copy.deepcopy(EXAMPLE), key: value})


def test_required_fields() -> None:
    """What reliability.md calls required is required, everything else is not."""
    required = {"schema", "schema_version", "receipt_id", "status", "header", "environment"}
    required |= {"compile", "checks", "completeness"}
    for key in EXAMPLE:
        raw = {name: value for name, value in EXAMPLE.items() if name != key}
        if key in required:
            with pytest.raises(msgspec.ValidationError):
                from_plain(Receipt, raw)
        else:
            assert from_plain(Receipt, raw).receipt_id == EXAMPLE["receipt_id"]
