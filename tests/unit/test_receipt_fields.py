"""The fields of a receipt, their ids and pages: complete, stable, never stale."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from receipt_schema import json_schema

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def schema_page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool that writes the pages."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("schema_page")


def test_ids_are_unique_and_sentences_end(schema_page: ModuleType) -> None:
    """Every field has an id of its own, below the next free one, and a meaning that ends like a
    sentence."""
    fields, ids = list(schema_page.fields()), schema_page.read_ids()
    assert list(ids.fields) == [field.path for field in fields]
    assert len(set(ids.fields.values())) == len(ids.fields)
    assert max(ids.fields.values()) < ids.next
    assert [field.path for field in fields if not field.meaning.endswith(".")] == []


def test_released_ids_never_move(schema_page: ModuleType) -> None:
    """Fields of released versions keep their ids: compared with the file made at the release."""
    released: dict[str, int] = json.loads((DATA / "receipt-fields-1.0.json").read_text())
    ids: dict[str, int] = schema_page.read_ids().fields
    assert {path: ids[path] for path in released} == released


def test_a_new_field_takes_the_next_id(schema_page: ModuleType) -> None:
    """Also where the register has lost a field with a greater id than all that are left."""
    before = schema_page.read_ids()
    fields = {path: number for path, number in before.fields.items() if path != "checks"}
    after = schema_page.add_new_fields(before._replace(fields=fields | {"gone": 1}))
    assert after.fields == before.fields | {"checks": before.next}
    assert after.next == before.next + 1


def test_pages_are_fresh(schema_page: ModuleType) -> None:
    """docs/reference/ holds what the code says; `make docs` writes the pages again."""
    for name, content in schema_page.rendered().items():
        assert (REFERENCE / name).read_text(encoding="utf-8") == content, name


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
