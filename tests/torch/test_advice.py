"""Advice is code: each fix is followed as its sentence says, and torch counts what recompiles then.

A case is a program, the sentence that its finding must have, and the same program with ways of that
sentence taken. The pages of the rules have more: `test_rule_pages.py` runs their code.
"""

import re
from typing import Any

import pytest
import torch
from advice import containers as _containers
from advice import modes as _modes
from advice import packages, tensors, values
from advice.case import CASES, Case, X, compiled, rows
from torch._dynamo import utils

import compilediag
from compilediag.diagnosis.findings import Finding
from compilediag.rules import modes
from compilediag.rules import objects as containers
from compilediag.rules import tensors as tensor_rules
from compilediag.rules import values as value_rules
from compilediag.rules.make_finding import Advice
from compilediag.rules.recompiles import WAYS
from compilediag.rules.sizes import advice as sizes
from compilediag.rules.sizes import lines as size_lines
from compilediag.rules.sizes.advice import PAD

_ = _containers, _modes, packages, tensors, values
FAMILIES = (containers, modes, size_lines, sizes, tensor_rules, value_rules)
WITHOUT_PROGRAM = {
    "CARRIED_SIZE": "remove a break: its page",
    "EACH_SIDE": "the page of CD118",
    "EACH_SIZE": "test_constant_sizes.py",
    "NEEDED": "said where the line is not known; where it is, ANY_SIZE",
    "NO_REASON": "nothing to do",
    "PLANNED": "nothing to do",
    "TWO_SIDES_OF_OTHERS": "test_constant_sizes.py",
    "UNKNOWN": "nothing to do",
}
"""Sentences that no program here follows, and why."""


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def recompiles() -> list[str]:
    """As torch itself counts them."""
    return [row.recompile_reason for row in utils.get_compilation_metrics() if row.recompile_reason]


def has_sentence(found: Finding, advice: Advice) -> bool:
    """The sentence is that one, with any names in it."""
    parts = re.split(r"\{+[^{}]*\}+", advice.fix)
    pattern = ".*".join(map(re.escape, parts)).replace(re.escape(PAD), "pad to .*")
    return re.fullmatch(pattern, found.fix.summary) is not None


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:`torch.jit:DeprecationWarning"
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_followed_literally(case: Case) -> None:
    """The advice names what to do; done, nothing recompiles, and the results are the same."""
    with compilediag.watch() as seen:
        before = case.before()
    assert recompiles() or any(item.rule.startswith("CD2") for item in seen.findings)
    told = [(item.rule, item.variable, item.fix.summary) for item in seen.findings]
    assert not any(own in str(told) for own in ("___", "torch_dynamo_resume_in", "{"))
    assert any(has_sentence(item, case.advice) for item in seen.findings), told
    for number, way in enumerate(case.ways):
        torch._dynamo.reset()
        utils.clear_compilation_metrics()
        after = way()
        assert recompiles() == [], number
        if case.equal:
            torch.testing.assert_close(after, before)


def test_every_sentence_is_followed() -> None:
    """A sentence needs a program that shows that it helps."""
    sentences = {
        name: item
        for family in FAMILIES
        for name, item in vars(family).items()
        if isinstance(item, Advice)
    }
    followed = [case.advice for case in CASES]
    missing = {name for name, item in sentences.items() if item not in followed}
    assert missing == WITHOUT_PROGRAM.keys()


def jumped(x: Any) -> Any:
    count = int(x.sum().item())
    return x * count


def twice_with(x: Any, scale: Any) -> Any:
    return (x * scale).sum(1) * 2


def extended(x: Any, cache: dict[str, Any]) -> Any:
    return torch.cat([cache["rows"], x]) if "rows" in cache else x * 1


def across(x: Any, mode: str) -> Any:
    y = x * 2
    torch._dynamo.graph_break()
    return y * 2 if mode == "twice" else y - 1


def test_the_expression_that_was_passed_is_marked() -> None:
    """What torch wraps around its own modules has no names: the line of the program has."""
    step = compiled(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    with compilediag.watch() as seen:
        for batch in rows(8, 5, 6):
            step(batch)
    assert recompiles()
    (found,) = [item for item in seen.findings if item.rule == "CD105"]
    own = test_the_expression_that_was_passed_is_marked.__code__.co_firstlineno
    assert found.fix.summary.startswith(
        f"call torch._dynamo.maybe_mark_dynamic(batch, 0) before test_advice.py:{own + 5}, from "
        "the first call on; or "
    )
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    for batch in rows(8, 5, 6):
        torch._dynamo.maybe_mark_dynamic(batch, 0)
        step(batch)
    assert recompiles() == []


def test_what_a_call_computes_is_marked_in_a_variable() -> None:
    """A mark of `table[index]` itself is on a tensor that nothing gets."""
    step = compiled(twice_with)
    table, scale = torch.ones(9, 4), torch.ones(9, 1)
    parts = [torch.arange(size) for size in (8, 5, 6)]
    with compilediag.watch() as seen:
        for index in parts:
            step(table[index], scale[index])
    assert recompiles()
    (found,) = [item for item in seen.findings if item.rule == "CD105"]
    own = test_what_a_call_computes_is_marked_in_a_variable.__code__.co_firstlineno
    assert found.fix.summary.startswith(
        "assign `table[index]` and `scale[index]` to variables, call "
        "torch._dynamo.maybe_mark_dynamic(t, 0) for each variable t, and pass them at "
        f"test_advice.py:{own + 7}, from the first call on; or "
    )
    for in_variables in (False, True):
        torch._dynamo.reset()
        utils.clear_compilation_metrics()
        for index in parts:
            if in_variables:
                rows_of, scale_of = table[index], scale[index]
                for t in (rows_of, scale_of):
                    torch._dynamo.maybe_mark_dynamic(t, 0)
                step(rows_of, scale_of)
            else:
                torch._dynamo.maybe_mark_dynamic(table[index], 0)
                torch._dynamo.maybe_mark_dynamic(scale[index], 0)
                step(table[index], scale[index])
        assert bool(recompiles()) is not in_variables


def test_a_key_that_a_dict_gets_later_is_marked_from_then_on() -> None:
    """A cache that is filled call by call: before its first call there is nothing to mark."""

    def run(mark: bool) -> None:
        step, cache = compiled(extended), dict[str, Any]()
        for x in rows(4, 4, 4, 4):
            if mark and "rows" in cache:
                torch._dynamo.maybe_mark_dynamic(cache["rows"], 0)
            cache["rows"] = step(x, cache)

    with compilediag.watch() as seen:
        run(mark=False)
    before = len(recompiles())
    (found,) = [item for item in seen.findings if item.rule == "CD105"]
    assert "maybe_mark_dynamic(cache['rows'], 0) before " in found.fix.summary
    assert "that passes it" in found.fix.summary
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    run(mark=True)
    assert len(recompiles()) < before


def test_the_first_call_is_marked_too_where_it_is_another_one() -> None:
    """A mark holds from the first compile on: what an earlier line passes needs it as well."""
    step = compiled(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    example, *batches = rows(8, 5, 6)
    with compilediag.watch() as seen:
        step(example)
        for batch in batches:
            step(batch)
    assert recompiles()
    (found,) = [item for item in seen.findings if item.rule == "CD105"]
    own = test_the_first_call_is_marked_too_where_it_is_another_one.__code__.co_firstlineno
    assert found.fix.summary.startswith(
        f"call torch._dynamo.maybe_mark_dynamic(batch, 0) before test_advice.py:{own + 7} and on "
        f"what test_advice.py:{own + 5} passes before that, the first call; or "
    )
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    for batch in (example, *batches):
        torch._dynamo.maybe_mark_dynamic(batch, 0)
        step(batch)
    assert recompiles() == []


def test_an_argument_without_a_name_is_the_input() -> None:
    """`args[0]` is no name of the program's, whatever the sentence is about."""
    step = compiled(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    with compilediag.watch() as seen:
        step(torch.ones(2, 4))
        step(torch.ones(2, 4).requires_grad_())
    (found,) = [item for item in seen.findings if item.rule == "CD106"]
    assert found.fix.summary.startswith("warm up `input` with and without requires_grad")


def test_a_value_that_no_program_can_name_belongs_to_its_break() -> None:
    """Dynamo's temporaries are in no finding of their own: the break has made them, and says so."""
    with compilediag.watch() as seen:
        before = [compiled(jumped)(x) for x in (X, X + 1, X + 2)]
    assert recompiles()
    (found,) = [item for item in seen.findings if item.rule.startswith(("CD107", "CD2"))]
    assert (found.rule, found.also) == ("CD202", ("CD107",))
    assert found.location.line == jumped.__code__.co_firstlineno + 1
    assert found.title.endswith("behind it")
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    call = compiled(lambda x: x * x.sum(), fullgraph=True)
    torch.testing.assert_close([call(x) for x in (X, X + 1, X + 2)], before)
    assert recompiles() == []


def test_an_argument_that_is_carried_over_a_break() -> None:
    """Without the break the function itself guards it: then the advice for arguments holds."""
    with compilediag.watch() as seen:
        before = [compiled(across)(X, mode) for mode in ("twice", "once")]
    assert recompiles()
    (found,) = [item for item in seen.findings if item.rule == "CD107"]
    first, second = WAYS.split(found.fix.summary)
    place = f"test_advice.py:{across.__code__.co_firstlineno + 2}"
    assert first == f"remove the graph break at {place}"
    assert second.startswith("if `mode` is an argument of `across`, warm up each value of `mode`")
    torch._dynamo.reset()
    call = compiled(across)
    for mode in ("twice", "once"):
        call(X, mode)
    utils.clear_compilation_metrics()
    torch.testing.assert_close([call(X, mode) for mode in ("twice", "once")], before)
    assert recompiles() == []


def layer(x: Any, activation: str, norm: str) -> Any:
    y = getattr(torch, activation)(x)
    return {"none": y, "l2": y / y.norm(), "max": y / y.abs().max()}[norm]


def test_the_limit_that_is_enough() -> None:
    """The forecast names a limit under which every combination of the values seen is compiled."""
    activations, norms = ("relu", "tanh", "sigmoid"), ("none", "l2", "max")
    call = compiled(layer)
    with compilediag.watch() as seen:
        for activation, norm in (*zip(activations, norms, strict=True), ("relu", "max")):
            call(X, activation, norm)
    (found,) = [item for item in seen.findings if item.rule == "CD151"]
    named = re.match(r"torch\._dynamo\.config\.recompile_limit = (\d+) ", found.fix.caveat or "")
    torch._dynamo.reset()

    def run_all(limit: int) -> None:
        settings = {"recompile_limit": limit, "fail_on_recompile_limit_hit": True}
        with torch._dynamo.config.patch(settings):
            for activation in activations:
                for norm in norms:
                    call(X, activation, norm)

    run_all(int(named[1]))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        run_all(int(named[1]) - 1)
