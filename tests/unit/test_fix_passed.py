"""Something else passed for an argument: what is offered, and the edit of the call."""

from typing import Any

import msgspec
import pytest

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.receipt.schema.compiles import UserCallRecord
from compilediag.rules.changes import Edit, EditImpossible, ProgramChange
from compilediag.rules.fix_context import FixContext, make_context
from compilediag.rules.sizes.changes import propose_mark_edits, propose_size_changes
from compilediag.rules.tensors import propose_tensor_copies
from compilediag.rules.values import propose_tensor_arguments
from tests.support.receipt_records import entered, of_files
from tests.unit.test_fix_candidates import finding, receipt

pytest.importorskip("libcst")


MAKERS = (propose_tensor_arguments, propose_tensor_copies, propose_size_changes)


def offered(
    rule: str, text: str, arguments: dict[str, str], **evidence: Any
) -> list[ProgramChange]:
    """For a finding whose one compile was entered by a call of the program's own."""
    made = case(rule, entered(arguments, 1, text=text), **evidence)
    return [change for make in MAKERS for change in make(made)]


def case(rule: str, call: UserCallRecord, **evidence: Any) -> FixContext:
    whole = receipt("2.13.0+cpu")
    event = msgspec.structs.replace(whole.compile.events[0], entered_at=call)
    compiled = msgspec.structs.replace(whole.compile, events=(event,))
    return make_context(finding(rule, **evidence), of_files(whole, "train.py", compile=compiled))


CHANNELS_LAST = [["stride [192, 1, 24, 3]", "stride [192, 64, 8, 1]"]]
ROWS = [["stride [8, 1]", "stride [1, 4]"]]


def lines(*args: Any, **evidence: Any) -> list[str]:
    return [change.line for change in offered(*args, **evidence)]


def test_a_layout_is_that_of_the_first_compile_and_then_the_plain_one() -> None:
    layout = {"kind": "stride", "source": "L['x']", "values": CHANNELS_LAST}
    found = offered("CD106", "f(images)", {"x": "images"}, **layout)
    with_format = "f(images.contiguous(memory_format=torch.channels_last))"
    assert [change.line for change in found] == [
        f"{with_format}  # at the call, train.py:1",
        f"train.py:1: {with_format}",
        "f(images.contiguous())  # at the call, train.py:1",
        "train.py:1: f(images.contiguous())",
    ]
    actions = [change.arguments[0].action for change in found]
    assert actions == ["channels_last", "unwritten", "contiguous", "unwritten"]
    assert len(lines("CD106", "f(a)", {"x": "a"}, **{**layout, "values": ROWS})) == 2


@pytest.mark.parametrize("source", ["L['self'].weight", "G['x']", "L['batch']['ids']", ""])
def test_a_part_of_an_argument_is_not_replaced(source: str) -> None:
    assert not lines("CD106", "f(a)", {"x": "a"}, kind="stride", source=source, values=ROWS)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([["torch.int64", "torch.int32"]], "_.to(torch.int64)"),
        ([["torch.int32", "torch.int16"]], "_.to(torch.int64)"),
        ([["torch.float16", "torch.float32"]], "_.to(torch.float32)"),
        ([["torch.float16", "torch.bfloat16"]], None),
        ([["torch.float32", "torch.int64"]], None),
    ],
)
def test_a_dtype_is_one_that_holds_every_value(values: Any, code: str | None) -> None:
    found = offered("CD106", "f(a)", {"x": "a"}, kind="dtype", source="L['x']", values=values)
    assert [edit.code[2] for change in found for edit in change.edits] == ([code] if code else [])


def test_the_second_of_two_arguments_that_are_one_tensor_is_edited() -> None:
    layout = {"kind": "stride", "source": "L['y']", "values": ROWS}
    found = offered("CD106", "m(t, t)", {"x": "t", "y": "t"}, **layout)
    assert found[1].line == "train.py:1: m(t, t.contiguous())"
    assert offered("CD106", "m(t)", {"x": "t", "y": "t"}, **layout)[1:] == []


def test_a_number_becomes_a_tensor_and_none_of_float64() -> None:
    def of(*values: str) -> list[str]:
        pairs = [list(values)]
        return lines("CD107", "f(a, n=k)", {"n": "k"}, source="L['n']", values=pairs)

    assert of("1", "2")[1] == "train.py:1: f(a, n=torch.tensor(k))"
    assert of("0.5", "2")[1] == "train.py:1: f(a, n=torch.tensor(k, dtype=torch.float32))"
    assert of("True", "False") == of("'mean'", "'sum'") == []


def test_a_call_of_which_too_little_is_known_is_changed_from_outside_only() -> None:
    layout = {"kind": "stride", "source": "L['x']", "values": ROWS}
    for text in ("f(*items)", "f(a very long …"):
        assert [change.kind for change in offered("CD106", text, {}, **layout)] == ["call"]


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


PROGRAM = """\
for batch in batches:  # each
    print(f"{step(batch, scale=a + b):.3f}")  # kept
    loss = step(
        batch,  # the images
        scale=2,
    )
    step(*batch)
"""


def passing(line: int, text: str, index: int, code: str = "_.contiguous()") -> Edit:
    return Edit("", line, "argument", (text, str(index), code))


def test_an_argument_is_edited_where_it_is_passed() -> None:
    inline = "step(batch, scale=a + b)"
    found = rewrite(PROGRAM, [passing(2, inline, 0), passing(2, inline, 1, "torch.tensor(_)")])
    wanted = 'print(f"{step(batch.contiguous(), scale=torch.tensor(a + b)):.3f}")  # kept'
    assert wanted in found
    found = rewrite(PROGRAM, [passing(4, "step(batch, scale=2)", 0)])
    assert "        batch.contiguous(),  # the images\n" in found
    assert "(a + b).contiguous()" in rewrite(PROGRAM, [passing(2, inline, 1)])
    twice = passing(4, "step(batch, scale=2)", 0, "torch.ones(3) if _ is None else _")
    found = rewrite(PROGRAM, [twice])
    assert "torch.ones(3) if batch is None else batch,  # the images\n" in found
    assert found.startswith("import torch\n")


@pytest.mark.parametrize(
    "edit",
    [passing(1, "step(batch, scale=2)", 0), passing(7, "step(*batch)", 0), passing(9, "f(x)", 0)],
)
def test_another_call_is_not_edited(edit: Edit) -> None:
    with pytest.raises(EditImpossible):
        rewrite(PROGRAM, [edit])


def test_one_argument_is_not_edited_in_two_ways() -> None:
    inline = "step(batch, scale=a + b)"
    with pytest.raises(EditImpossible):
        rewrite(PROGRAM, [passing(2, inline, 0), passing(2, inline, 0, "_.clone()")])
    assert rewrite(PROGRAM, [passing(2, inline, 0)] * 2).count("contiguous") == 1
