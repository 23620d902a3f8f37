"""The register of fields, and the pages made from it: complete, stable, never stale."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import msgspec.inspect
import pytest
from receipt_schema import json_schema

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.versions import registered_fields

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data"


def test_every_field_is_registered_once() -> None:
    """The code and the register know the same fields: none is without an id and a meaning."""
    assert sorted(field.path for field in registered_fields()) == sorted(
        _paths(msgspec.inspect.type_info(Receipt), "")
    )


def _paths(info: Any, prefix: str) -> Iterator[str]:
    """Every path of a record: "[]" after a key marks a list, "{}" a map of any names."""
    for field in info.fields:
        record, mark = _record_inside(field.type)
        yield f"{prefix}{field.encode_name}{mark}"
        if record is not None:
            yield from _paths(record, f"{prefix}{field.encode_name}{mark}.")


def _record_inside(info: Any) -> tuple[Any, str]:
    if isinstance(info, msgspec.inspect.UnionType):
        inside = map(_record_inside, info.types)
        return next((each for each in inside if each != (None, "")), (None, ""))
    if isinstance(info, msgspec.inspect.VarTupleType):
        return _record_inside(info.item_type)[0], "[]"
    if isinstance(info, msgspec.inspect.DictType):
        return _record_inside(info.value_type)[0], "{}"
    return (info if isinstance(info, msgspec.inspect.StructType) else None), ""


def test_ids_are_unique_and_sentences_end() -> None:
    """An id belongs to one field; a meaning is one line that ends like a sentence."""
    fields = registered_fields()
    ids = [field.id for field in fields]
    assert len(set(ids)) == len(ids)
    assert [field.path for field in fields if not field.meaning.endswith(".")] == []


def test_released_ids_never_move() -> None:
    """Fields of released versions keep their ids: compared with the file made at the release."""
    released = json.loads((DATA / "receipt-fields-1.0.json").read_text(encoding="utf-8"))
    now = {field.id: field for field in registered_fields()}
    assert {path: now[number].path for path, number in released.items()} == {
        path: path for path in released
    }


def test_pages_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/reference/ holds what the code says; `make docs` writes the pages again."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    pages: dict[str, str] = importlib.import_module("schema_page").rendered()
    for name, content in pages.items():
        assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == content, name


def test_the_schema_is_a_schema() -> None:
    """An independent validator accepts it."""
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_example_is_valid_and_a_count_that_is_no_number_is_not() -> None:
    """The receipt of the design fits the schema made from the code, which can fail."""
    example = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(example)
    example["compile"]["frames"] = "one"
    (error,) = validator.iter_errors(example)
    assert list(error.absolute_path) == ["compile", "frames"]
