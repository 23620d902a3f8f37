"""Reads `scenarios/*/expected.toml`: what each program must give, on the torch that is installed.

The format is described in `scenarios/README.md`. Nothing here imports torch.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Container
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import msgspec
from packaging.version import Version

from compilediag.receipt.contradictions import find_contradictions
from compilediag.receipt.schema.receipt import Receipt

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SIDES = ("broken", "fixed")
COUNTS = frozenset(
    (
        "frames",
        "compiles",
        "recompiles",
        "graphs",
        "graph_breaks",
        "eager_fallbacks",
        "recompile_limit_hits",
    )
)
FINDING_KEYS = frozenset(
    (
        *("rule", "variable", "file", "line", "anchor", "function", "steps", "count", "severity"),
        "parts",
    )
)

Table = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One program of one scenario, and what is expected of it."""

    name: str
    side: str
    program: Path
    exit_code: int
    status: str
    verdict: str
    counts: dict[str, int]
    findings: tuple[Table, ...]
    """Expected findings; anchors are resolved to lines."""
    skip: str | None
    """Why the case does not apply to the installed torch."""
    arguments: tuple[str, ...] = ()
    """Options of `run`, where a plain run does not show it."""
    needs: str | None = None
    """"cuda": the program runs on a CUDA device only."""

    @property
    def id(self) -> str:
        return f"{self.name}-{self.side}"


def names() -> list[str]:
    """The scenario folders, by name."""
    return sorted(path.parent.name for path in SCENARIOS.glob("*/expected.toml"))


def cases(torch: Version | None = None) -> list[Case]:
    """Both sides of every scenario, for a torch: the one that is installed."""
    torch = torch or torch_version()
    return [case(name, side, torch) for name in names() for side in SIDES]


def is_in_tenth(name: str) -> bool:
    """Of one of ten parts of the scenarios; `TODAY`, which `tests/conftest.py` sets, says which."""
    day = date.fromisoformat(os.environ["TODAY"]).toordinal()
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10 == day % 10


def torch_version() -> Version:
    return Version(metadata.version("torch"))


def read(name: str) -> Table:
    """The whole expected.toml of one scenario."""
    return tomllib.loads((SCENARIOS / name / "expected.toml").read_text(encoding="utf-8"))


def case(name: str, side: str, torch: Version) -> Case:
    """One side of one scenario, with the overrides for `torch` applied."""
    document = read(name)
    table: Table = document[side]
    for prefix, sides in cast("Table", document.get("torch", {})).items():
        if f"{torch.major}.{torch.minor}.".startswith(f"{prefix}."):
            table = _merged(table, cast("Table", sides).get(side, {}))
    program = SCENARIOS / name / f"{side}.py"
    source = program.read_text(encoding="utf-8")
    return Case(
        name=name,
        side=side,
        program=program,
        exit_code=table.get("exit_code", 0),
        status=table.get("status", "complete"),
        verdict=table["verdict"],
        counts=dict(table.get("counts", {})),
        findings=tuple(_resolved(item, source) for item in table.get("findings", ())),
        skip=_skip(document, torch),
        arguments=tuple(table.get("arguments", ())),
        needs=document.get("needs"),
    )


def _merged(table: Table, override: Table) -> Table:
    """Tables are merged key by key; lists and values are replaced."""
    found = dict(table)
    for key, value in override.items():
        old = found.get(key)
        both_tables = isinstance(old, dict) and isinstance(value, dict)
        found[key] = {**cast("Table", old), **cast("Table", value)} if both_tables else value
    return found


def _resolved(finding: Table, source: str) -> Table:
    """The finding with its anchor turned into a line number."""
    found = dict(finding)
    anchor = found.pop("anchor", None)
    if anchor is not None:
        found["line"] = line_of(anchor, source)
    return found


def line_of(anchor: str, source: str) -> int:
    """The number of the one line that holds `anchor`; ValueError unless exactly one does."""
    hits = [n for n, line in enumerate(source.splitlines(), 1) if anchor in line]
    if len(hits) != 1:
        raise ValueError(f"anchor {anchor!r} is on {len(hits)} lines")
    return hits[0]


def _skip(document: Table, torch: Version) -> str | None:
    release = Version(f"{torch.major}.{torch.minor}")
    low, high = document.get("min_torch"), document.get("max_torch")
    if low is not None and release < Version(low):
        return f"needs torch {low} or later"
    if high is not None and release > Version(high):
        return f"for torch up to {high}"
    return None


def compare(
    expected: Case, exit_code: int, receipt: Table, counted: dict[str, int] | None = None
) -> list[str]:
    """What distinguishes a run from the expected one, and from what torch counts of it."""
    counts = receipt["compile"]
    wrong = [
        f"{key}: expected {value}, found {counts[key]}"
        for key, value in expected.counts.items()
        if counts[key] != value
    ]
    wrong += [
        f"{key}: torch counts {value}, found {counts[key]}"
        for key, value in (counted or {}).items()
        if counts[key] != value
    ]
    wanted = find_wanted(receipt)
    wrong += differences(expected.findings, receipt["findings"], wanted)
    wrong += find_contradictions(msgspec.convert(receipt, Receipt))
    if exit_code != expected.exit_code:
        wrong.append(f"exit code: expected {expected.exit_code}, found {exit_code}")
    verdicts = {expected.verdict, "clean" if wanted else expected.verdict}
    for key, values in (("verdict", verdicts), ("status", {expected.status})):
        if receipt[key] not in values:
            wrong.append(f"{key}: expected {' or '.join(sorted(values))}, found {receipt[key]}")
    return wrong


def find_wanted(receipt: Table) -> set[str]:
    """Ids of the notes about variants that the program wants. Older recordings do not say which
    graph served a call: there the same is a warning, and expected.toml is for both."""
    needs: dict[str, set[str | None]] = {}
    for event in receipt["compile"]["events"]:
        for cause in event["causes"]:
            needs.setdefault(cause["finding"], set()).add(event["need"])
    notes = {item["id"] for item in receipt["findings"] if item["severity"] == "info"}
    return {name for name, seen in needs.items() if seen == {"wanted"}} & notes


def differences(
    expected: tuple[Table, ...], found: list[Table], wanted: Container[str] = ()
) -> list[str]:
    """What distinguishes the findings of a receipt from the expected ones, in sentences.

    Errors and warnings must be exactly the expected ones. Information is not counted, unless an
    expected finding says `severity = "info"`: then it must be there. `wanted`: ids of those that
    may be information in place of a warning.
    """
    left = list(found)
    missing: list[Table] = []
    for want in expected:
        match = next((item for item in left if _fits(want, item, wanted)), None)
        if match is None:
            missing.append(want)
        else:
            left.remove(match)
    surplus = [item for item in left if item["severity"] != "info"]
    return [f"missing: {want}" for want in missing] + [f"surplus: {_brief(i)}" for i in surplus]


def _fits(want: Table, finding: Table, wanted: Container[str]) -> bool:
    severities = (want["severity"],) if "severity" in want else ("error", "warning")
    may_be = finding["severity"] in severities or finding.get("id") in wanted
    return may_be and all(
        _value(finding, key) == value for key, value in want.items() if key != "severity"
    )


def _value(finding: Table, key: str) -> object:
    location: Table = finding.get("location") or {}
    if key == "file":
        return Path(location["file"]).name if location.get("file") else None
    if key in ("line", "function"):
        return location.get(key)
    if key == "parts":
        return sorted({part["variable"] for part in finding.get("parts") or ()})
    return finding.get(key)


def _brief(finding: Table) -> Table:
    keys = ("rule", "severity", "variable", "count", "steps")
    brief = {key: finding.get(key) for key in keys}
    return {**brief, **{key: _value(finding, key) for key in ("file", "line", "function")}}
