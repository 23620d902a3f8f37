"""Findings that need each other get the dynamic sources of all in one variable."""

import msgspec

from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord, FixRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from tests.support.receipt_records import entered, finding_record
from tests.unit.test_fix_candidates import receipt

SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
BATCH, CONTEXT = "L['args'][0]:0", "L['kwargs']['context']:0"
OF_ALL = f'export {SOURCES}="{BATCH},{CONTEXT}"'


def finding(number: int, rule: str, value: str = "", severity: str = "warning") -> FindingRecord:
    setting = CandidateRecord(kind="environment", setting=SOURCES, value=value, risk="")
    source = value.rpartition(":")[0]
    return finding_record(
        id=f"F{number}",
        rule=rule,
        severity=severity,
        evidence={"kind": "size", "source": source, "values": [["[4, 2]", "[6, 2]"]]},
        fix=FixRecord(summary="", how="", candidates=(setting,) if value else ()),
        entered_at=entered({"args[0]": "latents", "kwargs['context']": "torch.cat([a, b])"}),
    )


def run_of(*findings: FindingRecord, elsewhere: str = "", grown: str = "") -> Receipt:
    """One recompile by all of them; by that of the given id in another frame, by `grown` too."""
    run = receipt("2.13.0")
    event = run.compile.events[0]
    cause = event.causes[0]
    other = msgspec.structs.replace(
        event,
        frame=msgspec.structs.replace(event.frame, line=40),
        causes=(msgspec.structs.replace(cause, finding=elsewhere),),
    )
    here = tuple(
        msgspec.structs.replace(cause, finding=each.id) for each in findings if each.id != elsewhere
    )
    if grown:
        size = {"source": grown, "expected": "[4, 2]", "actual": "[4, 3]"}
        here += (msgspec.structs.replace(here[0], **size),)
    here = msgspec.structs.replace(event, causes=here)
    return msgspec.structs.replace(
        run, findings=findings, compile=msgspec.structs.replace(run.compile, events=(here, other))
    )


def lines(which: int, *findings: FindingRecord) -> list[str]:
    return [change.line for change in list_changes(findings[which], run_of(*findings))]


def test_own_sources_are_tried_first_and_then_those_of_all() -> None:
    sizes = finding(1, "CD105", BATCH), finding(2, "CD105", CONTEXT)
    own = f'export {SOURCES}="{BATCH}"'
    assert lines(0, *sizes)[:2] == [own, OF_ALL]


def test_sources_of_other_functions_are_left_alone() -> None:
    here, there = finding(1, "CD105", BATCH), finding(2, "CD105", CONTEXT)
    found = list_changes(here, run_of(here, there, elsewhere="F2"))
    assert OF_ALL not in [change.line for change in found]


def test_a_combination_has_the_sources_of_what_met() -> None:
    sizes = finding(1, "CD105", BATCH), finding(2, "CD105", CONTEXT)
    assert lines(2, *sizes, finding(3, "CD120")) == [OF_ALL]
    assert lines(0, finding(3, "CD120"), finding(4, "CD111")) == []


def test_what_grows_with_a_tensor_is_in_its_line() -> None:
    """One that is left out makes the same call compile again."""
    held = finding(1, "CD103", "L['self'].mask:0")
    held = msgspec.structs.replace(held, evidence={**held.evidence, "kind": "shape"})
    run = run_of(held, grown="L['self'].memory")
    line = f"export {SOURCES}=\"L['self'].mask:0,L['self'].memory:1\""
    assert line in [change.line for change in list_changes(held, run)]


def test_what_has_another_cause_gets_no_sources() -> None:
    assert lines(1, finding(1, "CD105", BATCH), finding(2, "CD111")) == []
