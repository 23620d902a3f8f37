"""Advice beside that for recompiles and graph breaks, followed as its sentence says.

Of every code it is known whether a test runs its advice, and if not, why not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from advice.case import X, compiled  # noqa: E402
from advice.others import ADVICE, Adapted, Advice  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo import compiled_autograd, utils  # noqa: E402

import compilediag  # noqa: E402
from compilediag.diagnosis.codes import RECOMPILES  # noqa: E402
from compilediag.rules.breaks import advice as break_fixes  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs/rules").glob("CD*.md"))

ELSEWHERE = {
    **dict.fromkeys(RECOMPILES, "test_advice.py"),
    **dict.fromkeys(break_fixes.FIXES, "test_rule_pages.py"),
    "CD120": "test_combinations.py",
    "CD154": "test_size_advice.py",
    **dict.fromkeys(("CD611", "CD613", "CD614"), "test_compile_caches.py"),
    "CD621": "test_guard_cost.py",
    **dict.fromkeys(
        ("CD601", "CD602", "CD604", "CD631", "CD641", "CD651"), "test_pages_of_costs.py"
    ),
}
"""Codes whose advice another test of this folder runs."""

_DEVICE = "it is seen on a device only"
_TIMED = "what it is about is seconds, which no test may measure"
_RECORD = "it is about the record of a run, not about the program"
WITHOUT_RUN = {
    "CD304": "it has no advice of its own: remove the cause, which has a finding",
    "CD305": _TIMED,
    "CD306": _TIMED,
    "CD307": _TIMED,
    "CD308": _TIMED,
    "CD401": _DEVICE,
    "CD402": _DEVICE,
    "CD403": _DEVICE,
    "CD404": _DEVICE,
    "CD405": _DEVICE,
    "CD409": _TIMED,
    "CD603": _DEVICE,
    "CD612": "a key changes between two processes: the scenario changing_cache_key",
    "CD902": _RECORD,
    "CD903": _RECORD,
    "CD905": "torch reads the profile when a process starts: the scenario stored_profile",
}
"""Codes whose advice no test of this folder runs, and why."""


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def run(program: Any) -> tuple[list[Any], Any]:
    """What is found, and what the program computes; a call that it returns is made afterwards."""
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    utils.counters.clear()
    with compilediag.watch() as seen:
        result = program()
    if callable(result):
        utils.clear_compilation_metrics()
        result = result()
    return list(seen.findings), result


def has(findings: list[Any], case: Advice) -> bool:
    return any(item.rule == case.code and case.told in item.fix.summary for item in findings)


def are_equal(result: Any, other: Any) -> bool:
    try:
        torch.testing.assert_close(result, other)
    except AssertionError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ADVICE, ids=lambda case: case.name)
def test_followed_literally(case: Advice) -> None:
    """The advice names what to do; done, the finding is gone by torch's count and by ours, and the
    results are right."""
    findings, before = run(case.before)
    assert has(findings, case), [(item.rule, item.fix.summary) for item in findings]
    assert case.mended is None or not case.mended()
    right = before
    if case.right is not None:
        right = case.right()
        assert not are_equal(before, right)
    for number, way in enumerate(case.ways):
        findings, after = run(way)
        assert case.mended is None or case.mended(), number
        left = [item.rule for item in findings if item.severity != "info"]
        assert case.code not in left, number
        torch.testing.assert_close(after, right)


def test_each_state_that_a_line_leaves_is_warmed_up() -> None:
    """The second way of what one line changed together."""
    model = Adapted()
    call = compiled(model)
    for name in ("low", "high"):
        model.choose(name)
        call(X)
    utils.clear_compilation_metrics()
    for name in ("high", "low", "high"):
        model.choose(name)
        assert torch.equal(call(X), model(X))
    assert not utils.get_compilation_metrics()


def test_two_whole_steps_warm_up_compiled_autograd() -> None:
    """CD153: the gradients exist from the second step on, and nothing is captured any more."""
    model = nn.Linear(4, 1)
    step, backward_compiler = torch.compile(model, backend="eager"), torch.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> int:
        before = utils.counters["compiled_autograd"]["captures"]
        loss = step(torch.ones(2, 4)).sum()
        with compiled_autograd._enable(backward_compiler):  # pyright: ignore[reportPrivateUsage]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return utils.counters["compiled_autograd"]["captures"] - before

    captures = [run() for _ in range(5)]
    assert captures[0] == 1
    assert captures[2:] == [0, 0, 0]


def test_every_code_has_a_program_or_a_reason() -> None:
    """A code is run here or elsewhere, or it is known why not; never two of these."""
    here = {case.code for case in ADVICE} - set(ELSEWHERE)
    assert sorted([*here, *ELSEWHERE, *WITHOUT_RUN]) == PAGES


def test_what_is_run_elsewhere_is() -> None:
    """A code named in a test that does not exist would be one that nobody runs."""
    for code in ("CD120", "CD154", "CD601", "CD604", "CD611", "CD613", "CD614"):
        assert code in (Path(__file__).parent / ELSEWHERE[code]).read_text(encoding="utf-8")
