"""The register of fields, and the pages made from it: complete, stable, never stale."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from compilediag.receipt.fields import old_spellings, registered, schema_paths
from compilediag.receipt.schema_page import json_schema, main, rendered

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data"


def test_every_field_is_registered_once() -> None:
    """The code and the register know the same fields: none is without an id and a meaning."""
    assert sorted(field.path for field in registered()) == sorted(schema_paths())


def test_ids_are_unique_and_sentences_end() -> None:
    """An id belongs to one field; a meaning is one line that ends like a sentence."""
    fields = registered()
    ids = [field.id for field in fields]
    assert len(set(ids)) == len(ids)
    assert [field.path for field in fields if not field.meaning.endswith(".")] == []


def test_released_ids_never_move() -> None:
    """Fields of released versions keep their ids: compared with the file made at the release.

    A renamed field keeps its id under its new path, with the old key among its aliases.
    """
    released = json.loads((DATA / "receipt-fields-1.0.json").read_text(encoding="utf-8"))
    now = {field.id: field for field in registered()}
    for path, number in released.items():
        parent, dot, _ = now[number].path.rpartition(".")
        spelled = {f"{parent}{dot}{key}" for key in now[number].aliases} | {now[number].path}
        assert path in spelled, f"id {number} was {path}"


def test_aliases_become_old_spellings() -> None:
    """No field has an old spelling that is the present spelling of another."""
    paths = {field.path for field in registered()}
    assert paths.isdisjoint(old_spellings())


def test_pages_are_fresh() -> None:
    """docs/ holds what the code makes; `python -m compilediag.receipt.schema_page` refreshes it."""
    for name, content in rendered().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == content, name


def test_the_command_writes_both(tmp_path: Path) -> None:
    """The command that refreshes the pages writes exactly what the test compares."""
    assert main([str(tmp_path)]) == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == (
        rendered()
    )


def test_the_schema_is_a_schema() -> None:
    """An independent validator accepts it, and no bookkeeping key of ours is in it."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "unknown fields" not in json.dumps(schema)


def test_the_example_is_valid() -> None:
    """The receipt of the design fits the schema made from the code."""
    example = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json_schema()).validate(example)


def test_the_schema_can_fail() -> None:
    """A count that is no number is found by the validator."""
    example = json.loads((DATA / "receipt-example.json").read_text(encoding="utf-8"))
    example["compile"]["frames"] = "one"
    errors = list(jsonschema.Draft202012Validator(json_schema()).iter_errors(example))
    assert [list(error.absolute_path) for error in errors] == [["compile", "frames"]]
