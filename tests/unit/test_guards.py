"""Guard text: the grammar of reasons, the reading of expressions, names, and the golden strings."""

import json
from pathlib import Path as File

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compilediag.diagnosis.guards.checks import parse_guard
from compilediag.diagnosis.guards.families import GuardContext, decide
from compilediag.diagnosis.guards.reason import PrintedReason, parse_reason
from compilediag.diagnosis.guards.source import GuardPath, find_paths, format_variable, parse_path
from compilediag_harness.wire import GuardFacts, Location

GOLDEN = json.loads(
    (File(__file__).parents[1] / "data" / "golden_recompiles.json").read_text(encoding="utf-8")
)
STRINGS = [
    (name, version, text, case["family"], bool(case.get("needs_runtime_facts")))
    for name, case in GOLDEN.items()
    for version, text in case["reasons"].items()
]

KNOWN_MISSES = {
    ("t_none_vs_tensor", "271"): "2.7 guards None by its id, as it does bools and enums",
    ("c_dict_value_none", "271"): "2.7 guards None by its id, as it does bools and enums",
    ("i_class", "271"): "2.7 prints no type with an id: a class looks like a bool",
    ("i_builtin", "271"): "2.7 prints no type with an id: a function looks like a bool",
    ("a_range", "271"): "2.7 guards the length of a range, which looks like a list's",
    ("c_count_iter", "271"): "2.7 breaks the graph and guards the number in the resume function",
}
"""Strings that text alone gets wrong and that the data do not flag: why each cannot be known."""

HOOK = "L['fn']._forward_hooks[list(dict.keys(L['fn']._forward_hooks))[0]]"
HOOK_27 = "dict.__getitem__(fn._forward_hooks, list(dict.keys(fn._forward_hooks))[0])"


def family_of_text(reason: PrintedReason) -> str:
    """The code a printed reason alone makes most likely; "CD190" when nothing fits."""
    known = GuardContext(
        place=reason.location, user_line=reason.user_line, explanation=reason.comment
    )
    return decide(parse_guard(reason.expression), known).code


def variable_of(source: str, facts: GuardFacts, hint: str | None = None) -> str:
    path = parse_path(source)
    return format_variable(path, facts, hint) if path is not None else source


def test_agreement_with_the_golden_strings() -> None:
    """Text alone names the family of at least 92 % of all strings torch 2.7 to 2.15 printed."""
    agreed = sum(family_of_text(parse_reason(text)) == want for _, _, text, want, _ in STRINGS)
    assert len(STRINGS) == 626
    assert agreed / len(STRINGS) >= 0.92


def test_every_disagreement_is_known() -> None:
    """A string that text gets wrong needs facts of the process, or is a miss with a reason."""
    wrong = {
        (name, version)
        for name, version, text, want, needs_facts in STRINGS
        if family_of_text(parse_reason(text)) != want and not needs_facts
    }
    assert wrong == set(KNOWN_MISSES)


def test_reason_with_line_and_hint() -> None:
    """Expression, user's line, its place and the hint come apart, padding is gone."""
    reason = parse_reason(
        "0/1: c == False                                   # if capture:  # app/m.py:21 in hook "
        '(HINT: guard on "capture")'
    )
    assert reason.compile_id == "0/1"
    assert reason.expression == "c == False"
    assert reason.user_line == "if capture:"
    assert reason.location == Location("app/m.py", 21, "hook")
    assert reason.hint == 'guard on "capture"'


@pytest.mark.parametrize("compile_id", ["0/0", "12/3", "!1/1/0", "0/0_1"])
def test_compile_ids(compile_id: str) -> None:
    """Plain ids, restarts, and ids under compiled autograd are read."""
    reason = parse_reason(f"{compile_id}: n == 2")
    assert (reason.compile_id, reason.expression) == (compile_id, "n == 2")


def test_branch_is_blamed_for_a_range() -> None:
    """Of the two places of a range guard the second, the branch, is the one to blame."""
    reason = parse_reason(
        "0/0: 2 <= x.size()[0] <= 9  # y = x * 2  # m.py:3 in f (user code shown is first use of "
        "this value) and if x.shape[0] < 10:  # m.py:8 in f (_dynamo/x.py:1 in evaluate_expr)"
    )
    assert reason.location == Location("m.py", 8, "f")
    assert reason.user_line == "if x.shape[0] < 10:"


@pytest.mark.parametrize(
    ("source", "variable"),
    [
        ("L['self']._modules['pos']._buffers['pe']", "pos.pe"),
        ("self._modules['pos']._buffers['pe']", "pos.pe"),
        ("L['self'].__dict__['_modules']['pos'].__dict__['_buffers']['pe']", "pos.pe"),
        ("L['self']._modules['blocks']._modules['0'].rate", "blocks.0.rate"),
        ("L['model'].cfg.flag", "model.cfg.flag"),
        ("L['model']._modules['pos']._buffers['pe']", "model.pos.pe"),
        ("L['self'].count", "self.count"),
        ("L['x']", "x"),
        ("L['d']['k']", "d['k']"),
        ("L['batch'][0]", "batch[0]"),
        ("___from_numpy(L['s'])", "s"),
        ("dict(type(L['o']).__dict__)['k']", "o.k"),
        ("list(dict.keys(L['d']))[0]", "d"),
        ("L['o'].state[list(dict.keys(L['o'].state))[3]]['step']", "o.state[key 3]['step']"),
        ("L['g'].__code__", "g"),
        ("G['cfg'].flag", "cfg.flag"),
        ("G['___unnamed_scope_140661594553216_c307']['mymath'].zz", "mymath.zz"),
        ("G['os'].environ._data[b'HOME']", "os.environ[b'HOME']"),
        ("L['fn']._modules['1'].rate", "module[1].rate"),
        ("L['fn']._modules['1']", "module[1]"),
        (f"{HOOK}.__self__.on", "self.on"),
        (f"{HOOK}.args[0].on", "args[0].on"),
        (f"{HOOK}.__code__", "forward hook of fn"),
        ("not a source", "not a source"),
    ],
)
def test_variable_names(source: str, variable: str) -> None:
    """Sources of both spellings are named as a user would write them."""
    assert variable_of(source, GuardFacts()) == variable


def test_what_a_wrapper_of_torch_passes_on() -> None:
    """The user wrote neither `args` nor `fn`: a parameter, a keyword, a child of its container."""
    first, key = parse_path("L['args'][0]"), parse_path("L['kwargs']['mask']")
    assert first is not None
    assert key is not None
    assert format_variable(first, GuardFacts(parameter="input"), in_torch=True) == "input"
    assert format_variable(first, GuardFacts(), in_torch=True) == "argument 0"
    assert format_variable(first, GuardFacts()) == "args[0]"  # in a function of the user's own
    assert format_variable(key, GuardFacts(), in_torch=True) == "mask"
    child = GuardFacts(root_type="Sequential")
    assert variable_of("L['fn']._modules['1'].rate", child) == "Sequential[1].rate"


@pytest.mark.parametrize("hook", [HOOK, HOOK_27])
def test_closure_cells_are_named(hook: str) -> None:
    """A cell goes by its free variable: from the process first, else from torch's hint."""
    cell = f"{hook}.__closure__[0].cell_contents"
    assert variable_of(cell, GuardFacts(free_variable="capture")) == "capture"
    assert variable_of(f"{cell}.on", GuardFacts(), 'guard on "col".on') == "col.on"
    assert variable_of(f"{cell}['on']", GuardFacts(), "state") == "state['on']"
    assert variable_of(cell, GuardFacts()) == "captured variable 0"


def test_both_spellings_are_one_path() -> None:
    """torch 2.7 and later write a hook's cell differently; the path is the same."""
    printed = HOOK_27.replace("fn.", "L['fn'].")
    assert parse_path(f"{printed}.__closure__[0].cell_contents") == parse_path(
        f"{HOOK}.__closure__[0].cell_contents"
    )


def test_paths_in_a_condition() -> None:
    """Every value a shape condition names is found, the size calls are not part of them."""
    found = list(find_paths("L['x'].size()[0] > L['self'].length"))
    assert found == [GuardPath("x", "local"), parse_path("L['self'].length")]


@pytest.mark.parametrize(
    "text",
    [
        "torch._sym_sqrt(torch.sym_float(L['x'].size()[0])) > 2.0",
        "math.sqrt(L['x'].size()[0] + 1) > 2",
        "Max(1, L['x'].size()[0]) == 4",
        "not math.isnan(L['x'].item())",
    ],
)
def test_a_function_in_a_condition_is_no_value(text: str) -> None:
    assert list(find_paths(text)) == [GuardPath("x", "local")]


@pytest.mark.parametrize(
    ("text", "check", "expected", "actual"),
    [
        ("tensor 'x' size mismatch at index 0. expected 4, actual 5", "tensor", "4", "5"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "tensor", "True", "False"),
        ("___dict_contains('k', d)", "members", "present", "absent"),
        ("not hasattr(o, 'z')", "attribute", "absent", "present"),
        ("len(d) != 1", "length", "1", None),
        ("not l", "length", "empty", "not empty"),
        ("m is None", "none", "None", None),
        ("n == -2", "value", "-2", None),
        ("i.item() == 0", "tensor_item", "0", None),
        ("KeyError on d['k']", "missing", "present", "absent"),
        ("GLOBAL_STATE changed: grad_mode ", "state", None, None),
        ("wholly unknown text", "unknown", None, None),
    ],
)
def test_expressions(text: str, check: str, expected: str | None, actual: str | None) -> None:
    """What a guard checks, expects and found is read from its text."""
    guard = parse_guard(text)
    assert (guard.check, guard.expected, guard.actual) == (check, expected, actual)


def test_a_users_optim_folder_is_no_optimizer() -> None:
    """Only torch's own optimizers make an optimizer frame."""
    text = "0/0: n == 2      # y = x * n  # /home/u/optim/train.py:7 in f"
    assert family_of_text(parse_reason(text)) == "CD107"


FRAGMENTS = st.lists(
    st.sampled_from(
        ["0/0: ", "L['x']", "(", ")", "[", "]", "'", '"', "\\", "  # ", " is ", " == ", "not ",
         "tensor '", "' size mismatch", " at index ", "hasattr(", "___check_obj_id(", ".size()",
         "dict.__getitem__(", "list(", "\n", "User stack trace:", "(HINT: ", "9", "é", "\x00"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(st.one_of(st.text(max_size=300), FRAGMENTS))
@example("(" * 5_000)
@example("dict.__getitem__(" * 500)
@example("L['" + "[" * 5_000)
def test_the_parser_never_raises(text: str) -> None:
    """Any text gives a code: torn lines and foreign text are no reason to fail."""
    assert family_of_text(parse_reason(text)).startswith("CD1")
    assert isinstance(variable_of(text, GuardFacts(), text), str)


def test_comment_sign_inside_a_string() -> None:
    """Two blanks and `#` inside a guarded string do not end the expression."""
    reason = parse_reason("0/0: s == 'a  # b'      # x  # m.py:1 in f")
    assert reason.expression == "s == 'a  # b'"
