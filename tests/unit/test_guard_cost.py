"""CD621 and what it stands on: guards of a frame, how often it runs in a step, the step."""

from collections.abc import Iterable
from typing import Any

import pytest
from built_receipt import CWD, FRAME, built, compiled, ended, started, torch_seen

from compilediag.diagnosis.findings import make_place
from compilediag.rules.costs import MIN_GUARDS, find_expensive_guards
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness import wire

MODEL = wire.Location(FRAME.file, FRAME.line, "Net.forward")
READ = wire.Location(f"{CWD}/model.py", 31, "forward")
STEPS = 10


def guards(
    eval_us: float | None = 200.0, compile_id: str = "0/0", **more: Any
) -> wire.GuardsEvaluated:
    values: dict[str, Any] = {
        "kinds": ("TYPE_MATCH", "EQUALS_MATCH"),
        "counts": (900, 100),
        "lines": (READ,),
        "line_counts": (950,),
        "evaluated": 1000,
        "in_python": 1,
        "python_texts": ("hooks ids == None",),
        **more,
    }
    return wire.GuardsEvaluated(0.4, 0, compile_id, 0, eval_us, **values)


def events(
    *found: wire.GuardsEvaluated,
    step_s: float = 0.002,
    calls: int = 1,
    runs: int = 1,
    more: Iterable[wire.Event] = (),
) -> list[wire.Event]:
    """Ten steps of two milliseconds after one that compiles; each calls the model so often, and
    each call runs the frame's graph so often."""
    ends = tuple(1.0 + number * step_s for number in range(STEPS + 1))
    at = tuple(end - step_s / 2 for end in ends[1:] for _ in range(calls))
    made = wire.CompiledCallsMade(
        t=3.0,
        numbers=(0,),
        functions=(MODEL,),
        shapes=("[8]",),
        samples=(8,),
        elements=(8,),
        callables=(0,),
        shape_places=(0,),
        counts=(len(at),),
        order=(0,) * len(at),
        at=at,
    )
    warm = wire.WarmCallsTimed(3.0, (MODEL,), (4,), (0,), (FRAME,), (4 * runs,))
    ids = dict.fromkeys(item.compile_id for item in found)
    return [
        started(),
        torch_seen(),
        *found,
        *(compiled(each, 0.5, 0, 0.4) for each in ids),
        wire.StepsEnded(3.0, 0, "optimizer", ends, (1.0, *(step_s,) * STEPS)),
        made,
        *([warm] if runs else []),
        *more,
        ended(),
    ]


def run(*found: wire.GuardsEvaluated, **more: Any) -> Timeline:
    return fold([events(*found, **more)], user_roots=(CWD,))


def test_guards_that_take_a_tenth_of_a_step() -> None:
    """At the frame; modules are skipped first, checks dropped last."""
    (found,) = find_expensive_guards(run(guards()))
    assert found.title == "guards take 200 us of each 2.0 ms step (10%): 1,000 of forward"
    assert found.location == make_place(FRAME)
    assert found.count == STEPS
    assert found.cost_s == pytest.approx(200e-6 * STEPS)
    ways = found.fix.summary.split("; or ")
    assert "use_recursive_dict_tags_for_guards" in ways[0]
    assert "skip_guard_eval_unsafe=True" in ways[1]
    assert "skip_guard_on_all_nn_modules_unsafe" in ways[2]
    assert found.evidence["kinds"] == {"TYPE_MATCH": 900, "EQUALS_MATCH": 100}
    assert found.evidence["python_guards"] == ["hooks ids == None"]


def test_calls_and_runs_of_a_step_multiply() -> None:
    """Two calls a step, each of which runs the frame twice."""
    (found,) = find_expensive_guards(run(guards(40.0), calls=2, runs=2))
    assert found.evidence["us_per_step"] == pytest.approx(160.0)


@pytest.mark.parametrize(
    ("timeline", "why"),
    [
        (run(guards(90.0)), "a twentieth is not reached"),
        (run(guards(evaluated=MIN_GUARDS - 1)), "few guards"),
        (run(guards(None)), "not evaluated"),
        (run(guards(), runs=0), "no warm call was seen"),
        (run(guards(200.0), guards(20.0, "0/1")), "the other compile's guards take less"),
    ],
)
def test_silent(timeline: Timeline, why: str) -> None:
    """Where the cost is small, or not known."""
    assert list(find_expensive_guards(timeline)) == [], why


def test_what_was_not_measured_is_null() -> None:
    """An older record, and a trace, have none of it."""
    receipt = built([started(), torch_seen(), compiled("0/0", 0.5, 0, 0.4), ended()])
    assert receipt.compile.guards is None
    receipt = built(events(guards(None)))
    assert receipt.compile.guards.us_per_step is None
    assert receipt.compile.guards.frames[0].eval_us is None
