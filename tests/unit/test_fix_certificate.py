"""A finding found again in other runs, and the point of a certificate that says that it is gone."""

from typing import Any

import msgspec
import pytest

from compilediag.fixes.certificate import check_finding
from compilediag.fixes.proof_types import FindingIdentity, count_finding, identify_finding
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    CompileSection,
    EventCause,
    FindingRecord,
    FrameName,
    GraphBreak,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import CudagraphSection
from tests.support.built_receipt import built
from tests.support.receipt_records import compile_event, event_cause, finding_record


def cause(variable: str = "n", finding: str | None = "F1", rule: str = "CD107") -> EventCause:
    facts = {"source": f"L['{variable}']", "expected": "1", "actual": "2"}
    place = {"file": "model.py", "line": 3, "function": "forward"}
    return event_cause(variable=variable, rule=rule, finding=finding, **facts, **place)


def again(number: int, *causes: EventCause) -> CompileEvent:
    frame = FrameName(function="forward", file="model.py", line=3)
    return compile_event(*causes, compile_id=f"0/{number}", step=number, frame=frame)


def site(reason: str = "print", finding: str | None = None) -> GraphBreak:
    return GraphBreak(
        file="model.py",
        line=5,
        function="forward",
        gb_id=None,
        category="logging",
        reason=reason,
        count=1,
        ownership="user",
        finding=finding,
    )


def finding(rule: str = "CD107", number: str = "F1", variable: str | None = "n") -> FindingRecord:
    place = Place(file="model.py", line=3, function="forward")
    return finding_record(rule=rule, id=number, variable=variable, location=place)


def receipt(
    *events: CompileEvent,
    findings: tuple[FindingRecord, ...] = (),
    breaks: tuple[GraphBreak, ...] = (),
    **more: Any,
) -> Receipt:
    counts = {"graph_breaks": len(breaks), "eager_fallbacks": 0, "recompile_limit_hits": 0, **more}
    recordings = counts.pop("recordings", None)
    compiled = CompileSection(
        frames=1,
        compiles=1 + len(events),
        recompiles=len(events),
        graphs=1 + len(events),
        events=events,
        breaks=breaks,
        **counts,
    )
    graphs = None if recordings is None else CudagraphSection(recordings=recordings)
    return msgspec.structs.replace(built(), compile=compiled, findings=findings, cudagraph=graphs)


FINDING = finding()
BEFORE = receipt(again(1, cause()), again(2, cause()), findings=(FINDING,))
SUBJECT = identify_finding(FINDING, BEFORE)
ONE_LEFT = receipt(again(1, cause(finding="F3")), findings=(FINDING,))


def test_a_finding_is_found_again_by_its_cause_not_by_its_number() -> None:
    other = receipt(again(1, cause(finding="F9")), again(2, cause("m", "F1")))
    assert count_finding(SUBJECT, other) == 1
    broken = receipt(breaks=(site(finding="F1"),), findings=(FINDING,))
    assert identify_finding(FINDING, broken).unit == "graph breaks"
    both = receipt(again(1, cause()), breaks=(site(finding="F1"),), findings=(FINDING,))
    assert identify_finding(FINDING, both) == identify_finding(FINDING, broken)
    assert identify_finding(FINDING, receipt()).key == ("CD107", "n", "model.py", "forward")


@pytest.mark.parametrize(
    ("before", "after", "left", "outcome", "sentence"),
    [
        (BEFORE, receipt(), 0, "holds", "its recompiles 2 → 0"),
        (BEFORE, ONE_LEFT, 0, "fails", "1 of 2 recompiles remain"),
        (BEFORE, ONE_LEFT, 1, "holds", "its recompiles 2 → 1"),
        (ONE_LEFT, ONE_LEFT, 1, "fails", "1 of 1 recompiles remain"),
        # What recompiled for `n` does so for `m`: that is another point's.
        (BEFORE, receipt(again(1, cause("m"))), 0, "holds", "its recompiles 2 → 0"),
    ],
)
def test_a_finding_is_gone(before, after, left, outcome, sentence) -> None:
    point = check_finding(SUBJECT, before, after, left)
    assert (point.outcome, point.sentence) == (outcome, sentence)


def test_a_finding_that_did_not_come_again_is_not_gone() -> None:
    assert check_finding(SUBJECT, receipt(), receipt()).outcome == "fails"


def test_a_subject_without_a_recompile_is_the_finding_itself() -> None:
    forecast = finding("CD151", "F2", None)
    before = receipt(findings=(forecast,))
    subject = identify_finding(forecast, before)
    assert subject == FindingIdentity("findings", key=("CD151", "", "model.py", "forward"))
    assert check_finding(subject, before, receipt()).outcome == "holds"
    assert check_finding(subject, before, before).outcome == "fails"
