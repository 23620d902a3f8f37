"""Edits that are offered for graph breaks, in files of the program's own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compilediag.receipt.schema.compiles import (
    EnteredAt,
    FindingRecord,
    FixRecord,
    PassedArgument,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change
from compilediag.rules.offers import changes_for
from tests.support.built_receipt import built

CALLED = EnteredAt(
    file="app.py",
    line=40,
    text="f(a, g())",
    arguments=(
        PassedArgument(parameter="x", expression="a"),
        PassedArgument(parameter="y", expression="g()"),
    ),
)


def finding(rule: str, line: int = 7, function: str = "f", **evidence: Any) -> FindingRecord:
    return FindingRecord(
        id=f"F{line}",
        rule=rule,
        slug="",
        severity="warning",
        confidence="exact",
        family="",
        variable=None,
        location=Place(file="app.py", line=line, function=function),
        ownership="user",
        count=1,
        steps=(),
        cost_s=None,
        evidence=evidence,
        fix=FixRecord(summary="", how=""),
        entered_at=CALLED,
    )


def edits_of(*findings: FindingRecord, own: str = "app.py") -> list[Change]:
    """The edits for the first one, in a run that has all of them."""
    whole: Receipt = built()
    provenance = msgspec.structs.replace(whole.header.provenance, source_sha256={own: "0"})
    receipt = msgspec.structs.replace(
        whole,
        findings=findings,
        header=msgspec.structs.replace(whole.header, provenance=provenance),
        environment=msgspec.structs.replace(whole.environment, torch="2.13.0"),
    )
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
