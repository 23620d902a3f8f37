"""Forecasts: what is armed, how near the limit is, what is past it; none of it after the fact.

What a plain finding says, recorded runs show: armed_guard, compiled_autograd.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from timelines import FILE, at_limit, attempt, false_guard, hazards, process, recompile
from timelines import timeline as run_of

from compilediag.diagnosis.findings import Finding, make_call_record
from compilediag.rules.limits import find_armed_guards, find_limit_hits, find_variant_forecasts
from compilediag.rules.sizes.lines import find_violated_constraints
from compilediag.rules.values import find_autograd_recaptures
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location, UserCall, WarningSeen

FORWARD = attempt("0/0")
VIOLATIONS = {
    "2.7.1": (
        "Constraints violated (L['x'].size()[0])!\n  - Not all values of RelaxedUnspecConstraint("
        "L['x'].size()[0]) are valid because L['x'].size()[0] was inferred to be a constant (4)."
    ),
    "2.13.0": (
        "Constraints violated (L['x'].size()[0])!\n  - You marked L['x'].size()[0] as dynamic but "
        "your code specialized it to be a constant (4)."
    ),
    "2.15.0": (
        "Not all values of L['x'].size()[0] = L['x'].size()[0] in the specified range "
        "L['x'].size()[0] <= 8 satisfy the generated guard 2 <= L['x'].size()[0] <= 5"
    ),
}


def found(rule: Callable[[Timeline], Iterable[Finding]], run: Timeline) -> list[Finding]:
    return list(rule(run))


def test_several_checks_of_one_variable_are_one_cause() -> None:
    """Consequences fall away as they do for a recompile that happened."""
    guards = [
        false_guard("L['v']", "len(L['v']) == 1", leaf="LENGTH_CHECK", expected=None, actual=None),
        false_guard("L['v'][0]", "L['v'][0] == 2"),
    ]
    (finding,) = found(find_armed_guards, run_of([FORWARD], risk_checks=(hazards(guards),)))
    assert finding.evidence["cause"] == "CD108"


def test_one_attribute_of_several_layers_is_one_finding() -> None:
    """As hooks that are set on every layer, and taken away after the calls that need them."""
    hooks = [
        false_guard(
            f"L['self']._modules['{layer}']._forward_hooks",
            f"len(L['self']._modules['{layer}']._forward_hooks) == 1",
            leaf="DICT_LENGTH",
            expected="1 key",
            actual="0 keys",
        )
        for layer in ("key", "value", "out")
    ]
    (finding,) = found(find_armed_guards, run_of([FORWARD], risk_checks=(hazards(hooks),)))
    assert (finding.variable, finding.evidence["together"]) == (
        "key._forward_hooks",
        ["value._forward_hooks", "out._forward_hooks"],
    )


def test_no_forecast_of_what_happened() -> None:
    """A frame past the limit is CD152 only."""
    run = run_of(at_limit(8))
    assert found(find_variant_forecasts, run) == []
    assert len(found(find_limit_hits, run)) == 1


def string_flag(name: str, expected: str, actual: str, step: int) -> Compile:
    guard = false_guard(
        f"L['{name}']", f"L['{name}'] == {expected}", expected=expected, actual=actual
    )
    compile_id = f"0/{step}"
    cause = recompile(compile_id, step=step, guards=(guard,))
    return attempt(compile_id, kind="recompile", step=step, cause=cause)


def test_the_limit_raised() -> None:
    """With `fullgraph=True` no call runs eager: torch raises."""
    timeline = run_of(at_limit(8))
    frames = tuple(replace(frame, raised_at_limit=True) for frame in timeline.frames)
    (finding,) = found(find_limit_hits, replace(timeline, frames=frames))
    assert (
        finding.title == "forward hit the recompile limit (8): raises (fullgraph=True) since step 8"
    )


ARMED = hazards([false_guard()])
PAST_LIMIT = [string_flag("n", str(n), str(n + 1), n) for n in range(1, 10)]
MADE = attempt("0/0", where=Location("<string>", 2, "__init__"))
FILLED = false_guard(
    "L['self']", "len(L['self']) != 0", leaf="LENGTH_CHECK", expected="0 keys", actual="3 keys"
)
UNSUPPORTED = attempt("0/0", kind="failed", fail_type="Unsupported", fail_reason="Tensor.item")


@pytest.mark.parametrize(
    ("rule", "run"),
    [
        # A guard that is true again at the last look; a look given up after its time budget.
        (find_armed_guards, run_of([FORWARD], risk_checks=(ARMED, hazards([], step=1)))),
        (find_armed_guards, run_of([FORWARD], risk_checks=(replace(ARMED, skipped="over 50 ms"),))),
        # A frame that runs eager for good never recompiles, whatever its guards say.
        (find_armed_guards, run_of(at_limit(8), risk_checks=(replace(ARMED, step=9),))),
        # What a constructor fills: `ModelOutput` of transformers has keys after each call.
        (find_armed_guards, run_of([MADE], risk_checks=(hazards([FILLED], where=MADE.frame),))),
        # Eight first compiles of eight isolated regions share a frame id and no limit.
        (find_variant_forecasts, run_of([attempt(f"0/{n}") for n in range(8)])),
        # More variants than the limit: it was lifted.
        (find_variant_forecasts, run_of([FORWARD, *PAST_LIMIT])),
        (find_violated_constraints, run_of([UNSUPPORTED])),
    ],
)
def test_silent(rule: Callable[[Timeline], Iterable[Finding]], run: Timeline) -> None:
    assert found(rule, run) == []


def captures(*steps: int) -> list[Compile]:
    where = Location("<eval_with_key>.3", 4, "forward")
    return [
        attempt(f"!{n}/{n}/0", step=step, where=where, seconds=0.5) for n, step in enumerate(steps)
    ]


def test_compiled_autograd() -> None:
    """The second step captures once more; a third capture is a change of the backward graph."""
    assert found(find_autograd_recaptures, run_of(captures(0))) == []
    (normal,) = found(find_autograd_recaptures, run_of(captures(0, 1)))
    assert (normal.severity, normal.count) == ("info", 1)
    (more,) = found(find_autograd_recaptures, run_of(captures(0, 1, 5)))
    assert (more.severity, more.count, more.steps, more.cost_s) == ("warning", 2, (1, 5), 1.0)


def test_the_call_of_backward_stands_on_captures() -> None:
    """The captured graph is generated code: the program's own line is where it called backward."""
    call = UserCall(FILE, 31, "<module>", "loss.backward()")
    generated = Location("<eval_with_key>.1", 4, "forward")
    made = [
        replace(attempt(f"!{n}/{n}/0", where=generated, step=n), entered_at=call) for n in range(3)
    ]
    (finding,) = found(find_autograd_recaptures, run_of(made))
    assert (finding.location, finding.entered_at) == (None, make_call_record(call))


def test_compiled_autograd_misses_in_the_log() -> None:
    """Where no compile shows it, torch's own message does."""
    text = "Cache miss due to new autograd node: SigmoidBackward0 (NodeCall 2) with key size 38"
    missed = tuple(
        WarningSeen(1.0, step, "", "torch._dynamo.compiled_autograd", text) for step in range(3)
    )
    (finding,) = found(find_autograd_recaptures, run_of([FORWARD], warnings=missed))
    assert (finding.confidence, finding.count, finding.cost_s) == ("text", 3, None)


@pytest.mark.parametrize("text", VIOLATIONS.values(), ids=VIOLATIONS)
def test_violated_constraints(text: str) -> None:
    """Every wording is known by itself; recorded runs have the type of the exception as well."""
    failed = attempt("0/0", kind="failed", fail_type="UserError", fail_reason=text)
    (finding,) = found(find_violated_constraints, run_of([failed]))
    assert (finding.rule, finding.variable) == ("CD154", "x.size()[0]")


def test_a_violation_that_only_ended_the_process() -> None:
    """Without a row the exception that ended the program shows it, once."""
    ended = process(failure=f"ConstraintViolationError: {VIOLATIONS['2.13.0']}")
    (finding,) = found(find_violated_constraints, Timeline(processes=(ended,)))
    assert finding.location is None
    both = run_of(
        [attempt("0/0", kind="failed", fail_type="ConstraintViolationError", fail_reason="x")],
        processes=(ended,),
    )
    assert len(found(find_violated_constraints, both)) == 1
