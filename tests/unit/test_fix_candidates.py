"""What may be tried for a finding: only what exists in its version of torch and may help."""

from typing import Any

import msgspec
import pytest

from compilediag.receipt.schema.compiles import (
    CandidateRecord,
    FindingRecord,
    FixRecord,
    Place,
    UserCallRecord,
)
from compilediag.receipt.schema.invocations import Invocation
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from compilediag.rules.changes import Edit, ProgramChange, build_trial_plan, locate_functions
from compilediag.rules.environment_variables import join_values, merge_environment
from compilediag_harness.wire import ArgumentChange, CompileOption, Location
from tests.support.built_receipt import built
from tests.support.receipt_records import (
    compile_event,
    entered,
    event_cause,
    finding_record,
    of_files,
)

SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
FUNCTION = Invocation(name="forward", file="model.py", line=13, calls=3)


def lines(rule: str, torch: str = "2.13.0+cpu", **evidence: Any) -> list[str]:
    return [change.line for change in changes(rule, torch, **evidence)]


def changes(
    rule: str, torch: str = "2.13.0+cpu", own: tuple[str, ...] = (), **evidence: Any
) -> tuple[ProgramChange, ...]:
    return list_changes(finding(rule, **evidence), receipt(torch, own))


def finding(rule: str, **evidence: Any) -> FindingRecord:
    place = evidence.pop("place", Place(file="model.py", line=14, function="forward"))
    fix = FixRecord(summary="", how="", candidates=evidence.pop("candidates", ()))
    facts = {"variable": "x", "location": place, "fix": fix, "entered_at": entered({"x": "batch"})}
    return finding_record(rule=rule, evidence=evidence, **facts)


def receipt(torch: str, own: tuple[str, ...] = ()) -> Receipt:
    whole = built()
    compiled = msgspec.structs.replace(whole.compile, events=(compile_event(event_cause()),))
    environment = msgspec.structs.replace(whole.environment, torch=torch)
    return of_files(whole, *own, environment=environment, compile=compiled, invocations=(FUNCTION,))


SIZE = {"kind": "size", "source": "L['x']", "values": [["[4, 2]", "[6, 2]"]]}
MARK = "torch._dynamo.maybe_mark_dynamic(batch, 0)  # before the call, train.py:7"


def test_a_size_is_marked_at_the_call_and_then_everything_is_dynamic() -> None:
    assert lines("CD105", **SIZE) == [MARK, "torch.compile(..., dynamic=True)"]
    argument = ArgumentChange(Location("model.py", 13, "forward"), "x", "maybe_mark_dynamic", 0)
    assert changes("CD105", **SIZE)[0].arguments == (argument,)


def passing(expression: str, *others: tuple[str, str, str, str]) -> ProgramChange:
    """The mark of a size where the program passes an expression; other causes of the finding as
    (source, before, after, expression)."""
    call = entered({"x": expression, **{each[0][3:-2]: each[3] for each in others}})
    whole = receipt("2.13.0+cpu")
    causes = (
        event_cause(source=source, expected=before, actual=after, primary=False)
        for source, before, after, _ in others
    )
    events = (compile_event(event_cause(), *causes),)
    whole = msgspec.structs.replace(
        whole, compile=msgspec.structs.replace(whole.compile, events=events)
    )
    found = msgspec.structs.replace(finding("CD105", **SIZE), entered_at=call)
    return list_changes(found, whole)[0]


@pytest.mark.parametrize("expression", ["data.x", "data['x']", 'data["x"]'])
def test_the_tensor_that_is_marked_is_the_one_that_is_passed(expression: str) -> None:
    line = f"torch._dynamo.maybe_mark_dynamic({expression}, 0)  # before the call, train.py:7"
    assert passing(expression).line == line


@pytest.mark.parametrize("expression", ["rows[index]", "rows[0]", "rows.T", "torch.randn(n, 4)"])
def test_what_is_made_for_the_call_alone_has_no_name_to_mark(expression: str) -> None:
    """diffusers' `unet(torch.cat([x, x]), t)`: a mark of `args[0]` is nothing to type."""
    line = "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']:0\""
    assert passing(expression).line == line


def test_tensors_whose_sizes_changed_together_are_made_dynamic_together() -> None:
    """One that stays static makes the same call compile again."""
    also = (
        ("L['y']", "[2, 4]", "[2, 6]", "columns"),
        ("L['z']", "[3]", "[1]", "z"),  # a constant
        ("L['self'].w", "[3]", "[4]", "w"),
    )
    marked = passing("rows", *also)
    assert marked.line == (
        "torch._dynamo.maybe_mark_dynamic(rows, 0); torch._dynamo.maybe_mark_dynamic(columns, 1)"
        "  # before the call, train.py:7"
    )
    assert [(each.argument, each.dimension) for each in marked.arguments] == [("x", 0), ("y", 1)]
    set_before = passing("rows[i]", *also)
    assert set_before.line == "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']:0,L['y']:1\""


def test_what_the_code_needs_as_a_number_is_not_marked() -> None:
    """A loop over the size makes a graph for each (makemore's GRU), whatever is marked."""
    for kind, tried in (("constant", 0), ("range", 2)):
        assert len(lines("CD105", **SIZE, size_needed={"by": "loop", "kind": kind})) == tried


def test_a_size_of_one_is_never_marked_dynamic() -> None:
    small = {**SIZE, "values": [["[4, 2]", "[1, 2]"]]}
    variable = "export TORCH_COMPILE_UNBACKED_SOURCES=\"L['x']:0\""
    marked = "torch._dynamo.decorators.mark_unbacked(batch, 0)  # before the call, train.py:7"
    assert lines("CD105", **small) == [variable, marked]
    assert lines("CD105", "2.7.1", **small) == [marked]


@pytest.mark.parametrize("source", ["L['self'].table", "G['x']", "", "L['x'] + 1"])
def test_what_is_no_argument_is_not_marked(source: str) -> None:
    assert lines("CD105", **{**SIZE, "source": source}) == ["torch.compile(..., dynamic=True)"]


def test_other_rules() -> None:
    assert lines("CD106", kind="requires_grad", source="L['x']") == []
    assert lines("CD106", kind="stride", source="L['x']") == []
    assert lines("CD119") == []
    assert lines("CD102", source="L['x']") == []
    assert lines("CD119", "unknown") == []


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        ("CD104", {"source": "L['self'].mode", "expected": "'a'", "actual": "'b'"}),
        ("CD104", {"source": "L['self'].mode", "expected": "None", "actual": "3"}),
        ("CD101", {"source": "L['f'].__closure__[0].cell_contents", "values": [["False", "True"]]}),
        ("CD103", {"source": "L['self'].t", "kind": "shape", "values": [["[1, 4]", "[6, 5]"]]}),
        ("CD103", {"source": "L['self'].t", "kind": "dtype", "values": [["a", "b"]]}),
        ("CD116", {"kind": "state", "source": "L['self']"}),
        ("CD102", {"source": "L['self'].seen", "values": [["0", "1"]]}),
    ],
)
def test_state_without_an_edit(rule: str, evidence: dict[str, Any]) -> None:
    assert changes(rule, own=("model.py", "train.py"), **evidence) == ()


def test_settings_of_the_receipt_come_first() -> None:
    name = "TORCH_COMPILE_DYNAMIC_SOURCES"
    setting = CandidateRecord(kind="environment", setting=name, value="L['x']:0", risk="")
    found = changes("CD105", **SIZE, candidates=(setting,))
    assert (found[0].line, found[0].variables) == (
        f"export {name}=\"L['x']:0\"",
        ((name, "L['x']:0"),),
    )
    assert [each.kind != "environment" for each in found] == [False, True, True]


def test_functions_are_those_of_the_run() -> None:
    change = changes("CD105", **SIZE)[0]
    there = Location("/home/me/p/model.py", 13, "forward")
    other = Location("/home/me/p/supermodel.py", 13, "forward")
    assert locate_functions(change, [other, there]).arguments[0].function == there
    assert locate_functions(change, [other]) == change


def test_changes_together_apply_each_part_once() -> None:
    mark, dynamic = changes("CD105", **SIZE)
    plan = build_trial_plan([mark, dynamic, mark])
    assert (len(plan.arguments), len(plan.compile_options)) == (1, 1)


def test_variables_that_are_set_are_kept() -> None:
    sources, overrides = "TORCH_COMPILE_DYNAMIC_SOURCES", "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"
    assert join_values([(sources, "L.a"), (sources, "L.b,L.a")]) == {sources: "L.a,L.b"}
    assert join_values([(overrides, ">=0:a=1"), (overrides, ">=0:b=2")]) == {
        overrides: ">=0:a=1,b=2"
    }
    assert merge_environment({sources: "L.b", "X": "1"}, {sources: "L.a", "X": "0"}) == {
        sources: "L.a,L.b",
        "X": "1",
    }


def test_options_that_torch_names_are_set() -> None:
    override = 'export TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS=">=0:allow_rnn=True"'
    assert lines("CD210", options={"allow_rnn": "True"}) == [override]
    assert lines("CD210", "2.7.1", options={"allow_rnn": "True"}) == [
        "torch._dynamo.config.allow_rnn = True"
    ]
    # Overrides of frames have no effect on what is read outside them.
    assert lines("CD207", options={"compiled_autograd": "True"}) == [
        "torch._dynamo.config.compiled_autograd = True"
    ]
    for unfaithful in (
        "suppress_errors",
        "skip_fwd_side_effects_in_bwd_under_checkpoint",
        "_autograd_backward_strict_mode_banned_ops",
        "enable_faithful_generator_behavior",
    ):
        assert lines("CD210", options={unfaithful: "True"}) == []
    assert lines("CD210", options={"inductor": "True; import os"}) == []


@pytest.mark.parametrize(
    ("before", "after", "count"), [("0.1", "0.2", 1), ("1", "2", 0), ("a", "b", 0)]
)
def test_for_a_float_everything_is_dynamic(before: str, after: str, count: int) -> None:
    """An int has dynamic sources."""
    for rule in ("CD104", "CD107", "CD116"):
        tried = lines(rule, source="L['lr']", values=[[before, after]])
        assert tried == ["torch.compile(..., dynamic=True)"] * count


def test_everything_is_dynamic_where_the_program_compiles_what_it_calls() -> None:
    """Where no edit can be made, wherever torch.compile is called."""
    call = UserCallRecord(file="train.py", line=7, text="step(batch)")
    item = finding("CD116", source="L['lr']", values=[["0.1", "0.2"]])
    for text, count in (("step(batch)", 2), ("self.step(batch)", 1), ("step", 1)):
        own = msgspec.structs.replace(item, entered_at=msgspec.structs.replace(call, text=text))
        edit, *_ = changed = list_changes(own, receipt("2.13.0+cpu", ("train.py",)))
        assert len(changed) == count
        assert changed[-1].options == (CompileOption("dynamic", True),)
        if count > 1:
            where = "  # where step is compiled"
            assert edit.line == f"train.py: torch.compile(..., dynamic=True){where}"
            assert edit.edits == (Edit("train.py", 7, "compile_option", ("step", "dynamic=True")),)
        assert {change.same_as for change in changed} == {"dynamic=True"}


def test_a_float_that_stays_a_constant_of_each_graph_is_not_made_dynamic() -> None:
    """One that compiled a frame twice, as under inductor."""
    item, whole = finding("CD116", source="L['lr']", values=[["0.1", "0.2"]]), receipt("2.13.0+cpu")
    event = compile_event(msgspec.structs.replace(event_cause(), finding=item.id))
    for count in (1, 2):
        compiled = msgspec.structs.replace(whole.compile, events=(event,) * count)
        changed = list_changes(item, msgspec.structs.replace(whole, compile=compiled))
        assert len(changed) == 2 - count


def test_what_a_recipe_says_is_tried_first_then_what_torch_names() -> None:
    sources = CandidateRecord(kind="environment", setting=SOURCES, value="L['x']:0", risk="")
    size = finding("CD105", **SIZE, candidates=(sources,))
    export = f"export {SOURCES}=\"L['x']:0\""
    every = "torch.compile(..., dynamic=True)"
    advised = f"call {MARK.partition('  # ')[0]} before train.py:7, from the first call on"
    for recipe, first, then in ((None, export, MARK), ("mark_dynamic", MARK, export)):
        fix = msgspec.structs.replace(size.fix, summary=advised, recipe=recipe)
        item = msgspec.structs.replace(size, fix=fix)
        tried = [change.line for change in list_changes(item, receipt("2.13.0+cpu"))]
        assert tried == [first, then, every]
    captured = CandidateRecord(kind="environment", setting="CAPTURE", value="1", risk="")
    named = lines("CD202", options={"allow_rnn": "True"}, candidates=(captured,))
    assert [line.partition("=")[0] for line in named][1] == "export CAPTURE"
    assert "allow_rnn=True" in named[0]


def test_the_setting_of_a_recipe_for_what_grows_is_tried() -> None:
    """It is no candidate: one recompile remains, for the side of the branch."""
    export = f"export {SOURCES}=\"L['x']:0,L['y']\""
    item = finding("CD103", **SIZE)
    fix = msgspec.structs.replace(item.fix, summary=f"start it with: {export}, and more")
    for recipe, count in (("dynamic_growth", 1), (None, 0)):
        fix = msgspec.structs.replace(fix, recipe=recipe)
        grown = list_changes(msgspec.structs.replace(item, fix=fix), receipt("2.13.0+cpu"))
        assert [(its.line, its.left) for its in grown] == [(export, 1)] * count


@pytest.mark.parametrize("compiled", ["run", "torch_dynamo_resume_in_run_at_9"])
def test_no_mark_is_put_into_a_function_that_is_compiled_itself(compiled: str) -> None:
    """torch refuses to trace it (pytorch-a2c-ppo-acktr-gail: `act` calls the compiled `base`)."""
    whole = receipt("2.13.0+cpu", ("train.py",))
    own = event_cause(finding="F1")
    inner = compile_event(own, entered_at=entered({"x": "batch"}, function="run"))
    other = msgspec.structs.replace(inner.frame, file="train.py", function=compiled)
    item = msgspec.structs.replace(finding("CD105", **SIZE), entered_at=inner.entered_at)
    for file, marked in (("train.py", False), ("other.py", True)):
        outer = compile_event(frame=msgspec.structs.replace(other, file=file))
        events = msgspec.structs.replace(whole.compile, events=(inner, outer))
        of = msgspec.structs.replace(whole, compile=events)
        assert any("mark" in its.line for its in list_changes(item, of)) == marked
        assert any(its.edits for its in list_changes(item, of)) == marked
