"""What may be tried for a finding: only what exists in its version of torch and may help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.changes import Change, located, plan_of
from compilediag.fixes.environment import added, joined
from compilediag.receipt.schema.compiles import (
    CandidateRecord,
    CompileEvent,
    EnteredAt,
    EventCause,
    FindingRecord,
    FixRecord,
    FrameName,
    PassedArgument,
)
from compilediag.receipt.schema.invocations import Invocation
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.wire import ArgumentChange, Location
from tests.support.built_receipt import built

FUNCTION = Invocation(name="forward", file="model.py", line=13, calls=3)


def lines(rule: str, torch: str = "2.13.0+cpu", **evidence: Any) -> list[str]:
    return [change.line for change in changes(rule, torch, **evidence)]


def changes(rule: str, torch: str = "2.13.0+cpu", **evidence: Any) -> tuple[Change, ...]:
    finding = FindingRecord(
        id="F1",
        rule=rule,
        slug="",
        severity="warning",
        confidence="exact",
        family="",
        variable="x",
        location=None,
        ownership="user",
        count=1,
        steps=(),
        cost_s=None,
        evidence=evidence,
        fix=FixRecord(summary="", how="", candidates=evidence.pop("candidates", ())),
        entered_at=EnteredAt(
            file="train.py",
            line=7,
            arguments=(PassedArgument(parameter="x", expression="batch"),),
        ),
    )
    return candidates_of(finding, receipt(torch))


def receipt(torch: str) -> Receipt:
    whole = built()
    cause = EventCause(
        family="",
        source="",
        variable="",
        guard="",
        expected=None,
        actual=None,
        file=None,
        line=None,
        function=None,
        primary=True,
        finding="F1",
    )
    event = CompileEvent(
        compile_id="0/1",
        epoch=0,
        frame=FrameName(function="forward", file="model.py", line=13),
        step=1,
        kind="recompile",
        seconds=None,
        graph_ops=1,
        guards=1,
        causes=(cause,),
    )
    return msgspec.structs.replace(
        whole,
        environment=msgspec.structs.replace(whole.environment, torch=torch),
        compile=msgspec.structs.replace(whole.compile, events=(event,)),
        invocations=(FUNCTION,),
    )


SIZE = {"kind": "size", "source": "L['x']", "values": [["[4, 2]", "[6, 2]"]]}
MARK = "torch._dynamo.mark_dynamic(batch, 0)  # before the call, train.py:7"


def test_a_size_is_marked_at_the_call_and_then_everything_is_dynamic() -> None:
    assert lines("CD105", **SIZE) == [MARK, "torch.compile(..., dynamic=True)"]
    argument = ArgumentChange(Location("model.py", 13, "forward"), "x", "mark_dynamic", 0)
    assert changes("CD105", **SIZE)[0].arguments == (argument,)


def test_a_size_of_one_is_never_marked_dynamic() -> None:
    small = {**SIZE, "values": [["[4, 2]", "[1, 2]"]]}
    variable = "export TORCH_COMPILE_UNBACKED_SOURCES=\"L['x']:0\""
    marked = "torch._dynamo.decorators.mark_unbacked(batch, 0)  # before the call, train.py:7"
    assert lines("CD105", **small) == [variable, marked]
    assert lines("CD105", "2.7.1", **small) == [marked]


@pytest.mark.parametrize("source", ["L['self'].table", "G['x']", "", "L['x'] + 1"])
def test_what_is_no_argument_is_not_marked(source: str) -> None:
    assert lines("CD105", **{**SIZE, "source": source}) == ["torch.compile(..., dynamic=True)"]


def test_two_sizes_that_were_equal_by_accident() -> None:
    guard = "L['x'].size()[0] == L['y'].size()[1]"
    option = "torch.fx.experimental._config.use_duck_shape = False"
    assert lines("CD118", kind="equal", guard=guard) == [option]
    assert lines("CD118", kind="bound", guard="2 <= L['x'].size()[0] + 3") == []


def test_numbers_have_an_option_only_where_there_is_no_variable_for_it() -> None:
    integer = {"source": "L['self'].n", "expected": "0", "actual": "1"}
    option = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    assert lines("CD104", "2.7.1", **integer) == [option]
    assert lines("CD104", **integer) == []
    assert lines("CD107", "2.7.1", **integer) == []
    fraction = {**integer, "expected": "0.5", "actual": "1.5"}
    assert lines("CD107", "2.7.1", **fraction) == [
        "torch._dynamo.config.assume_static_by_default = False"
    ]


def test_logging_is_left_out_only_where_torch_can() -> None:
    logger = {"callee": {"name": "Logger.info", "module": None}}
    option = "torch._dynamo.config.ignore_logging_functions = {logging.Logger.info}"
    assert lines("CD211", **logger) == [option]
    assert lines("CD211", "2.7.1", **logger) == []
    reason = "logging.Logger method not supported for non-export cases"
    callee = {"name": "Logger.warning_once", "module": None}
    option = "torch._dynamo.config.ignore_logging_functions = {logging.Logger.warning_once}"
    assert lines("CD211", callee=callee, reason=reason) == [option]
    assert lines("CD211", callee=callee) == []
    assert lines("CD211", callee={"name": "_warnings.warn", "module": "_warnings"}) == [
        "torch._dynamo.config.reorderable_logging_functions = {warnings.warn}"
    ]
    assert lines("CD211", callee={"name": "open", "module": None}) == []
    # A method of the program's own may do more than write text.
    assert lines("CD211", callee={"name": "Trainer.log", "module": "app"}) == []
    assert lines("CD211", "2.7.1", callee={"name": "print", "module": None}) == [
        "torch._dynamo.config.reorderable_logging_functions = {print}"
    ]


def test_other_rules() -> None:
    assert lines("CD106", kind="requires_grad", source="L['x']") == [
        "batch.requires_grad_()  # before the call, train.py:7"
    ]
    assert lines("CD106", kind="stride", source="L['x']") == []
    assert lines("CD119") == ["torch._dynamo.config.skip_nnmodule_hook_guards = False"]
    assert lines("CD102", source="L['x']") == []
    assert lines("CD119", "unknown") == []


def test_settings_of_the_receipt_come_first() -> None:
    name = "TORCH_COMPILE_DYNAMIC_SOURCES"
    setting = CandidateRecord(kind="environment", setting=name, value="L['x']:0", risk="")
    found = changes("CD105", **SIZE, candidates=(setting,))
    assert (found[0].line, found[0].variables) == (
        f"export {name}=\"L['x']:0\"",
        ((name, "L['x']:0"),),
    )
    assert [each.needs_edit for each in found] == [False, True, True]


def test_functions_are_those_of_the_run() -> None:
    change = changes("CD105", **SIZE)[0]
    there = Location("/home/me/p/model.py", 13, "forward")
    other = Location("/home/me/p/supermodel.py", 13, "forward")
    assert located(change, [other, there]).arguments[0].function == there
    assert located(change, [other]) == change


def test_changes_together_apply_each_part_once() -> None:
    mark, dynamic = changes("CD105", **SIZE)
    plan = plan_of([mark, dynamic, mark], seed=3)
    assert (len(plan.arguments), len(plan.compile_options), plan.seed) == (1, 1, 3)


def test_variables_that_are_set_are_kept() -> None:
    sources, overrides = "TORCH_COMPILE_DYNAMIC_SOURCES", "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"
    assert joined([(sources, "L.a"), (sources, "L.b,L.a")]) == {sources: "L.a,L.b"}
    assert joined([(overrides, ">=0:a=1"), (overrides, ">=0:b=2")]) == {overrides: ">=0:a=1,b=2"}
    assert added({sources: "L.b", "X": "1"}, {sources: "L.a", "X": "0"}) == {
        sources: "L.a,L.b",
        "X": "1",
    }
