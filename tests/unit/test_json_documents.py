"""The JSON of every command: valid by its schema, with no field that the schema does not name, and
none of a released version lost or retyped."""

import copy
import json
from pathlib import Path
from typing import Any

import imported_file
import jsonschema
import msgspec
import pytest
from repro_cases import CASES as REPEATED

from compilediag import cli
from compilediag.cli import COMMANDS, load_command
from compilediag.compare.gate.judge import judge
from compilediag.compare.gate.judgement import Issue
from compilediag.compare.gate.limits import parse_limits
from compilediag.receipt.file import encode_receipt, read_receipt
from compilediag.receipt.schema.compiles import UserCallRecord
from compilediag.views.gate import FORMATS
from compilediag.views.style import RenderOptions

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
FINDINGS = str(DATA / "views" / "findings.json")
MANY = str(DATA / "views" / "many.json")
RELEASED = DATA / "json-fields-1.0.json"
page = imported_file.load(ROOT / "tools" / "json_page.py")
"""The generator of docs/reference/json.md and docs/reference/schemas/."""


def declared(name: str) -> Any:
    """The document of a schema."""
    return next(each for each in page.DOCUMENTS if each.name == f"compilediag.{name}")


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without leave for other fields."""
    made = copy.deepcopy(schema)
    for part in (made, *made["$defs"].values()):
        part["additionalProperties"] = False
    return made


def lane(folder: Path) -> Path:
    """A folder with receipts of one lane over time."""
    raw = json.loads(Path(FINDINGS).read_text(encoding="utf-8"))
    raw["schema_version"] = "1.0"
    for number in range(60):
        one = copy.deepcopy(raw)
        one["receipt_id"] = f"01JD3Q000000000000000000{number:02X}"
        one["header"]["created_at_utc"] = f"2026-11-{number // 20 + 1:02}T{number % 20:02}:45:00Z"
        one["steps"]["median"] = 0.0006 + 0.000001 * number + (0.01 if number >= 30 else 0.0)
        (folder / f"{number}.json").write_text(json.dumps(one), encoding="utf-8")
    return folder


def with_source(folder: Path) -> Path:
    """A receipt whose first finding can be repeated."""
    found = read_receipt(FINDINGS)
    changed = msgspec.structs.replace(found, findings=(REPEATED["size"].finding,))
    file = folder / "size.json"
    file.write_bytes(encode_receipt(changed))
    return file


CASES: dict[str, tuple[str, ...]] = {
    "rule": ("explain", "CD103", "--json"),
    "rules": ("explain", "--list", "--json"),
    "finding": ("explain", "1", FINDINGS, "--json"),
    "repro": ("repro", "1", "SIZE", "--json"),
    "diff": ("diff", FINDINGS, MANY, "--json"),
    "plan": ("plan", FINDINGS, "--json"),
    "stats": ("stats", "LANE", "--json"),
    "trend": ("trend", "LANE", "--json"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed_fits_its_schema(name: str, tmp_path: Path, capsys) -> None:
    """Every field that is printed is declared, and every declared one is printed."""
    made = {"LANE": lane, "SIZE": with_source}
    words = [str(made[word](tmp_path)) if word in made else word for word in CASES[name]]
    assert cli.main(words) == 0
    document = require_fit(capsys.readouterr().out, name)
    assert name != "trend" or document["events"], "their fields are compared too"


def require_fit(out: str, name: str) -> dict[str, Any]:
    """Fails unless the text is a document of this name."""
    assert out.isascii()
    document = json.loads(out)
    assert (document["schema"], document["schema_version"]) == (f"compilediag.{name}", "1.0")
    schema = page.json_schema(declared(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(strict(schema)).validate(document)
    return document


def test_a_judgement_fits_its_schema() -> None:
    """With an item of each list, and one about a library."""
    call = UserCallRecord(file="train.py", line=3, text="model(x)")
    item = Issue(kind="cause", rule="CD101", message="é", before=0, after=1, call=call)
    found = judge(read_receipt(FINDINGS), limits=parse_limits("recompiles>0"))
    lists = {"improvements": (item,), "known": (item,), "notices": ("n",)}
    text = FORMATS["json"]([msgspec.structs.replace(found, **lists)], RenderOptions())
    document = require_fit(text, "judgement")
    assert document["passed"] is False
    assert len(document["judgements"][0]["known"][0]["fingerprint"]) == 32


def test_a_schema_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """A field of another type, and one that is not declared."""
    cli.main(list(CASES["rule"]))
    document = json.loads(capsys.readouterr().out)
    schema = strict(page.json_schema(declared("rule")))
    for wrong in ({**document, "code": 1}, {**document, "more": 1}):
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)


def test_what_programs_need_is_in_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """File, line, cause, settings, and the commands that lead on."""
    assert cli.main(list(CASES["finding"])) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["line"]) == ("model.py", 7)
    assert (found["before"], found["after"]) == ("[1, 16]", "[8, 16]")
    assert found["finding"]["fix"]["summary"]
    assert "## Bad" in found["rule"]["page"]
    assert all(command.startswith("compilediag ") for command in found["next"])


def test_no_field_of_a_release_is_lost_or_retyped() -> None:
    """Within a version fields are only added. To release one: write the fields of now there."""
    released = json.loads(RELEASED.read_text(encoding="utf-8"))
    now = {each.name: page.paths_of(page.json_schema(each)) for each in page.DOCUMENTS}
    assert {*released} == {*now}
    for name, fields in released.items():
        changed = {path: kind for path, kind in fields.items() if now[name].get(path) != kind}
        assert changed == {}, name


def test_every_command_has_json_and_exit_codes() -> None:
    """Both are documented for each."""
    assert {*page.EXIT_CODES_BY_COMMAND} == {*COMMANDS}
    printed = " ".join(each.printed_by for each in page.DOCUMENTS)
    for name in COMMANDS.keys() - {"mcp"}:  # it speaks a protocol
        assert name in printed
        command = load_command(name)
        assert any("--json" in option.opts for option in command.params), name


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "CD999", "--json"),
        ("explain", "--json"),
        ("explain", "99", FINDINGS, "--json"),
        ("repro", "99", FINDINGS, "--json"),
        ("diff", FINDINGS, "no/such", "--json"),
        ("gate", "no/such", "--json"),
        ("stats", "no/such", "--json"),
        ("show", "no/such", "--json"),
        ("plan", "no/such", "--json"),
    ],
)
def test_what_cannot_be_done_prints_no_document(words: tuple[str, ...], capsys) -> None:
    """One sentence on stderr, and the documented exit code."""
    assert cli.main(list(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("compilediag: ")
    assert 2 in page.COMMON_EXIT_CODES
