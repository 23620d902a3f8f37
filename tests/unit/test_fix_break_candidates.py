"""Which edits are offered for breaks and reads: for files of the program's own, and for all lines
that another run cannot tell apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.receipt.schema.compiles import (
    EnteredAt,
    FindingRecord,
    FixRecord,
    PassedArgument,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.wire import SettingChange
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
    return [change for change in candidates_of(findings[0], receipt) if change.edits]


def test_lines_of_one_rule_and_reason_in_a_function_are_edited_together() -> None:
    here, alike = finding("CD201", 7, reason="branch"), finding("CD201", 9, reason="branch")
    others = (
        finding("CD201", 11, reason="other"),
        finding("CD202", 12, reason="branch"),
        finding("CD201", 13, "g", reason="branch"),
    )
    for each in ((here, alike, *others), (alike, here, *others)):
        change, message = edits_of(*each)
        assert [edit.line for edit in message.edits] == [7, 9]
        both = ("7", "9")
        assert change.edits == tuple(Edit("app.py", line, "branch", both) for line in (7, 9))
        assert change.line.startswith("app.py:7, 9: choose with `torch.where`")


@pytest.mark.parametrize(
    ("rule", "evidence", "kinds"),
    [
        ("CD202", {}, ["as_tensor", "masked", "message"]),
        ("CD210", {}, ["masked"]),
        ("CD203", {}, ["message"]),
        ("CD204", {"reason": "Skip `torch.compiler.disable()`d", "callee": {"name": "h"}},
         ["message", "without_disable"]),
        ("CD204", {"reason": "Skip", "callee": {"name": "h"}}, ["message"]),
        ("CD205", {}, ["as_list"]),
        ("CD208", {"reason": "wrap sparse Tensor"}, ["as_dense", "as_dense"]),
        ("CD208", {"reason": "wrap nested Tensor"}, []),
        ("CD211", {"callee": {"name": "print", "module": None}}, ["unless_compiling"]),
        ("CD211", {"callee": {"name": "report", "module": "app"}}, ["message"]),
        ("CD213", {}, ["computed_before"]),
    ],
)  # fmt: skip
def test_edits_by_rule(rule: str, evidence: dict[str, Any], kinds: list[str]) -> None:
    found = edits_of(finding(rule, **evidence))
    assert [edit.kind for change in found for edit in change.edits] == kinds
    assert not edits_of(finding(rule, **evidence), own="other.py")


def test_reads_of_all_loops_of_a_function_are_edited_together() -> None:
    first = finding("CD301", 7, lines=[{"line": 8}, {"line": 9}])
    second = finding("CD301", 20, lines=[{"line": 21}])
    (change,) = edits_of(first, second, finding("CD301", 30, "g", lines=[{"line": 31}]))
    assert [edit.line for edit in change.edits] == [8, 9, 21]
    assert {edit.kind for edit in change.edits} == {"read_at_once"}


def test_what_is_left_out_is_said() -> None:
    (change,) = edits_of(finding("CD203"))
    assert change.leaves_out
    assert change.silences
    assert not edits_of(finding("CD210"))[0].leaves_out
    loggers = SettingChange("torch._dynamo.config", "ignore_logging_functions", ("builtins.print",))
    ignoring = replace(change, edits=(), settings=(loggers,))
    assert ignoring.silences
    assert not ignoring.leaves_out  # its operations stay, or torch drops them


def kinds(*findings: FindingRecord) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (edit.kind, edit.line, edit.code)
        for change in edits_of(*findings)
        for edit in change.edits
        if edit.kind
        in (
            "computed_before",
            "own_kernel",
            "generator_as_list",
            "without_switch",
            "compile_returned",
        )
    ]


def test_what_torch_cannot_trace_is_computed_before_the_call() -> None:
    callee = {"name": "zlib.crc32", "module": "zlib"}
    for rule in ("CD203", "CD212"):
        assert kinds(finding(rule, callee=callee)) == [("computed_before", 7, ("call", "crc32"))]
    assert kinds(finding("CD203", callee={"name": "<lambda>"})) == []
    assert kinds(finding("CD203")) == []
    assert kinds(finding("CD213")) == [("computed_before", 7, ("raise",))]
    stack = [{"file": "app.py", "line": 4, "function": "f"}]
    stack.append({"file": "app.py", "line": 7, "function": "__getattribute__"})
    read = finding("CD207", stack=stack, frames=["f"])
    assert kinds(read) == [("computed_before", 4, ("read",))]
    assert edits_of(read, own="other.py") == []


def test_a_kernel_of_the_program_is_offered_for_its_operator() -> None:
    made = kinds(finding("CD210", callee={"name": "my.op.default"}))
    assert made == [("own_kernel", 7, ("my::op",))]


def test_code_that_runs_eager_is_offered_to_be_compiled() -> None:
    generator = finding("CD904", reason="Unsupported: Attempt to trace generator")
    assert kinds(generator) == [("generator_as_list", 7, ())]
    assert kinds(finding("CD904", stance="eager_on_recompile")) == []
    assert kinds(finding("CD901")) == [("without_switch", 1, ())]
    of_torch = finding("CD901", why="torch_modules")
    assert [kind for kind, *_ in kinds(of_torch)] == ["compile_returned", "without_switch"]


def test_a_branch_on_a_size_is_offered_by_its_own_line() -> None:
    needed = {"by": "branch", "file": "app.py", "line": 3}
    for rule, wanted in (("CD118", [("branch_on_size", 3)]), ("CD106", [])):
        found = edits_of(finding(rule, size_needed=needed))
        edits = [(edit.kind, edit.line) for change in found for edit in change.edits]
        assert [each for each in edits if each[0] == "branch_on_size"] == wanted
    assert not edits_of(finding("CD118", size_needed=needed | {"by": "loop"}))
    assert not edits_of(finding("CD118", size_needed=needed | {"file": "other.py"}))


def test_constants_that_are_compared_are_offered_to_be_computed_once() -> None:
    def offered(**kinds: int) -> list[str]:
        found = edits_of(finding("CD621", kinds=kinds))
        return [edit.kind for change in found for edit in change.edits]

    assert offered(EQUALS_MATCH=80, TYPE_MATCH=3) == ["once_in_init"]
    assert offered(EQUALS_MATCH=80, TENSOR_MATCH=90) == []
    assert offered() == []


def test_terms_are_offered_where_backward_is_called() -> None:
    (change,) = edits_of(finding("CD153"))
    assert [(edit.kind, edit.line) for edit in change.edits] == [("every_term", 40)]
    assert not edits_of(finding("CD153"), own="other.py")
