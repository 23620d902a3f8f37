"""docs/reference/json.md and schemas/ beside it: what `--json` prints, and exit codes."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from compilediag.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_GATE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNDECIDED,
    EXIT_UNUSABLE,
    EXIT_USAGE,
)


class DeclaredDocument(NamedTuple):
    """A document: its schema, its type, and the commands that print it."""

    name: str
    """Of the schema."""
    type: str
    """Module and class."""
    printed_by: str


_HOMES = (
    (
        "receipt",
        "receipt.schema.receipt:Receipt",
        "run, measure against-eager, measure cold-and-warm, measure periodic, analyze, show",
    ),
    ("fix", "runs.fix.results:FixDocument", "fix"),
    ("fix-plan", "runs.fix.results:FixPlanDocument", "fix --dry-run"),
    ("certificate", "views.certificate:CertificateDocument", "certify"),
    ("rule", "views.finding:RuleDocument", "explain CODE"),
    ("rules", "views.finding:RulesDocument", "explain --list"),
    ("finding", "views.finding:FindingDocument", "explain N"),
    ("repro", "extensions.repro.command:ReproDocument", "repro"),
    ("diff", "compare.diff:DiffDocument", "diff"),
    ("judgement", "views.gate:JudgementDocument", "gate"),
    ("stats", "extensions.fleet.options:StatsDocument", "history stats"),
    ("trend", "extensions.fleet.options:TrendDocument", "history trend"),
    ("plan", "rules.bucket_plan:PlanDocument", "plan"),
    ("doctor", "commands.doctor:DoctorDocument", "doctor"),
)

DOCUMENTS = tuple(
    DeclaredDocument(f"compilediag.{name}", f"compilediag.{home}", printed_by)
    for name, home, printed_by in _HOMES
)

COMMON_EXIT_CODES: Mapping[int, str] = {
    EXIT_USAGE: "the command line or an input cannot be used as given; stderr has one sentence",
    EXIT_INTERNAL: "a fault of compilediag's own; stderr has what to report",
    EXIT_INTERRUPTED: "Ctrl-C",
    EXIT_BROKEN_PIPE: "the reader of stdout went away",
}

_DONE = {EXIT_OK: "done, whatever was found"}

EXIT_CODES_BY_COMMAND: Mapping[str, Mapping[int, str]] = {
    "run": {
        EXIT_OK: "the program ended well, and no limit of `--fail-on` is exceeded",
        EXIT_GATE: "the program ended well, and a limit of `--fail-on` is exceeded",
    },
    "measure against-eager": {EXIT_OK: "the program ended well, and something was concluded"},
    "measure cold-and-warm": {EXIT_OK: "the program ended well"},
    "measure periodic": {EXIT_OK: "the program ended well, and the probe could conclude"},
    "analyze": _DONE,
    "show": _DONE,
    "fix": {
        EXIT_OK: "every finding of at least `warning` has a proved change",
        EXIT_GATE: "a finding of at least `warning` has none",
    },
    "certify": {
        EXIT_OK: "the change is proved",
        EXIT_GATE: "it is refused: something is worse, or a result is another one",
        EXIT_UNDECIDED: "not decided; the reason says what is missing",
    },
    "explain": _DONE,
    "repro": _DONE,
    "diff": {EXIT_OK: "compared, whether or not something changed"},
    "gate": {
        EXIT_OK: "everything was judged and passes",
        EXIT_GATE: "something fails",
    },
    "history stats": _DONE,
    "history trend": _DONE,
    "plan": _DONE,
    "mcp": {EXIT_OK: "the client closed stdin"},
    "doctor": {
        EXIT_OK: "`compilediag run` can be used here",
        EXIT_UNUSABLE: "it cannot",
    },
}
"""Beside `COMMON_EXIT_CODES`. `run`, `measure` and `fix` give that of a program that fails."""

FOLDER, PAGE = "schemas", "json.md"
RECEIPT = "compilediag.receipt"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string"}


def type_of(declared: DeclaredDocument) -> Any:
    """The class of a document."""
    module, _, name = declared.type.partition(":")
    return getattr(import_module(module), name)


def json_schema(declared: DeclaredDocument) -> dict[str, Any]:
    """The JSON Schema of a document. Fields that it does not name are allowed everywhere: a later
    minor version adds some."""
    parts: dict[str, Any] = {}
    root = _object(type_of(declared), parts)
    root["properties"]["schema"] = {"const": declared.name}
    return {
        "$schema": _DIALECT,
        "title": declared.name,
        **root,
        "$defs": dict(sorted(parts.items())),
    }


def _object(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """A struct, dataclass or named tuple: as `convert_to_builtins` writes it, with every field."""
    hints = typing.get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    else:
        fields = getattr(kind, "_fields", None) or kind.__dataclass_fields__
        names = {name: name for name in fields}
    return {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
        "properties": {names[name]: _of(hints[name], parts) for name in names},
        "required": list(names.values()),
    }


def _of(hint: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's type."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint is type(None):
        return {"type": "null"}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if origin is tuple and inside[-1:] != (Ellipsis,):
        return {"type": "array", "prefixItems": [_of(each, parts) for each in inside]}
    if origin in (tuple, list):
        return {"type": "array", "items": _of(inside[0], parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inside[1], parts)}
    if inside:  # a union, in either notation
        return {"anyOf": [_of(each, parts) for each in inside]}
    name: str = hint.__name__
    if name not in parts:
        parts[name] = {}
        parts[name] = _object(hint, parts)
    return {"$ref": f"#/$defs/{name}"}


def paths_of(schema: dict[str, Any]) -> dict[str, str]:
    """Every field of a schema by its path, with its type as text: what must not change."""
    found: dict[str, str] = {}

    def walk(part: dict[str, Any], path: str, above: tuple[str, ...]) -> None:
        reference = str(part.get("$ref", "")).rpartition("/")[2]
        if reference:
            if reference not in above:
                walk(schema["$defs"][reference], path, (*above, reference))
            return
        for each in part.get("anyOf", ()):
            walk(each, path, above)
        kind = part.get("type") or next((each for each in ("const", "enum") if each in part), "")
        if path and not part.get("anyOf"):
            found[path] = "|".join(sorted({*filter(None, found.get(path, "").split("|")), kind}))
        for name, each in part.get("properties", {}).items():
            walk(each, f"{path}.{name}" if path else name, above)
        if isinstance(part.get("items"), dict):
            walk(part["items"], f"{path}[]", above)
        for index, each in enumerate(part.get("prefixItems", ())):
            walk(each, f"{path}[{index}]", above)
        if isinstance(part.get("additionalProperties"), dict):
            walk(part["additionalProperties"], f"{path}{{}}", above)

    walk(schema, "", ())
    return found


def page() -> str:
    """docs/reference/json.md."""
    lines = [
        "<!-- Written by `make docs`; change the code instead. -->",
        "# JSON for programs",
        "",
        "Every command that prints something about a run prints it as JSON with `--json`: one",
        "document on stdout, in ASCII. Messages go to stderr; where a command cannot do what was",
        "requested, stdout is empty, stderr has one sentence, and the exit code is 2.",
        "",
        "Each document begins with `schema` and `schema_version`. A minor version adds fields:",
        "ignore those you do not know. A field that is removed or means something else is a new",
        "major version; a test compares every field with those of the last release. `null` means",
        "not known, never zero. Units are in the names.",
        "",
        "| command | document | schema |",
        "|---|---|---|",
    ]
    for each in DOCUMENTS:
        file = "receipt.schema.json" if each.name == RECEIPT else f"{FOLDER}/{_file(each)}"
        lines.append(f"| `{each.printed_by}` | `{each.name}` | [{file}]({file}) |")
    lines += [
        "",
        "`run --json` and `analyze --json` print the receipt ([receipt.md](receipt.md)). Of each",
        "entry of `findings`: `entered_at` has file and line of the program's own that led there,",
        "`location` those of the place itself, `title` and `evidence` the cause, `fix.summary`",
        "what to change, `fix.candidates` settings that need no edit, `fix.proof` the change that",
        "is proved, `follows` the finding of the graph break without which it would not be, and",
        "`next` the command that leads on. `next` beside `findings` is that of the whole screen.",
        "",
        "## Exit codes",
        "",
        "| code | meaning, of every command |",
        "|--:|---|",
        *(f"| {code} | {meaning} |" for code, meaning in COMMON_EXIT_CODES.items()),
        "",
        "| command | code | meaning |",
        "|---|--:|---|",
    ]
    for name, codes in EXIT_CODES_BY_COMMAND.items():
        lines += [f"| `{name}` | {code} | {meaning} |" for code, meaning in codes.items()]
    lines += [
        "",
        "`run`, `measure` and `fix` give the program's own exit code where the program fails",
        "(128 + the signal that killed it).",
    ]
    return "\n".join(lines) + "\n"


def _file(declared: DeclaredDocument) -> str:
    return f"{declared.name.partition('.')[2]}.schema.json"


def rendered() -> dict[str, str]:
    """File below docs/reference/ to content."""
    schemas = {
        f"{FOLDER}/{_file(each)}": json.dumps(json_schema(each), indent=1) + "\n"
        for each in DOCUMENTS
        if each.name != RECEIPT
    }
    return {**schemas, PAGE: page()}
