"""Marks as edits: on what a call of the program passes."""

from typing import Any

import msgspec

from compilediag.receipt.schema.compiles import UserCallRecord
from compilediag.rules.candidates import propose_mark_edits
from compilediag.rules.fix_context import FixContext, make_context
from tests.support.receipt_records import entered, of_files
from tests.unit.test_fix_candidates import finding, receipt


def case(rule: str, call: UserCallRecord, **evidence: Any) -> FixContext:
    whole = receipt("2.13.0+cpu")
    event = msgspec.structs.replace(whole.compile.events[0], entered_at=call)
    compiled = msgspec.structs.replace(whole.compile, events=(event,))
    return make_context(finding(rule, **evidence), of_files(whole, "train.py", compile=compiled))


def test_a_size_below_an_argument_is_marked_where_it_is_passed() -> None:
    def marks(source: str, passed: dict[str, str]) -> list[str]:
        size = {"kind": "size", "source": source, "values": [["[4, 2]", "[6, 2]"]]}
        made = propose_mark_edits(case("CD105", entered(passed, 1), **size))
        return [code for change in made for code in change.edits[0].code]

    mark = "torch._dynamo.maybe_mark_dynamic({}, 0)"
    assert marks("L['batch'].ids", {"batch": "b"}) == [mark.format("b.ids")]
    assert marks("L['batch']['ids']", {"batch": "b"}) == [mark.format("b['ids']")]
    assert marks("L['x']", {"x": "batch['ids']"}) == [mark.format("batch['ids']")]
    assert marks("L['args'][0]", {"args[0]": "x"}) == [mark.format("x")]
    for once in ("batches[next(order)]", "load()", "load().ids", "a + b"):
        assert marks("L['x']", {"x": once}) == []
