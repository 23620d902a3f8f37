"""Edits that are offered for graph breaks, in files of the program's own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compilediag.receipt.schema.compiles import FindingRecord, Place
from compilediag.rules.changes import Change
from compilediag.rules.offers import changes_for
from tests.support.built_receipt import built
from tests.support.receipt_records import entered, finding_record, of_files

CALLED = entered({"x": "a", "y": "g()"}, 40, file="app.py", text="f(a, g())")


def finding(rule: str, line: int = 7, function: str = "f", **evidence: Any) -> FindingRecord:
    place = Place(file="app.py", line=line, function=function)
    return finding_record(
        id=f"F{line}", rule=rule, location=place, evidence=evidence, entered_at=CALLED
    )


def edits_of(*findings: FindingRecord, own: str = "app.py") -> list[Change]:
    """The edits for the first one, in a run that has all of them."""
    whole = built()
    environment = msgspec.structs.replace(whole.environment, torch="2.13.0")
    receipt = of_files(whole, own, findings=findings, environment=environment)
    return [change for change in changes_for(findings[0], receipt) if change.edits]


@pytest.mark.parametrize(
    ("rule", "evidence", "made"),
    [
        ("CD205", {}, ["list(_)", "list(_)"]),
        ("CD208", {"reason": "wrap sparse Tensor"}, ["_.to_dense()", "_.to_dense()"]),
        ("CD208", {"reason": "wrap nested Tensor"}, []),
        ("CD201", {}, []),
        ("CD211", {"callee": {"name": "print", "module": None}}, []),
    ],
)
def test_each_argument_is_wrapped_in_turn(
    rule: str, evidence: dict[str, Any], made: list[str]
) -> None:
    changes = edits_of(finding(rule, **evidence))
    edits = [edit for change in changes for edit in change.edits]
    code = [("f(a, g())", str(at), each) for at, each in enumerate(made)]
    assert [(edit.kind, edit.line, edit.code) for edit in edits] == [
        ("argument", 40, each) for each in code
    ]
    assert not edits_of(finding(rule, **evidence), own="other.py")


def test_the_line_shows_the_call() -> None:
    first, second = edits_of(finding("CD205"))
    assert first.line == "app.py:40: f(list(a), g())"
    assert second.line == "app.py:40: f(a, list(g()))"
