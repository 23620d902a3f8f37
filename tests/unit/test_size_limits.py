"""Which line made a dynamic size a number, and how, from what torch recorded of its conditions."""

import json

import pytest
from timelines import FILE, ROOT, attempt, process, recompile
from timelines import timeline as run_of
from trace_lines import line

from compilediag.diagnosis.findings import Finding, make_place
from compilediag.diagnosis.guards.checks import classify_condition
from compilediag.diagnosis.guards.reason import parse_reason, parse_reasons
from compilediag.diagnosis.guards.size_limits import find_guard_behind, holds, locate_size_limit
from compilediag.readers.torch_trace.read import parse_trace
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import FalseGuard, Location, SizeGuard, SizesGuarded

X, W = "L['x'].size()[0]", "L['w'].size()[0]"
LINE = Location(FILE, 12, "helper")
AT = make_place(LINE)
CALLER = Location(FILE, 30, "forward")
IN_OPERATION = ("_dispatch_impl", "dispatch", "__torch_dispatch__", "run_node")
CALLS = {
    # As torch 2.13 and 2.7.1 call them, innermost first.
    "branch": (("evaluate_expr", "inner"), "if x.size(0) == 4:"),
    "assertion": (("inner",), "assert x.size(0) == 4"),
    "check": (("_check_with", "_check", "run_node"), "torch._check(x.size(0) == 4)"),
    "loop": (("evaluate_expr", "specialize_symnode", "call_range"), "for i in range(x.size(0)):"),
    "number": (("evaluate_expr", "specialize_symnode", "__init__"), "sizes[x.size(0)]"),
    "reshape": (
        ("_check_with", "_check", "infer_size", "_reshape_view_helper", *IN_OPERATION),
        "return x.reshape(4, 2, 8)",
    ),
    "unknown": (
        ("_check_with", "_check", "infer_size", "_reshape_view_helper", *IN_OPERATION),
        "return self.mixed(x)",
    ),
    "match": (("_check_with", "_check", "infer_size", *IN_OPERATION), "return x + w"),
    "operation": (("run_node",), "return torch.linspace(0, 1, x.size(0))"),
}
EXPORTED = {
    # `torch.export` runs the code itself.
    "branch": (("__bool__",), "if x.size(0) == 4:"),
    "check": (("_check_with", "_check"), "torch._check(x.size(0) == 4)"),
    "loop": (("__index__",), "for i in range(x.size(0)):"),
    "number": (("__index__",), "names[x.size(0)]"),
}


def guard(
    expression: str = "Eq(s0, 4)",
    sizes: tuple[tuple[str, str], ...] = (("s0", X),),
    fixed: tuple[str, ...] = (),
    by: str = "branch",
    stack: tuple[Location, ...] = (CALLER, LINE),
    text: str | None = None,
) -> SizeGuard:
    calls, code = CALLS[by]
    texts = ("return helper(x)", "", "")[: max(0, len(stack) - 1)]
    return SizeGuard(
        expression, sizes, fixed, calls, stack, (*texts, text or code) if stack else ()
    )


def guarded(*guards: SizeGuard, compile_id: str = "0/0") -> tuple[SizesGuarded, ...]:
    return (SizesGuarded(0.0, 0, compile_id, 0, guards),)


@pytest.mark.parametrize(
    ("by", "calls", "text"),
    [(by, *rest) for table in (CALLS, EXPORTED) for by, rest in table.items()],
)
def test_what_needed_the_number(by: str, calls: tuple[str, ...], text: str) -> None:
    """By the functions of torch between the traced code and the condition."""
    found = locate_size_limit(
        SizeGuard("Eq(s0, 4)", (("s0", X),), (X,), calls, (LINE,), (text,)), (ROOT,)
    )
    assert (found.how, found.kind, found.place, found.text) == (by, "constant", LINE, text)
    assert found.condition == "Eq(x.size()[0], 4)"


def test_an_assertion_that_another_function_decides() -> None:
    """torch traces `all` by a branch of its own; the other side of it raises."""
    texts = ("assert all(len(x) == n for x in pairs)", "if not elem:")
    guard = SizeGuard("Eq(s0, 4)", (("s0", X),), (X,), ("inner",), (LINE, LINE), texts)
    assert locate_size_limit(guard, (ROOT,)).how == "assertion"


def test_a_size_that_torch_needed_after_the_tracing() -> None:
    """No line of the user's: none is named."""
    found = locate_size_limit(SizeGuard("Eq(s0, 4)", (("s0", X),), (X,), ("codegen",), (), ()), ())
    assert (found.how, found.place) == ("backend", None)


@pytest.mark.parametrize(
    ("expression", "value", "answer"),
    [
        ("Ne(s0, 4)", 4, False),
        ("Ne(s0, 4)", 5, True),
        ("Eq(Mod(s0, 2), 0)", 5, False),
        ("Eq(16*s0, 64)", 4, True),
        ("s0 - (((s0 + 1)//2)) >= 0", 3, True),
        ("(s0 < 10)", 12, False),
        ("Eq(s0, s1)", 4, None),
        ("Eq(Mod(s0, 0), 0)", 4, None),
        ("__import__('os').getpid()", 4, None),
        ("Eq(s0", 4, None),
    ],
)
def test_conditions_are_read_as_sympy_prints_them(expression, value, answer) -> None:
    """What cannot be read is not known, and nothing but arithmetic is evaluated."""
    assert holds(expression, {"s0": value}) is answer


def test_the_condition_behind_a_printed_guard() -> None:
    """The one of its sizes, at its line; none where two lines would do."""
    first = guard("Ne(s0, 7)")
    other = guard("Ne(s0, 9)", stack=(CALLER, Location(FILE, 20, "helper")))
    assert find_guard_behind([first, other], "x.size()[0] != 7", LINE) is first
    assert find_guard_behind([first, other], "x.size()[0] != 7", None) is None
    assert find_guard_behind([first], "x.size()[0] != 7", None) is first
    assert find_guard_behind([first], "w.size()[0] != 7", None) is None
    shortened = Location("user/app.py", 20, "helper")
    assert find_guard_behind([first, other], "L['x'].size()[0] != 9", shortened) is other


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x.size()[0] != 7", "constant"),
        ("16*L['x'].size()[0] == 64", "constant"),
        ("L['x'].size()[0] == L['w'].size()[0]", "equal"),
        ("x.size()[1] == x.size()[0]", "equal"),
        ("x.size()[0] != w.size()[0]", "unequal"),
        ("2 <= x.size()[0]", "zero_one"),
        ("x.size()[0] <= 9", "range"),
        ("(x.size()[0] % 2) != 0", "divisibility"),
        ("(x.size()[0] // 2) > 3", "range"),
        ("L['shape'][1] != 1", "range"),
        ("d['k'][1] != 1", "range"),
        ("len(L['x']) != 1", None),
    ],
)
def test_kinds_of_printed_guards(text: str, kind: str | None) -> None:
    """`size(0) == 7` needs no two equal sizes."""
    assert classify_condition(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "0/0: n == 2",
        "0/0: s == 'a; b'  # if s: ...; x = 1  # app.py:3 in g",
        "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5; see the manual",
        "0/0: L['d'] == 'x:3 in f; y'",
    ],
)
def test_one_guard_stays_one(text: str) -> None:
    """Also where a string or a line of source holds the mark."""
    assert [reason.compile_id for reason in parse_reasons(text)] == ["0/0"]
    assert parse_reasons(text) == (parse_reason(text),)


# --- CD154 ------------------------------------------------------------------------------------


def message(*sizes: str) -> str:
    return "Constraints violated (...)!\n" + "".join(
        f"  - You marked {size} as dynamic but your code specialized it to be a constant (4).\n"
        for size in sizes
    )


def violated(text: str, *guards: SizeGuard) -> tuple[Finding, ...]:
    failed = attempt("0/0", kind="failed", fail_type="ConstraintViolationError", fail_reason=text)
    return diagnose(run_of([failed], guarded_sizes=guarded(*guards))).findings


def test_it_is_the_reason_why_nothing_was_compiled() -> None:
    """Then the run has findings and is not blind, unless something else failed too."""
    failed = attempt("0/0", kind="failed", fail_type="UserError", fail_reason=message(X))
    ended = process(failure=f"ConstraintViolationError: {message(X)}")
    alone = diagnose(run_of([failed], processes=(ended,)))
    assert (alone.verdict, [each.rule for each in alone.findings]) == ("findings", ["CD154"])
    assert set(alone.findings[0].also) == {"CD904", "CD901"}
    other = attempt(
        "1/0", kind="failed", fail_reason="Tensor.item", where=Location(FILE, 50, "other")
    )
    assert diagnose(run_of([failed, other], processes=(ended,))).verdict == "blind"


def test_two_lines_are_two_findings_and_two_sizes_of_one_line_are_one() -> None:
    """Who mends one line alone finds the next one at the next run."""
    other = Location(FILE, 20, "helper")
    guards = (guard(fixed=(X,)), guard("Eq(s1, 4)", (("s1", W),), (W,), stack=(CALLER, other)))
    found = violated(message(X, W), *guards)
    assert [(each.location, each.variable) for each in found] == [
        (AT, "x.size()[0]"),
        (make_place(other), "w.size()[0]"),
    ]
    (both,) = violated(message(X, W), guard("Eq(s0, 4)", (("s0", X), ("s0", W)), (X, W)))
    assert both.location == AT


def test_a_range_that_was_promised() -> None:
    """min and max of mark_dynamic: the line allows fewer sizes."""
    text = (
        "Constraints violated (L['x'].size()[0])!\n  - Not all values of L['x'].size()[0] = "
        "L['x'].size()[0] in the specified range L['x'].size()[0] <= 64 satisfy the generated "
        "guard {}\n"
    )
    within = violated(
        text.format("2 <= L['x'].size()[0] and L['x'].size()[0] <= 9"), guard("s0 < 10")
    )
    multiple = violated(text.format("(L['x'].size()[0] % 2) == 0."), guard("Eq(Mod(s0, 2), 0)"))
    for (finding,), word in ((within, "range"), (multiple, "multiple")):
        assert finding.location == AT
        assert word in finding.title


def test_an_export_names_its_dim() -> None:
    """No row, no compile id, and torch's own suggestion."""
    text = (
        "UserError: Constraints violated (b)!\n  - You marked b as dynamic but your code "
        "specialized it to be a constant (4).\nSuggested fixes:\n  b = 4\n\nThe error above"
    )
    older = SizesGuarded(0.0, 0, "", 0, (guard(fixed=(W,), stack=(CALLER,)),))
    run = Timeline(
        processes=(process(failure=text, facts={"exported": True}),),
        guarded_sizes=(older, *guarded(guard(fixed=(X,)), compile_id="")),
        user_roots=(ROOT,),
    )
    diagnosed = diagnose(run)
    (finding,) = diagnosed.findings
    assert (finding.rule, finding.location, finding.variable) == ("CD154", AT, "x.size()[0]")
    assert "as torch suggests (b = 4)" in finding.fix.summary
    assert "one graph" not in finding.fix.summary
    assert diagnosed.verdict == "findings"


def test_a_violation_without_a_record_of_conditions() -> None:
    """The stack that torch 2.13 prints; else the frame, and no guess at the line."""
    stack = f'\nUser stack:\n  File "{FILE}", line 12, in helper\n    return x.reshape(4, 2)\n'
    (printed,) = violated(message(X) + stack)
    assert (printed.location, "size_needed" in printed.evidence) == (AT, False)
    (bare,) = violated(message(X))
    assert bare.location == make_place(Location(FILE, 10, "forward"))


# --- CD105 --------------------------------------------------------------------------


def size_changed(before: int, after: int) -> FalseGuard:
    return FalseGuard(
        "L['x']",
        "TENSOR_MATCH",
        f"tensor 'x' size mismatch at index 0. expected {before}, actual {after}",
        f"[{before}, 3]",
        f"[{after}, 3]",
        Location(FILE, 11, "forward"),
    )


def changed(*guards: SizeGuard, before: int = 4, compile_id: str = "0/1") -> Finding:
    cause = recompile("0/1", guards=[size_changed(before, 5)])
    compiles = [attempt("0/0"), attempt("0/1", kind="recompile", cause=cause)]
    run = run_of(compiles, guarded_sizes=guarded(*guards, compile_id=compile_id))
    return next(each for each in diagnose(run).findings if each.rule == "CD105")


def test_a_branch_that_tells_the_two_sizes_apart() -> None:
    """The second graph excludes the size of the first: two graphs, marked or not."""
    split = changed(guard("Ne(s0, 4)"))
    assert (split.location, "each side" in split.fix.summary) == (AT, True)
    fits = changed(guard("Ne(s0, 7)"))
    assert fits.fix.candidates
    assert fits.fix.recipe == "dynamic_source"
    other_size = changed(guard("Ne(s0, 4)", (("s0", W),)))
    assert other_size.fix.recipe == "dynamic_source"


# --- recorded traces --------------------------------------------------------------------------

FILES = (FILE, "/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py")


def record(kind: str, compile_id: bool = True, attempt: int = 0, **fields: object) -> bytes:
    of_compile = {"frame_id": 0, "frame_compile_id": 0, "attempt": attempt} if compile_id else {}
    return line(json.dumps({kind: fields, **of_compile}).encode())


def stack(*entries: tuple[int, int, str, str]) -> list[dict[str, object]]:
    return [
        {"line": at, "name": name, "filename": file, "loc": text}
        for file, at, name, text in entries
    ]


TRACED = stack((0, 30, "forward", "return helper(x)"), (0, 12, "helper", "if x.size(0) == 4:"))
ASKED = stack(
    (0, 40, "<module>", "model(x)"), (1, 1, "step", ""), (1, 2, "inner", ""),
    (1, 3, "evaluate_expr", ""),
)  # fmt: skip
NAMES = b"".join(line(json.dumps({"str": [name, at]}).encode()) for at, name in enumerate(FILES))
MADE = record("create_symbol", symbol="s0", val="4", source=X)
ADDED = record("guard_added_fast", expr="Eq(s0, 4)", user_stack=TRACED, stack=ASKED)
FIXED = record("symbolic_shape_specialization", symbol="s0", sources=[X, W], value="4", stack=[])
ROW = line(
    json.dumps(
        {
            "compilation_metrics": {
                "compile_id": "0/0", "co_filename": FILE, "co_firstlineno": 29,
                "co_name": "forward",
                "fail_type": "ConstraintViolationError", "fail_reason": message(X),
                "recompile_reason": None,
            },
            "frame_id": 0, "frame_compile_id": 0, "attempt": 0,
        }
    ).encode()
)  # fmt: skip


def sizes_in(*records: bytes) -> list[SizesGuarded]:
    (journal,) = parse_trace([b"".join((NAMES, *records))], "trace.log")
    return [event for event in journal.events if isinstance(event, SizesGuarded)]


def test_a_restart_traces_anew() -> None:
    """What the attempt before it laid down does not hold."""
    again = record("guard_added_fast", attempt=1, expr="s1 < 9", user_stack=TRACED[:1], stack=ASKED)
    (event,) = sizes_in(MADE, ADDED, FIXED, again, ROW)
    assert [(each.expression, each.fixed) for each in event.guards] == [("s1 < 9", ())]


def test_an_export_in_a_trace_has_its_lines_in_the_calls() -> None:
    """The code runs; a compile without a traced line has none of the user's."""
    calls = [*TRACED, *stack((1, 9, "__bool__", ""))]
    exported = record("guard_added_fast", compile_id=False, expr="s0 < 9", stack=calls)
    (event,) = sizes_in(exported)
    assert (event.compile_id, event.guards[0].stack) == ("", (CALLER, LINE))
    assert event.guards[0].torch_calls == ("__bool__",)
    (after,) = sizes_in(record("guard_added_fast", expr="s0 < 9", stack=calls), ROW)
    assert after.guards[0].stack == ()


def test_records_of_any_form_are_read() -> None:
    """Fields that are missing or of another type cost what they hold."""
    odd = (
        record("guard_added_fast"),
        record("guard_added_fast", expr=3, user_stack=[1, {"filename": "x"}], stack={}),
        record("symbolic_shape_specialization", sources=5),
        record("create_symbol", symbol=None, source=["x"]),
    )
    (event,) = sizes_in(*odd, ROW)
    assert [each.expression for each in event.guards] == ["None", "3"]
