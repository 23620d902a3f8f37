"""What calls of the program may pass, or find set, so that one graph serves all of them."""

from typing import Any

import msgspec
import pytest

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.receipt.schema.compiles import FrameName, UserCallRecord
from compilediag.receipt.schema.invocations import Invocation, ShapesRecord
from compilediag.rules.changes import Edit, EditImpossible, ProgramChange
from compilediag.rules.fix_context import FixContext, make_context
from compilediag.rules.objects import propose_neutral_arguments
from compilediag.rules.values import propose_assignments, propose_fixed_flags
from tests.support.receipt_records import entered, of_files
from tests.unit.test_fix_candidates import finding, receipt

pytest.importorskip("libcst")

MASK = {"source": "L['mask']", "values": [["None", "Tensor [4, 24] torch.bool"]]}


def call(line: int, text: str, **arguments: str) -> UserCallRecord:
    return entered(arguments, line, text=text)


def case(
    rule: str, calls: list[UserCallRecord | None], shapes: list[str], **evidence: Any
) -> FixContext:
    whole = receipt("2.13.0+cpu")
    frame = FrameName(function="Net.forward", file="net.py", line=7)
    events = tuple(
        msgspec.structs.replace(whole.compile.events[0], entered_at=each, frame=frame)
        for each in calls
    )
    called = Invocation(
        name="Net.forward",
        file="net.py",
        line=7,
        calls=9,
        shapes=tuple(ShapesRecord(shapes=text, count=1) for text in shapes),
    )
    compiled = msgspec.structs.replace(whole.compile, events=events)
    whole = of_files(whole, "train.py", compile=compiled, invocations=(called,))
    return make_context(finding(rule, **evidence), whole)


def codes(changes: list[ProgramChange]) -> list[tuple[str, ...]]:
    return [edit.code for change in changes for edit in change.edits]


WITHOUT = call(15, "model(x)", x="x")
WITH = call(13, "model(x, mask=m)", x="x", mask="m")
SHAPES = ["[4, 24]", "[4, 24], mask=[4, 24]"]


def masks(
    calls: list[UserCallRecord | None], shapes: list[str], **evidence: Any
) -> list[ProgramChange]:
    return list(propose_neutral_arguments(case("CD114", calls, shapes, **{**MASK, **evidence})))


def test_a_variable_that_is_none_at_times_is_replaced_where_it_is_passed() -> None:
    found = masks([call(13, "model(x, m)", x="x", mask="m")], ["[4, 24]", "[4, 24], [4, 24]"])
    ones = "torch.ones((x.shape[0], x.shape[1]), dtype=torch.bool, device=x.device)"
    assert codes(found)[0] == ("model(x, m)", "1", f"{ones} if _ is None else _")


def test_an_argument_that_is_computed_in_the_call_gives_no_size() -> None:
    """Its sizes are written as the numbers that were seen: it would be computed twice."""
    drawn = call(13, "model(load(), m)", x="load()", mask="m")
    found = masks([drawn], ["[4, 24]", "[4, 24], [4, 24]"])
    assert codes(found)[0][2] == "torch.ones((4, 24), dtype=torch.bool) if _ is None else _"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("m if step % 2 else None", "m if step % 2 else {}"),
        ("None if full else pad(x)", "{} if full else pad(x)"),
        ("m if step else n", None),
        ("make(x)", None),
    ],
)
def test_a_choice_of_none_is_another_one(given: str, made: str | None) -> None:
    found = masks([call(13, f"model(x, mask={given})", x="x", mask=given)], SHAPES)
    ones = "torch.ones((x.shape[0], x.shape[1]), dtype=torch.bool, device=x.device)"
    wanted = [] if made is None else [made.format(ones)]
    assert [code[2] for code in codes(found)][:1] == wanted


@pytest.mark.parametrize(
    ("calls", "shapes", "evidence"),
    [
        ([None, WITH], SHAPES, {}),  # a call that is not known
        ([call(15, "model(*xs)", x="x"), WITH], SHAPES, {}),
        ([call(15, "model(load())", x="load()"), WITH], SHAPES, {}),  # read twice
        ([call(15, "model(x", x="x"), WITH], SHAPES, {}),
        ([WITHOUT, WITH], ["[4, 24]"], {}),  # its sizes were not seen
        ([WITHOUT, WITH], ["[4, 24], mask=[4, 24]", "[4, 24], mask=[4]"], {}),
        ([WITHOUT, WITH], SHAPES, {"source": "L['batch']['mask']"}),
        ([WITHOUT, WITH], SHAPES, {"values": [["None", "Cache"]]}),
    ],
)
def test_where_it_cannot_be_written_nothing_is_offered(calls, shapes, evidence) -> None:
    assert not masks(calls, shapes, **evidence)


def test_only_what_is_named_like_it_is_taken_for_a_factor_or_a_sum() -> None:
    def of(name: str, dtype: str) -> list[str]:
        with_it = call(13, f"model(x, {name}=m)", x="x", **{name: "m"})
        evidence = {"source": f"L['{name}']", "values": [["None", f"Tensor [4] torch.{dtype}"]]}
        shapes = ["[4, 24]", f"[4, 24], {name}=[4]"]
        return [code[2][:11] for code in codes(masks([WITHOUT, with_it], shapes, **evidence))]

    assert of("labels", "int64") == []
    assert of("bias", "float32") == ["torch.zeros", "torch.ones("]
    assert of("attention_mask", "int64") == ["torch.ones(", "torch.zeros"]
    assert of("padding", "bool") == ["torch.ones(", "torch.zeros"]


def test_a_keyword_that_some_calls_pass_has_the_dtype_that_the_trial_finds() -> None:
    def of(name: str) -> list[tuple[str, ...]]:
        with_it = call(13, f"model(x, {name}=m)", **{"args[0]": "x", f"kwargs['{name}']": "m"})
        without = call(15, "model(x)", **{"args[0]": "x"})
        shapes = ["[4, 24]", f"[4, 24], {name}=[4, 24]"]
        keys = {"source": "L['kwargs']", "values": [["0 keys", "1 key"]]}
        return codes(
            list(propose_neutral_arguments(case("CD108", [without, with_it], shapes, **keys)))
        )

    found = of("src_key_padding_mask")
    assert {code[:2] for code in found} == {("model(x)", "src_key_padding_mask")}
    assert [code[2].count("torch.int64") for code in found] == [1, 1, 0, 0]
    assert of("labels") == []


@pytest.mark.parametrize("source", ["L['fast']", "L['kwargs']['fast']"])
def test_a_flag_is_the_same_in_every_call(source: str) -> None:
    calls = [call(3, "f(x, fast=n > 2)", x="x", fast="n > 2"), call(9, "f(x)", x="x"), WITHOUT]
    flag = {"source": source, "values": [["False", "True"]]}
    found = list(propose_fixed_flags(case("CD107", [*calls[:2]], [], **flag)))
    assert [[(edit.kind, edit.code) for edit in each.edits] for each in found] == [
        [("argument", ("f(x, fast=n > 2)", "1", value)), ("keyword", ("f(x)", "fast", value))]
        for value in ("True", "False")
    ]
    assert found[0].line == "train.py:3: pass fast=True (and at 1 other call)"


FILLED = {
    "source": "L['self']._modules['net'].config.kind",
    "values": [["None", "'one'"]],
    "writers": [{"function": "forward", "file": "model.py", "line": 3}],
}


def filled(calls: list[UserCallRecord | None], **evidence: Any) -> list[ProgramChange]:
    return list(propose_assignments(case("CD104", calls, [], **{**FILLED, **evidence})))


def test_an_attribute_has_its_value_before_each_call_that_compiles() -> None:
    (found,) = filled([call(3, "self.model(x)", x="x"), call(9, "model.forward(x)", x="x")])
    assert [(edit.line, edit.kind, edit.code) for edit in found.edits] == [
        (3, "before", ("self.model.net.config.kind = 'one'",)),
        (9, "before", ("model.net.config.kind = 'one'",)),
    ]
    assert found.line.endswith("# before the call (and at 1 other call)")


def test_items_of_a_module_list_have_numbers() -> None:
    source = "L['self']._modules['layers']._modules['2']._buffers['kind'].name"
    (found,) = filled([call(3, "model(x)", x="x")], source=source)
    assert found.edits[0].code == ("model.layers[2].kind.name = 'one'",)


@pytest.mark.parametrize(
    "evidence",
    [
        {"values": [["None", "'one'"], ["'one'", "'two'"]]},
        {"values": [["None", "Tensor [4]"]]},
        {"writers": []},
        {"source": "L['cache'].layers[0].is_initialized"},
        {"source": "L['self'].names[3].kind"},
    ],
)
def test_what_changes_again_or_is_no_constant_is_not_set(evidence: dict[str, Any]) -> None:
    assert not filled([WITHOUT], **evidence)


def test_a_call_whose_function_is_an_expression_is_not_edited() -> None:
    assert not filled([call(3, "make()(x)", x="x")])
    assert not filled([None])


TEXT = "for x in xs:\n    y = model(  # once\n        x,\n    )\n"


def test_a_keyword_is_added_to_the_call() -> None:
    made = rewrite(TEXT, [Edit("f.py", 2, "keyword", ("model(x)", "mask", "ones(2)"))])
    assert made == "for x in xs:\n    y = model(  # once\n        x,\n    mask=ones(2))\n"
    with pytest.raises(EditImpossible, match="passes mask already"):
        rewrite("model(mask=m)\n", [Edit("f.py", 1, "keyword", ("model(mask=m)", "mask", "1"))])
    with pytest.raises(EditImpossible, match="has no call"):
        rewrite(TEXT, [Edit("f.py", 2, "keyword", ("model(y)", "mask", "1"))])


def test_sizes_are_those_of_other_arguments_or_numbers() -> None:
    named = [call(15, "model(ids=b['ids'])", ids="b['ids']"), WITH]
    shapes = ["ids=[4, 24]", "ids=[4, 24], mask=[4, 1, 24]", "ids=[2, 9], mask=[2, 1, 9]"]
    ((_, _, fill), _) = codes(
        masks([named[0], call(13, "model(ids=b['ids'], mask=m)", mask="m")], shapes)
    )
    assert fill.startswith("torch.ones((b['ids'].shape[0], 1, b['ids'].shape[1]), ")
