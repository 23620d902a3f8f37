"""Causes of one act are one finding with parts; causes that only coincide stay apart."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from timelines import attempt, hazards, process, site

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.findings import Finding
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.frames import collect_frames
from compilediag.timeline.invocations import Calls, ShapeCount, Step
from compilediag.timeline.timeline import Compile, Recompile, Timeline
from compilediag_harness.wire import (
    EntryDiff,
    EntryServed,
    FalseGuard,
    GuardFacts,
    Location,
    UserCall,
    ValueChange,
)

FILE = "/home/u/train.py"
MODEL = "/home/u/model.py"
FRAME = Location(MODEL, 10, "forward")
ENTERED = UserCall(FILE, 50, "main", "compiled(x)")
MAIN, FIT = Location(FILE, 60, "<module>"), Location(FILE, 12, "fit")
EPOCH, OTHER_LINE = Location(FILE, 7, "epoch"), Location(FILE, 8, "epoch")
SWITCH = UserCall(FILE, 40, "main", "model.set_adapter('de')")


def at(line: int, function: str = "main", file: str = FILE) -> Location:
    return Location(file, line, function)


def changed(*stack: Location, in_call: bool = False) -> ValueChange:
    return ValueChange("1", "2", stack, in_call, 1)


IN_CALL = changed(at(50), MAIN, in_call=True)


def value(name: str, user: Location = FRAME, **more: Any) -> FalseGuard:
    """An attribute of the compiled module that changed from 1 to 2."""
    source = f"L['self'].{name}"
    fields = {"expected": "1", "actual": "2", "user": user, "facts": GuardFacts(), **more}
    return FalseGuard(source, "EQUALS_MATCH", f"{source} == 1", **fields)


def parameter(name: str = "up", **more: Any) -> FalseGuard:
    """A parameter whose `requires_grad` was switched off."""
    source = f"L['self']._modules['{name}']._parameters['weight']"
    text = f"tensor '{source}' requires_grad mismatch. expected requires_grad=1"
    return FalseGuard(source, "TENSOR_MATCH", text, "requires_grad=True", "requires_grad=False",
                      FRAME, **more)  # fmt: skip


def size(name: str, before: str = "[8, 3]", after: str = "[6, 3]") -> FalseGuard:
    text = f"tensor 'L['{name}']' size mismatch at index 0. expected 8, actual 6"
    return FalseGuard(f"L['{name}']", "TENSOR_MATCH", text, before, after, FRAME)


def recompile(
    step: int, *guards: FalseGuard, frame: Location = FRAME, frame_id: int = 0, **more: Any
) -> Recompile:
    """One recompile of a frame in a step."""
    entries = (EntryDiff(f"{frame_id}/0", guards),)
    made = Recompile(
        *(step + frame_id / 10, step, f"{frame_id}/{step}", 0, frame, (), entries, 0.0),
        seconds=0.5,
        produced=True,
        entered_at=ENTERED,
    )
    return replace(made, **more)


def findings(*recompiles: Recompile, **more: Any) -> list[Finding]:
    steps = tuple(Step(0, n, float(n), 1.0, None, None, None, 0.0) for n in range(10))
    timeline = Timeline(recompiles=recompiles, user_roots=("/home/u",), steps=steps, **more)
    found = diagnose(timeline).findings
    return [item for item in found if item.rule.startswith("CD1") and item.rule != "CD151"]


def apart(*recompiles: Recompile, **more: Any) -> bool:
    """Whether they are two findings."""
    return len(findings(*recompiles, **more)) == 2


def shown(found: Sequence[Finding]) -> list[tuple[str, str | None, list[str], int]]:
    """Rule and variable of each finding, the variables of its parts, its recompiles."""
    return [(i.rule, i.variable, [part.variable for part in i.parts], i.count) for i in found]


# --- one value, two spellings --------------------------------------------------------------------


def test_both_spellings_in_one_recompile_count_once() -> None:
    """The recompile is one, whichever of its guards is looked at."""
    both = value("lr", at(3, "helper", MODEL)), value("lr", at(9, "other", MODEL))
    assert [item.count for item in findings(recompile(1, *both))] == [1]


def test_other_values_are_not_one() -> None:
    """Another variable, or the same name in another frame."""
    other = Location(MODEL, 30, "decode")
    assert apart(recompile(1, value("a")), recompile(2, value("b")))
    there = recompile(2, value("a", at(31, "decode", MODEL)), frame=other, frame_id=1)
    assert apart(recompile(1, value("a")), there)


# --- sizes that changed alike --------------------------------------------------------------------

RESUMED = Location(MODEL, 14, "torch_dynamo_resume_in_forward_at_14")


def test_a_length_in_four_tensors_of_two_frames() -> None:
    """The caller's comes first, whatever the callee's tensor is called."""
    own = recompile(2, size("ids"), size("mask"))
    rest = recompile(2, size("h"), size("pos"), frame=RESUMED, frame_id=1)
    (found,) = findings(own, rest)
    assert (found.variable, found.count, found.steps) == ("ids", 2, (2,))
    assert [part.variable for part in found.parts] == ["mask", "h", "pos"]
    assert found.cost_s == 1.0
    assert "the size of `ids` and `mask`" in found.fix.summary
    assert "graph break" in (found.fix.caveat or "")


def test_a_callee_is_known_by_its_call() -> None:
    """A frame that the compiled function calls, by the call that entered it."""
    inner = Location(MODEL, 70, "encode")
    called = recompile(2, size("h"), frame=inner, frame_id=1)
    from_frame = replace(called, entered_at=UserCall(MODEL, 12, "forward", "self.encode(h)"))
    assert len(findings(recompile(2, size("ids")), from_frame)) == 1
    assert len(findings(recompile(2, size("ids")), called)) == 2, "called from elsewhere"


def test_sizes_of_frames_that_only_coincide() -> None:
    """Another step, another change, or once more often: each is one of its own."""
    own = recompile(2, size("ids"))
    second, third, fourth = (recompile(n, size("h"), frame=RESUMED, frame_id=1) for n in (2, 3, 4))
    shorter = recompile(2, size("h", "[8, 3]", "[5, 3]"), frame=RESUMED, frame_id=1)
    for other in ([third], [shorter], [second, fourth]):
        assert apart(own, *other)


def test_arguments_that_coincide_once_and_differ_later() -> None:
    """The calls show that the two lengths are two; without them they are one."""
    both = recompile(2, size("x"), size("y"))
    assert len(findings(both)) == 1

    def calls(*shapes: str) -> Calls:
        counts = tuple(ShapeCount(text, 1, None, None) for text in shapes)
        return Calls(0, FRAME, len(shapes), counts, (), (), tensors=("x", "y"))

    same = calls("[8, 3], [8, 3]", "[6, 3], [6, 3]", "[5, 3], [5, 3]")
    differ = calls("[8, 3], [8, 3]", "[6, 3], [6, 3]", "[5, 3], [7, 3]")
    assert not apart(both, invocations=(same,))
    assert apart(both, invocations=(differ,))


def held(source: str, before: str = "[8, 3]", after: str = "[6, 3]") -> FalseGuard:
    facts = GuardFacts(root="argument", instance_changed=True, holder_kind="dict")
    return replace(size("x", before, after), source=source, facts=facts)


def number(source: str, before: str = "8", after: str = "6") -> FalseGuard:
    facts = GuardFacts(
        root="argument", instance_changed=True, holder_kind="tuple", value_type="int"
    )
    text = f"{source} == {before}"
    return FalseGuard(source, "EQUALS_MATCH", text, before, after, FRAME, facts=facts)


def test_a_container_and_its_own_record_of_its_length() -> None:
    """Of one argument, by the same amount, each time; else the number is a cause of its own."""
    tensors, rows = held("L['batch'].fields['obs']"), number("L['batch'].size[0]")
    (found,) = findings(recompile(2, tensors, rows))
    assert (found.rule, [part.rule for part in found.parts]) == ("CD105", ["CD107"])
    for other in (
        number("L['options'].size[0]"),
        number("L['n']"),
        number("L['batch'].size[0]", "8", "7"),
    ):
        assert len(findings(recompile(2, tensors, other))) == 2
    assert len(findings(recompile(2, tensors, rows), recompile(3, rows))) == 2


def grad(source: str) -> FalseGuard:
    text = f"tensor '{source}' requires_grad mismatch. expected requires_grad=0"
    return FalseGuard(
        source, "TENSOR_MATCH", text, "requires_grad=False", "requires_grad=True", FRAME
    )


def test_gradients_go_on_to_what_is_called() -> None:
    """Through the tensors that are passed, also two calls deep; a parameter's are its own."""
    deep = Location(MODEL, 90, "norm")

    def calls(inner: str) -> list[Recompile]:
        encode = recompile(2, grad("L['h']"), frame=Location(MODEL, 70, "encode"), frame_id=1)
        norm = recompile(2, grad(inner), frame=deep, frame_id=2)
        return [
            recompile(2, grad("L['x']")),
            replace(encode, entered_at=UserCall(MODEL, 12, "forward", "self.encode(h)")),
            replace(norm, entered_at=UserCall(MODEL, 72, "encode", "norm(h)")),
        ]

    (found,) = findings(*calls("L['values']"))
    assert (found.rule, found.variable, found.count) == ("CD106", "x", 3)
    assert len(findings(*calls("L['self']._parameters['weight']"))) == 2


# --- values that one line changed ----------------------------------------------------------------


def test_one_probable_line_changes_a_name_and_its_flags() -> None:
    """The name comes first, whatever torch checks first; the advice is about the line."""
    guards = (
        parameter(changed_by=(SWITCH,)),
        value("active", changed_by=(SWITCH,)),
        value("scale", changed_by=(SWITCH,)),
    )
    (found,) = findings(recompile(3, *guards))
    assert (found.rule, found.variable, found.count) == ("CD104", "self.active", 1)
    assert [(p.rule, p.variable) for p in found.parts] == [
        ("CD104", "self.scale"),
        ("CD106", "up.weight"),
    ]
    assert (found.common_cause.evidence, found.common_cause.line) == ("probable", 40)
    assert "probably changed 3 guarded values" in found.title
    assert f"each state that {SWITCH.text} ({FILE}:40) leaves" in found.fix.summary
    assert "first compiled call" in found.fix.summary
    (again,) = findings(recompile(3, *guards), recompile(6, *guards))
    assert "first compiled call" not in again.fix.summary, "set again and again"


def test_what_the_compiled_call_sets_on_is_changed_by_no_other_line() -> None:
    """As the positions of a queue, which a loop resets once and each call moves on."""
    reset = Location(MODEL, 30, "Queue.reset")
    guards = (
        value(name, at(line, function, MODEL), writers=(own, reset), changed_by=(SWITCH,))
        for name, line, function in (("start", 21, "enqueue"), ("end", 25, "dequeue"))
        for own in (Location(MODEL, line, f"Queue.{function}"),)
    )
    found = findings(recompile(3, *guards))
    assert [item.common_cause for item in found] == [None, None]
    assert not any(SWITCH.text in item.fix.summary for item in found)
    cleared = (
        value(name, actual="None", writers=(FRAME, reset), changed_by=(SWITCH,))
        for name in ("keys", "values")
    )
    (found,) = findings(recompile(3, *cleared))
    assert found.common_cause.line == SWITCH.line


def test_a_line_that_cannot_have_changed_a_value_is_not_named() -> None:
    """One that sets the other mode; and one that switches the gradients of parameters, where the
    tensor is an argument, another one in each call."""
    lines = {"model.train()": None, "model.eval()": 40, "m.train(False)": 40, "m.train(mode)": 40}
    for text, line in lines.items():
        site = replace(SWITCH, text=text)
        mode = value("up.training", expected="True", actual="False", changed_by=(site,))
        found = findings(recompile(3, mode, value("scale", changed_by=(site,))))
        assert [its.common_cause and its.common_cause.line for its in found] == (
            [line] if line else [None, None]
        )
    item = "L['args'][0]"
    text = f"tensor '{item}' requires_grad mismatch. expected requires_grad=0"
    given = replace(parameter(), source=item, text=text)
    both = (replace(guard, changed_by=(SWITCH,)) for guard in (parameter(), given))
    assert len(findings(recompile(3, *both))) == 2


def test_flags_may_follow_in_some_of_the_recompiles() -> None:
    """A name changes at each switch, a flag of it at the first: a consequence. Another value that
    changes less often than the root has a reason of its own."""
    name = value("active", changed_by=(SWITCH,))
    flag, scale = parameter(changed_by=(SWITCH,)), value("scale", changed_by=(SWITCH,))
    assert shown(findings(recompile(3, name, flag), recompile(6, name))) == [
        ("CD104", "self.active", ["up.weight"], 2)
    ]
    assert len(findings(recompile(3, name, scale), recompile(6, name))) == 2
    assert len(findings(recompile(3, name, flag), recompile(6, flag))) == 2


SCALED = UserCall(FILE, 41, "main", "model.set_scale(2)")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (value("a", changed_by=(SWITCH,)), value("b", changed_by=(SCALED,))),
        (value("a", changed_by=(SWITCH,)), value("b", changed_by=(SWITCH, SCALED))),
        (value("a", changed_by=(SWITCH,)), value("b", changed_by=())),
        # The compiled call: what grows inside it cannot be done before it.
        (value("a", changed_by=(ENTERED,)), value("b", changed_by=(ENTERED,))),
        # A flag and a size: nothing says that they belong together.
        (value("a", changed_by=(SWITCH,)), size("x")),
        # Two counters of `forward`, each by a line of its own in the same call.
        (value("a", changed=IN_CALL), value("b", changed=IN_CALL)),
        # Two lines of a loop, whose callers have not returned between the calls.
        (value("a", changed=changed(at(40), MAIN)), value("b", changed=changed(at(41), MAIN))),
        (value("a", changed=changed(EPOCH, FIT)), value("b", changed=changed(OTHER_LINE, FIT))),
    ],
)
def test_lines_in_one_step_that_are_no_act(first: FalseGuard, second: FalseGuard) -> None:
    assert apart(recompile(3, first, second))


def test_a_consequence_may_have_other_lines_too() -> None:
    """A name is set by one line; its flags were also set by another one, before the first call."""
    other = UserCall(FILE, 31, "main", "freeze(model)")
    name, flag = value("a", changed_by=(SWITCH,)), parameter(changed_by=(other, SWITCH))
    (found,) = findings(recompile(3, flag, name))
    assert (found.common_cause.line, len(found.parts)) == (SWITCH.line, 1)
    elsewhere = value("a", changed_by=(SWITCH, UserCall(FILE, 33, "main")))
    assert apart(recompile(3, flag, elsewhere))


def test_two_flags_of_one_function_at_different_steps() -> None:
    """Set by the same call in the loop, each when its time has come."""
    first, second = (value(name, changed_by=(SWITCH,)) for name in "ab")
    assert len(findings(recompile(2, first), recompile(4, second))) == 2


def test_witnessed_lines() -> None:
    """Seen to change by one call of the loop, at lines of its own inside it."""
    loop = at(40), at(60, "<module>")
    one, two = at(20, "set_adapter", MODEL), at(21, "set_adapter", MODEL)
    guards = value("a", changed=changed(one, *loop)), value("b", changed=changed(two, *loop))
    (found,) = findings(recompile(3, *guards))
    assert (found.common_cause.evidence, found.common_cause.line) == ("witnessed", 40)
    assert "probably" not in found.title
    same = value("a", changed=changed(one, *loop)), value("b", changed=changed(one, *loop))
    (found,) = findings(recompile(3, *same))
    assert (found.common_cause.line, found.common_cause.function) == (20, "set_adapter")


# --- what reads findings -------------------------------------------------------------------------


def test_an_armed_guard_of_a_part_is_no_finding_of_its_own() -> None:
    """It is the same act that is about to recompile again."""
    guards = value("active", changed_by=(SWITCH,)), value("scale", changed_by=(SWITCH,))
    armed = hazards((value("scale"),), step=4, where=FRAME)
    (found,) = findings(recompile(3, *guards), risk_checks=(armed,))
    assert "CD150" in found.also


# --- instances, and frames behind graph breaks ---------------------------------------------------

OTHER_INSTANCE = GuardFacts(root="argument", instance_changed=True)
ITEM_BREAK = """Graph break in user code at /home/u/model.py:14
Graph Break Reason: Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()`.

 For more details about this graph break, please visit: https://x.org/gb/gb0124.html
"""


def weight(name: str = "weight", before: str = "[32, 10]", after: str = "[2, 32]") -> FalseGuard:
    """A parameter of another shape: another instance of the class."""
    source = f"L['self']._parameters['{name}']"
    return replace(size(name, before, after), source=source, facts=OTHER_INSTANCE)


def broken(*compiles: Compile, text: str = ITEM_BREAK, ids: tuple[str, ...] = ("0/0",)) -> Any:
    """What a run has of frames of which those of `ids` met a break."""
    broke = replace(site(text, file=MODEL, count=len(ids), compile_ids=ids), processes=(0,))
    return {"breaks": (broke,), "compiles": compiles}


def compiled(item: Recompile, at: float | None = None) -> Compile:
    made = attempt(item.compile_id, kind="recompile", step=item.step, where=item.frame, cause=item)
    return replace(made, t=item.t if at is None else at, entered_at=item.entered_at)


def test_another_instance_and_another_batch() -> None:
    """Two instances share the code: what the second is called with belongs to it, and the batch
    that changes later does not."""
    other = recompile(1, weight("bias", "[32]", "[2]"), weight(), size("x", "[8, 10]", "[8, 32]"))
    batch = recompile(2, size("x", "[8, 10]", "[6, 10]"))
    found = findings(other, batch)
    assert sorted((i.rule, i.variable, len(i.parts)) for i in found) == [
        ("CD105", "x", 0),
        ("CD117", "bias", 2),
    ]
    assert {i.rule: i.steps for i in found} == {"CD105": (2,), "CD117": (1,)}


def test_instances_of_two_classes() -> None:
    """In one step, with other shapes in another frame: two."""
    rest = recompile(1, weight("scale", "[4]", "[3]"), frame=at(30, "norm", MODEL), frame_id=1)
    assert len(findings(recompile(1, weight()), rest)) == 2
    same = recompile(1, weight("module.weight"), frame=at(30, "hook", MODEL), frame_id=1)
    assert len(findings(recompile(1, weight()), same)) == 1


def test_a_library_that_broke_and_what_it_goes_on_to() -> None:
    """Both frames are entered by the program's one call of the first, which met a break."""
    first = recompile(2, size("x"))
    inner = recompile(2, size("h"), frame=at(30, "hook", "/lib/pkg/hooks.py"), frame_id=1)
    inner = replace(inner, entered_at=replace(ENTERED, arguments=(("h", "x"),)))
    met = broken(compiled(first), ids=("0/0", "0/2"))
    assert shown(findings(first, inner, **met)) == [("CD105", "x", ["h"], 2)]
    assert len(findings(first, inner)) == 2, "no break: a frame of its own in any case"


CALLED = UserCall(MODEL, 14, "forward", "self.a(x)")
AGAIN = UserCall(MODEL, 15, "forward", "self.b(x)")
CALLEE = Location(MODEL, 30, "encode")


def behind_a_break(
    again: Recompile,
    given: tuple[tuple[str, str], ...] = (),
    above: tuple[Recompile, ...] = (),
    **more: Any,
) -> list[Finding]:
    """Frame 0, which is called with what is `given`, breaks in step 1, and calls `encode`, which is
    compiled, and then compiled again. `above`: recompiles of frame 0."""
    outer = replace(compiled(recompile(1, frame_id=0), 0.5), kind="first", compile_id="0/0")
    outer = replace(outer, entered_at=replace(ENTERED, arguments=given))
    inner = replace(
        outer, compile_id="1/0", frame=again.frame, t=0.9, recompile=None, entered_at=CALLED
    )
    run = broken(outer, inner, *map(compiled, (*above, again)), **more)
    timeline = Timeline(recompiles=(*above, again), user_roots=("/home/u",), **run)
    return [item for item in diagnose(timeline).findings if item.rule[:3] in ("CD1", "CD2")]


def test_calls_within_one_step_behind_a_break() -> None:
    """One graph would have no guard between the two calls of the broken function: the break is the
    finding, and says what it made."""
    wider = recompile(1, size("x", "[8, 3]", "[8, 5]"), frame=CALLEE, frame_id=1)
    wider = replace(wider, entered_at=AGAIN)
    (found,) = behind_a_break(wider)
    assert (found.rule, found.also, found.cost_s) == ("CD202", ("CD105",), 0.5)
    assert found.title.endswith("with 1 recompile behind it")
    assert found.evidence["recompiles_behind"] == ["1/1"]


def test_an_input_that_changes_is_its_own_behind_a_break() -> None:
    """The same call in a later step: without the break its size would be guarded as well."""
    later = recompile(2, size("x"), frame=CALLEE, frame_id=1, compile_id="1/2")
    found = behind_a_break(replace(later, entered_at=CALLED))
    assert sorted(item.rule for item in found) == ["CD105", "CD202"]


def test_an_attribute_is_its_own_behind_a_break() -> None:
    """One graph would guard it just as well."""
    flag = replace(recompile(1, value("mode"), frame=CALLEE, frame_id=1), entered_at=AGAIN)
    assert sorted(item.rule for item in behind_a_break(flag)) == ["CD104", "CD202"]


FORCED = ITEM_BREAK.replace(
    "Unsupported Tensor.item() call with capture_scalar_outputs=False",
    "Call to `torch._dynamo.graph_break()`",
).replace("gb0124", "gb0025")
IN_EAGER = UserCall(MODEL, 84, "forward", "self.a(x)")
"""In a function that is not compiled, with the name of one that is."""
TOKENS = (("tokens", "batch"),)


@pytest.mark.parametrize(
    ("again", "given", "follows"),
    [
        (recompile(2, size("x"), frame=CALLEE, frame_id=1, entered_at=CALLED), TOKENS, True),
        (recompile(2, size("h"), frame=RESUMED, frame_id=1, entered_at=ENTERED), TOKENS, True),
        (recompile(2, size("x"), frame=CALLEE, frame_id=1, entered_at=CALLED), (), False),
        (
            recompile(2, size("h"), frame=CALLEE, frame_id=1, entered_at=CALLED),
            (("x", "batch"),),
            False,
        ),
        (recompile(2, size("tokens"), frame=RESUMED, frame_id=1), TOKENS, False),
        (recompile(2, value("mode"), frame=CALLEE, frame_id=1, entered_at=CALLED), TOKENS, False),
    ],
    ids=["made inside", "the rest", "unknown", "passed on", "its own argument", "state"],
)
def test_what_follows_from_a_break(
    again: Recompile, given: tuple[tuple[str, str], ...], *, follows: bool
) -> None:
    """What a frame is called with that only the break made, unless the function that broke may have
    been called with it; never the state of the program. The break comes first."""
    root, other = behind_a_break(again, given)
    if not follows:
        assert (root.follows, other.follows) == (None, None)
        return
    assert (root.rule, root.id, other.follows) == ("CD202", "F1", "F1")
    found = behind_a_break(again, given, text=FORCED)
    assert {item.follows for item in found} == {None}, "nobody is to remove that break"


def test_what_is_passed_on_follows_where_the_broken_frame_has_it_too() -> None:
    """Its own finding says what varies; the others are gone with the break."""
    above = (recompile(2, size("x", "[8, 3]", "[6, 5]")),)
    passed = recompile(3, size("h"), frame=CALLEE, frame_id=1, entered_at=CALLED)
    found = behind_a_break(passed, (("x", "batch"),), above)
    (root,) = (i.id for i in found if i.rule == "CD202")
    follows = {i.variable: i.follows for i in found if i.rule == "CD105"}
    assert follows == {"x": None, "h": root}
    number = recompile(3, value("mode"), frame=CALLEE, frame_id=1, entered_at=CALLED)
    found = behind_a_break(number, (("x", "batch"),), (recompile(2, value("mode")),))
    assert {i.follows for i in found} == {None}, "state of the program"


def test_items_of_one_argument() -> None:
    """The layers take one item each of a cache that grows: each recompiles for its own."""
    first = recompile(1, size("cache'][0]['k"), size("cache'][1]['k"))
    second = recompile(2, size("cache'][1]['k"), frame=CALLEE, frame_id=1)
    (found,) = findings(first, second)
    assert (found.rule, found.count) == ("CD105", 2)
    assert len(findings(first, recompile(2, size("other'][1]['k"), frame=CALLEE, frame_id=1))) == 2


@pytest.mark.parametrize(("rows", "kind"), [("[1, 3]", "zero_one"), ("[20, 3]", "range")])
def test_the_side_on_which_a_size_left_its_range(rows: str, kind: str) -> None:
    """torch prints both bounds as one condition; the graph before says which size it was."""
    bounds = "2 <= L['x'].size()[0] <= 15"
    dynamic = EntryDiff("0/1", (FalseGuard("", "LAMBDA_GUARD", bounds, bounds, None, FRAME),))
    left = recompile(2, size("x", after=rows), value("mode"))
    (found,) = (i for i in findings(replace(left, entries=(dynamic, *left.entries))))
    assert (found.rule, found.evidence["kind"]) == ("CD118", kind)


@pytest.mark.parametrize(("calls", "follows"), [(1, True), (2, False)])
def test_a_value_that_varies_without_the_break_too_does_not_follow(
    calls: int, *, follows: bool
) -> None:
    """The same frame is entered from a function that did not break: without the break the first of
    such calls compiles it first, and the second again."""
    inner = recompile(2, size("x"), frame=CALLEE, frame_id=1, entered_at=CALLED)
    elsewhere = [
        replace(inner, t=3.5 + n, step=3 + n, compile_id=f"1/{3 + n}", entered_at=ENTERED)
        for n in range(calls)
    ]
    outer = replace(compiled(recompile(1), 0.5), kind="first", compile_id="0/0")
    outer = replace(outer, entered_at=replace(ENTERED, arguments=TOKENS))
    run = broken(outer, replace(compiled(inner, 0.9), kind="first"), *map(compiled, elsewhere))
    timeline = Timeline(recompiles=(inner, *elsewhere), user_roots=("/home/u",), **run)
    found = diagnose(timeline).findings
    assert {item.follows for item in found} == ({None, found[0].id} if follows else {None})


def test_a_number_of_another_type_is_not_a_graph_for_each_value() -> None:
    """As `min(1, used / total)`: the graph with a symbol asks for the type alone."""
    argument = {"facts": GuardFacts(root="argument")}
    kind = "___check_type_id(L['alpha'], 1), type=<class 'float'>"
    first = FalseGuard("L['alpha']", "EQUALS_MATCH", "L['alpha'] == 0.25", "0.25", "0.5", FRAME,
                       **argument)  # fmt: skip
    other = FalseGuard("L['alpha']", "TYPE_MATCH", kind, None, "1", FRAME, **argument)
    (found,) = findings(recompile(1, first), recompile(3, other))
    assert "one for each other type of it" in found.fix.summary
    (found,) = findings(recompile(1, first), recompile(3, replace(first, expected="0.5")))
    assert "a graph for each value" in found.fix.summary


@pytest.mark.parametrize(("values", "of_each"), [((1, 2), False), ((1, 2, 3), True)])
def test_the_rest_is_compiled_for_each_value_that_a_break_reads(
    values: tuple[int, ...], *, of_each: bool
) -> None:
    """A list that `.tolist()` made; where it changed once, a symbol may serve all others."""
    source, facts = "L['___stack0'][0]", GuardFacts(root="argument")
    again = [
        recompile(
            step,
            FalseGuard(source, "EQUALS_MATCH", f"{source} == {old}", f"{old}", f"{new}",
                       RESUMED, facts=facts),
            frame=RESUMED,
            frame_id=1,
        )
        for step, (old, new) in enumerate(pairwise(values), 2)
    ]  # fmt: skip
    outer = replace(compiled(recompile(1, frame_id=0), 0.5), kind="first", compile_id="0/0")
    inner = replace(outer, compile_id="1/0", frame=RESUMED, t=0.9, recompile=None)
    run = broken(outer, inner, *map(compiled, again))
    timeline = Timeline(recompiles=tuple(again), user_roots=("/home/u",), **run)
    (found,) = (item for item in diagnose(timeline).findings if item.rule == "CD202")
    assert found.fix.summary.startswith("torch makes a graph of the rest") == of_each


def test_a_limit_behind_a_break_waits_for_it() -> None:
    """What used it up may be part of the break's own finding, and of no other on the screen."""
    again = recompile(2, size("x"), frame=CALLEE, frame_id=1, entered_at=CALLED)
    outer = replace(compiled(recompile(1, frame_id=0), 0.5), kind="first", compile_id="0/0")
    outer = replace(outer, entered_at=replace(ENTERED, arguments=TOKENS))
    inner = replace(outer, compile_id="1/0", frame=CALLEE, t=0.9, recompile=None, entered_at=CALLED)
    over = replace(again, t=4.0, step=4, compile_id="1/3")
    run = broken(outer, inner, compiled(again), replace(compiled(over), kind="limit"))
    frames = tuple(collect_frames(run["compiles"]))
    timeline = Timeline(recompiles=(again, over), frames=frames, user_roots=("/home/u",), **run)
    root, *others = diagnose(timeline).findings
    (limit,) = (item for item in others if item.rule == "CD152")
    assert (root.rule, limit.follows) == ("CD202", root.id)
    assert limit.fix.summary == "remove the graph break at model.py:14 first"


@pytest.mark.parametrize(
    ("text", "entered", "behind"),
    [
        (ITEM_BREAK, (ENTERED, CALLED), True),
        (FORCED, (ENTERED, CALLED), False),
        (ITEM_BREAK, (ENTERED, UserCall(FILE, 51, "evaluate", "encode(x)")), False),
        (ITEM_BREAK, (IN_EAGER, replace(IN_EAGER, line=85, text="self.b(x)")), False),
        (ITEM_BREAK, (IN_EAGER, replace(IN_EAGER, line=5)), False),
        (ITEM_BREAK, (ENTERED, replace(CALLED, defined_at=FRAME.line)), True),
        (ITEM_BREAK, (ENTERED, replace(CALLED, defined_at=FRAME.line + 1)), False),
    ],
    ids=["behind", "asked for", "unrelated", "of a namesake", "of one above it", "its", "not its"],
)
def test_what_is_behind_a_break_waits_for_it(
    text: str, entered: tuple[UserCall, UserCall], *, behind: bool
) -> None:
    """A variant that was compiled once and served since, of a frame that only a break made, is not
    called wanted, and its setting says that torch compiles no such frame without the break."""
    by, at = entered
    again = recompile(2, size("x"), frame=CALLEE, frame_id=1, compile_id="1/1", entered_at=at)
    outer = replace(compiled(recompile(1), 0.5), kind="first", compile_id="0/0", entered_at=by)
    inner = replace(outer, compile_id="1/0", frame=CALLEE, t=0.9, entered_at=at)
    run = broken(outer, replace(inner, recompile=None), compiled(again), text=text)
    told = process()
    diagnosis = diagnose(
        Timeline(
            recompiles=(again,),
            user_roots=("/home/u",),
            processes=(replace(told, torch=replace(told.torch, torch="2.13.0+cpu")),),
            steps=tuple(Step(0, n, float(n), 1.0, None, None, None, 0.0) for n in range(10)),
            served=(EntryServed(2.5, 2, "1/1", 0, again=False), EntryServed(3, 3, "1/1", 0, True)),
            **run,
        )
    )
    (found,) = (item for item in diagnosis.findings if item.rule == "CD105")
    fix = found.fix
    assert set(diagnosis.needs.values()) == {"undecided" if behind else "wanted"}
    assert fix.recipe == "dynamic_source"
    assert ("only the graph break at model.py:14" in (fix.caveat or "")) == behind


def test_a_mode_that_changed_once_is_one_finding() -> None:
    """Whichever frames guard it."""
    mode = FalseGuard("", "GLOBAL_STATE", "GLOBAL_STATE changed: grad_mode ", user=FRAME)
    there = replace(mode, user=CALLEE)
    first = recompile(2, mode)
    assert not apart(first, recompile(2, there, frame=CALLEE, frame_id=1))
    assert apart(first, recompile(5, there, frame=CALLEE, frame_id=1))


def test_what_the_line_of_a_break_reads_goes_out_with_it() -> None:
    """As a replay memory that grows, in the line that draws from it; and which items of what it
    draws are one tensor."""
    skipped = FORCED.replace(
        "Call to `torch._dynamo.graph_break()`", "Attempted to call function marked as skipped"
    ).replace("gb0025", "gb0008")
    grown = recompile(2, value("rows", at(14, "encode", MODEL)), frame=CALLEE, frame_id=1)
    grown = replace(grown, entered_at=CALLED)
    (found,) = behind_a_break(grown, text=skipped)
    assert (found.rule, found.also, found.cost_s) == ("CD204", ("CD104",), 0.5)
    other = replace(grown, entries=recompile(2, value("rows", at(13, "encode", MODEL))).entries)
    assert len(behind_a_break(other, text=skipped)) == 2
    assert len(behind_a_break(grown)) == 2, "a value that is read may be captured where it is"
    same = "L['___stack0'][{0}][0] is L['___stack0'][1][3]"
    drawn = (
        recompile(
            step,
            FalseGuard("L['___stack0']", "DUPLICATE_INPUT", same.format(step), user=RESUMED),
            frame=RESUMED,
            frame_id=1,
        )
        for step in (2, 3)
    )
    (found,) = findings(*drawn)
    assert (found.rule, found.count) == ("CD113", 2)


def test_what_reading_a_value_carries_over_the_break() -> None:
    """Sizes that Dynamo itself carries behind a break that reads a value are the break's."""
    carried = recompile(2, size("___stack0"), frame=RESUMED, frame_id=1, compile_id="1/2")
    (found,) = behind_a_break(carried)
    assert (found.rule, found.also) == ("CD202", ("CD105",))
    rules = [item.rule for item in behind_a_break(carried, text=FORCED)]
    assert "CD105" in rules, "the user asked for the break: what happens behind it stays"


# --- one thing, several guards -------------------------------------------------------------------


def test_keys_and_values_of_a_cache() -> None:
    """Two buffers that grow alike."""
    facts = GuardFacts(root="argument", holder_kind="object")
    names = ("keys", "values")
    grown = [replace(size(name), source=f"L['self'].{name}", facts=facts) for name in names]
    assert shown(findings(recompile(2, *grown))) == [("CD103", "self.keys", ["self.values"], 1)]


def test_a_size_and_its_condition_at_one_line() -> None:
    """The graph demands something of the very size that changed; what a later size fails is
    another thing to mend."""
    condition = FalseGuard(
        "L['x']", "SHAPE", "L['x'].size()[0] == L['y'].size()[0]", actual="6", user=FRAME
    )
    found = findings(recompile(1, size("x"), condition))
    assert [(i.rule, [part.rule for part in i.parts], i.count) for i in found] == [
        ("CD105", ["CD118"], 1)
    ]
    assert len(findings(recompile(1, size("x")), recompile(2, condition))) == 2


def test_a_combination_within_a_larger_one() -> None:
    """Three known values met, and later two of them."""
    a, b, c = (value(name, novel=False) for name in "abc")
    three = replace(
        recompile(1), entries=tuple(EntryDiff(f"0/{n}", (g,)) for n, g in enumerate((a, b, c)))
    )
    two = replace(recompile(2), entries=(EntryDiff("0/0", (a,)), EntryDiff("0/1", (b,))))
    found = [i for i in findings(three, two) if i.rule == "CD120"]
    assert [(i.variable, i.count) for i in found] == [("self.a, self.b, self.c", 2)]


def test_a_name_before_the_weights_that_it_freezes() -> None:
    """What was set comes first, whichever torch checks first."""
    again = recompile(1, parameter(), value("adapter"))
    timeline = Timeline(recompiles=(again,), user_roots=("/home/u",))
    assert [cause.rule for cause in find_run_causes(timeline).get_causes(again)] == [
        "CD104",
        "CD106",
    ]


# --- values that one function sets together ------------------------------------------------------

FILLS, OTHER = at(21, "Rotary.forward", MODEL), at(44, "Norm.forward", MODEL)


def buffer(name: str, before: int, after: int, writer: Location = FILLS) -> FalseGuard:
    source = f"L['self'].{name}"
    text = f"tensor '{source}' size mismatch at index 0. expected {before}, actual {after}"
    sizes = {"expected": f"[{before}, 4]", "actual": f"[{after}, 4]"}
    return FalseGuard(source, "TENSOR_MATCH", text, user=FRAME, writers=(writer,),
                      facts=GuardFacts(), **sizes)  # fmt: skip


@pytest.mark.parametrize(
    ("cos_later", "writer", "expected"),
    [(24, FILLS, 1), (16, FILLS, 2), (24, OTHER, 2)],
    ids=["grew each time", "stayed once", "other function"],
)
def test_a_cache_of_several_values(cos_later: int, writer: Location, expected: int) -> None:
    """`sin` is blamed alone at the second recompile, where `cos` has grown too: one cache grows."""
    first = recompile(1, buffer("cos", 8, 16), buffer("sin", 8, 16, writer))
    entries = (
        EntryDiff("0/1", (buffer("sin", 16, 24, writer),)),
        EntryDiff("0/0", (buffer("cos", 8, cos_later), buffer("sin", 8, 24, writer))),
    )
    found = findings(first, replace(recompile(2), entries=entries))
    assert len(found) == expected
    assert sum(item.count for item in found) == (2 if expected == 1 else 3)


def test_an_attribute_of_each_layer() -> None:
    """What differs by an index alone, and changed alike, is one; another change is another."""
    layers = [value(f"layers[{n}].scale") for n in range(3)]
    other = value("layers[3].scale", actual="7")
    assert shown(findings(recompile(1, *layers, other))) == [
        ("CD104", "self.layers[0].scale", ["self.layers[1].scale", "self.layers[2].scale"], 1),
        ("CD104", "self.layers[3].scale", [], 1),
    ]
