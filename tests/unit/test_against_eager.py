"""Does compiling pay: what of a run is steady, what pairs of runs show, how it is said."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from built_receipt import CWD, built, compiled, ended, started, torch_seen

from compilediag.compare.against_eager import (
    MIN_STEPS,
    Arm,
    ArmPair,
    Work,
    build_arm,
    conclude,
    find_slower_than_eager,
    make_not_concluded,
)
from compilediag.compare.diff import compare
from compilediag.diagnosis.findings import make_place
from compilediag.receipt.assemble import extend_receipt
from compilediag.receipt.contradictions import find_contradictions
from compilediag.receipt.schema.comparisons import AgainstEagerSection, ArmRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.timeline import Timeline, fold
from compilediag.views.measured import describe_against_eager
from compilediag.views.style import RenderOptions
from compilediag.views.summary import render_markdown
from compilediag.views.verdict import render
from compilediag_harness.wire import CallsTimed, Event, GraphBroke, Location, StepsEnded

pytest.importorskip("scipy", minversion="1.15")

CELL = Location(f"{CWD}/model.py", 40, "cell")


def arm(step_s: float, steps: int = 60, noise: float = 0.0, seed: int = 0, **more: Any) -> Arm:
    """A run with these step times; every step but the first two is steady."""
    chance = random.Random(seed)
    walls = {n: Work(step_s * (1 + noise * chance.gauss(0, 1))) for n in range(2, steps)}
    made: dict[str, Any] = {"steps": walls, "finished": steps, "compile_s": 30.0, "compiles": 2}
    return Arm(**{**made, "compiled_steps": (0,), **more})


def eager(step_s: float, steps: int = 60, noise: float = 0.0, seed: int = 1, **more: Any) -> Arm:
    return arm(
        step_s,
        steps,
        noise,
        seed,
        **{"compiles": 0, "compile_s": 0.0, "compiled_steps": (), **more},
    )


def pairs(compiled_s: float, eager_s: float, count: int = 3, noise: float = 0.02) -> list[ArmPair]:
    return [
        ArmPair(arm(compiled_s, noise=noise, seed=n), eager(eager_s, noise=noise, seed=100 + n))
        for n in range(count)
    ]


def calls(seconds: float, count: int = 10, steps: range = range(2, 60)) -> dict[Location, Any]:
    return {CELL: {step: Work(seconds * count, count) for step in steps}}


# --- what is steady ---


def timeline(
    walls: Sequence[float], compiles: Sequence[int], source: str = "optimizer", **more: Any
) -> Timeline:
    """A run whose steps took so long, and which compiled in some of them."""
    ends = tuple(1.0 + sum(walls[: n + 1]) for n in range(len(walls)))
    events: list[Event] = [started(), torch_seen()]
    events += [compiled(f"0/{n}", ends[step], step, 0.5) for n, step in enumerate(compiles)]
    events += [
        StepsEnded(ends[-1], 0, source, ends, tuple(walls)),
        *more.get("events", ()),
        ended(),
    ]
    return fold([events])


def test_a_step_that_only_the_process_ended_is_not_steady() -> None:
    """The last of those that calls mark has the end of the program in it."""
    assert max(build_arm(timeline([0.1] * 8, [0], source="call")).steps) == 6
    assert max(build_arm(timeline([0.1] * 8, [0])).steps) == 7


def test_steps_of_another_kind_are_left_out() -> None:
    """Single calls count as steps until an optimizer shows that a step is more."""
    first = StepsEnded(1.4, 0, "call", (1.1, 1.2, 1.3, 1.4), (0.1,) * 4)
    then = StepsEnded(9.0, 4, "optimizer", (3.0, 5.0, 7.0, 9.0), (2.0,) * 4)
    found = build_arm(fold([[started(), torch_seen(), first, then, ended()]]))
    assert sorted(found.steps) == [5, 6, 7]
    assert found.finished == 8


def test_calls_are_those_of_steady_steps() -> None:
    """By callable; none where a device was in use, since a call may return early there."""
    timed = CallsTimed(5.0, (CELL,), (0, 0, 0), (0, 3, 4), (1, 10, 10), (9.0, 0.5, 0.6))
    found = build_arm(timeline([0.1] * 8, [0], events=(timed,)))
    assert found.calls == {CELL: {3: Work(0.5, 10), 4: Work(0.6, 10)}}
    on_device = replace(timed, on_device=True)
    assert build_arm(timeline([0.1] * 8, [0], events=(on_device,))).calls == {}


def test_compile_seconds_that_were_not_measured_are_none() -> None:
    """Where torch's metrics were not seen."""
    seen = replace(torch_seen(), hooks={"metrics_rows": False})
    assert build_arm(fold([[started(), seen, ended()]])).compile_s is None


# --- what pairs show ---


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (pairs(0.2, 0.1), "does_not_pay"),
        (pairs(0.1, 0.103, noise=0.3), "not_resolved"),  # three per cent in a noise of thirty
        (pairs(0.1, 0.1, noise=0.002), "same"),  # within a per cent, known only in little noise
        # Two that agree by chance are no evidence: both say 0.5x or less, and differ by five.
        ([ArmPair(arm(0.1), eager(0.01)), ArmPair(arm(0.1), eager(0.05))], "not_resolved"),
    ],
)
def test_it_does_not_pay(made: list[ArmPair], verdict: str) -> None:
    """No break-even then."""
    found = conclude(made)
    assert (found.verdict, found.break_even) == (verdict, None)


def test_equal_programs_seldom_seem_to_pay() -> None:
    """Runs that differ by a per cent as wholes, besides the noise of their steps."""
    chance = random.Random(5)
    verdicts = [
        conclude(
            [
                ArmPair(
                    arm(0.1 * (1 + 0.03 * chance.gauss(0, 1)), noise=0.02, seed=100 * trial + n),
                    eager(0.1 * (1 + 0.03 * chance.gauss(0, 1)), noise=0.02, seed=50 + trial + n),
                )
                for n in range(3)
            ]
        ).verdict
        for trial in range(40)
    ]
    wrong = [each for each in verdicts if each in ("pays", "does_not_pay")]
    assert len(wrong) <= 2


def test_the_interval_holds_what_each_pair_shows() -> None:
    """Stretches of one process have more in common than two processes."""
    found = conclude([*pairs(0.1, 0.2, count=2, noise=0.001), ArmPair(arm(0.1), eager(0.12))])
    assert found.ratio.low <= 1.2 + 1e-9
    assert found.ratio.high >= 2.0 - 0.01


def test_one_pair_shows_a_great_effect_only() -> None:
    """Its interval is wider, and a note says why."""
    twice, fifty = (conclude(pairs(0.1, s, count=1)) for s in (0.2, 5.0))
    assert (twice.verdict, fifty.verdict) == ("not_resolved", "pays")
    assert any("one pair" in note for note in twice.notes)


def test_one_slow_step_changes_nothing() -> None:
    """It spoils its own stretch, and the median stretch is another."""
    made = pairs(0.1, 0.2)
    steps = {**made[0].compiled.steps, 30: Work(60.0)}
    found = conclude([made[0]._replace(compiled=replace(made[0].compiled, steps=steps)), *made[1:]])
    assert found.ratio.middle == pytest.approx(2.0, rel=0.02)


def test_steps_that_were_not_looked_into_come_first() -> None:
    """Where both arms have enough of them: nothing of ours is in their time."""
    brief = frozenset(range(100, 200))
    one = arm(0.001, 200, unsampled=brief)
    other = eager(0.002, 200, unsampled=brief)
    found = conclude([ArmPair(one, other)] * 2)
    assert found.steps == 200
    assert not any("brief" in note for note in found.notes)
    sampled = conclude([ArmPair(replace(one, unsampled=frozenset()), other)] * 2)
    assert sampled.steps == 2 * 198
    assert any("brief" in note for note in sampled.notes)


def test_compile_seconds_that_are_not_known_give_no_break_even() -> None:
    """It pays all the same."""
    made = [pair._replace(compiled=replace(pair.compiled, compile_s=None)) for pair in pairs(1, 2)]
    found = conclude(made)
    assert (found.verdict, found.break_even, found.compile_s) == ("pays", None, None)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (ArmPair(arm(1), eager(1, compiles=3)), "compiled 3 times: the program sets the stance"),
        (ArmPair(arm(1, 0), eager(1)), "no step was seen in the compiled run: mark steps"),
        (
            ArmPair(arm(1), eager(1, 0, whole=False)),
            "eager run until it was ended at its time limit",
        ),
        (ArmPair(arm(1, 60), eager(1, 90)), "60 steps and the eager one 90"),
        (
            ArmPair(arm(1, 5), eager(1, 5)),
            f"3 steady steps in both runs, and {MIN_STEPS} are needed",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(pair: ArmPair, words: str) -> None:
    """And no ratio."""
    found = conclude([pair])
    assert (found.verdict, found.ratio) == ("not_concluded", None)
    assert words in str(found.problem)
    assert "\n" not in str(found.problem)


def test_an_eager_run_that_was_ended_is_compared_as_far_as_it_came() -> None:
    """Fifty times slower: ten steady steps within the limit show it."""
    found = conclude([ArmPair(arm(0.1), eager(5.0, steps=12, whole=False))])
    assert found.verdict == "pays"
    assert found.steps == 10
    assert any("ended at its time limit, after 12 steps" in note for note in found.notes)


def test_a_pair_that_cannot_be_compared_is_left_out_and_named() -> None:
    """The others are concluded from."""
    found = conclude([*pairs(0.1, 0.2), ArmPair(arm(0.1, 5), eager(0.2, 5))])
    assert (found.verdict, found.pairs) == ("pays", 3)
    assert found.notes[0].startswith("1 of 4 pairs left out: 3 steady steps")


def test_late_compiles_are_named() -> None:
    """A program that compiles lazily at step 30."""
    late = ArmPair(arm(1, compiled_steps=(0, 30)), eager(2))
    assert any("(step 30)" in note for note in conclude([late] * 3).notes)


DIFFERENCE = "cell: [0] differs by 0.3 at call 0"


def test_outputs_that_differ_are_the_verdict() -> None:
    """Whatever the seconds are."""
    made = pairs(0.2, 0.1)
    found = conclude(made, DIFFERENCE)
    assert (found.verdict, found.break_even) == ("outputs_differ", None)
    assert found.problem == DIFFERENCE
    assert conclude(made).verdict == "does_not_pay"


# --- callables ---


def with_calls(compiled_s: float, eager_s: float, *, step_s: float = 0.1) -> list[ArmPair]:
    return [
        ArmPair(
            arm(step_s, calls=calls(compiled_s), noise=0.01, seed=n),
            eager(step_s, calls=calls(eager_s), noise=0.01, seed=10 + n),
        )
        for n in range(3)
    ]


def test_callables_are_compared_by_call() -> None:
    """Ten calls a step."""
    (cost,) = conclude(with_calls(0.004, 0.001)).callables
    assert (cost.function.function, cost.calls) == (CELL.function, 10)
    assert cost.compiled_s == pytest.approx(0.004)
    assert cost.ratio.middle == pytest.approx(0.25)


def test_callables_that_are_called_another_number_of_times_are_not_compared() -> None:
    """It is not the same work then."""
    made = [
        ArmPair(arm(0.1, calls=calls(0.004, 10)), eager(0.1, calls=calls(0.001, 20)))
        for _ in range(2)
    ]
    assert conclude(made).callables == ()


def test_cd631_names_the_callable() -> None:
    """With both times in its evidence, and nothing where the outputs differ."""
    made = with_calls(0.004, 0.001)
    (found,) = find_slower_than_eager(fold([[]]), conclude(made))
    assert (found.rule, found.location) == ("CD631", make_place(CELL))
    assert found.title == "cell is slower compiled than eager: 0.25x"
    assert found.evidence["eager_call_s"] == pytest.approx(0.001)
    assert [*find_slower_than_eager(fold([[]]), conclude(made, DIFFERENCE))] == []
    assert [*find_slower_than_eager(fold([[]]), make_not_concluded("no step"))] == []


def test_cd631_is_silent_where_little_is_lost() -> None:
    """Four per cent of a step; and where the callable is faster."""
    assert [*find_slower_than_eager(fold([[]]), conclude(with_calls(0.0005, 0.0001)))] == []
    assert [*find_slower_than_eager(fold([[]]), conclude(with_calls(0.001, 0.004)))] == []


@pytest.mark.parametrize(
    ("seconds", "broken", "words"),
    [
        (0.0004, False, "compile the function that calls it"),
        (0.004, False, "do not compile it: put torch.compiler.disable"),
        (0.004, True, "remove its 1 graph break first"),
    ],
)
def test_cd631_says_what_to_change(seconds: float, broken: bool, words: str) -> None:
    """Brief calls: a larger graph. Graph breaks: these first."""
    site = GraphBroke(2.0, 0, "0/0_1", 0, f"Graph break in user code at {CWD}/helper.py:3\nx\n")
    events = [started(), torch_seen(), compiled("0/0", 2.0, 0, 1.0, frame=CELL)]
    run = fold([[*events, *([site] if broken else []), ended()]])
    assert len(run.breaks) == broken
    (found,) = find_slower_than_eager(run, conclude(with_calls(seconds, seconds / 4, step_s=0.02)))
    assert words in found.fix.summary


def test_cd631_is_about_the_steps_where_no_callable_is_why() -> None:
    """A backward that is slow, for one."""
    (found,) = find_slower_than_eager(fold([[]]), conclude(pairs(0.2, 0.1)))
    assert found.location is None
    assert found.title.startswith("steps are slower compiled than eager: 0.5x")


# --- receipt and views ---


def sentence(payoff: AgainstEagerSection) -> str:
    return describe_against_eager(receipt_with(payoff).against_eager)


def receipt_with(payoff: AgainstEagerSection) -> Receipt:
    runs = (
        ArmRecord(arm="compiled", pair=0, wall_s=9.5, steps=60),
        ArmRecord(arm="eager", pair=0, wall_s=12.0, steps=60, problem="killed by SIGKILL"),
    )
    timeline, section = fold([[started()]]), msgspec.structs.replace(payoff, runs=runs)
    return extend_receipt(
        built(), timeline, find_slower_than_eager(timeline, payoff), against_eager=section
    )


def test_the_receipt_has_the_section_and_the_findings() -> None:
    """Paths are those of the receipt, ids go on, nothing contradicts itself."""
    made = receipt_with(conclude(with_calls(0.004, 0.001)))
    section = made.against_eager
    assert section.callables[0].function.file == "model.py"
    assert section.runs[1].problem == "killed by SIGKILL"
    assert made.findings[-1].rule == "CD631"
    assert made.findings[-1].id == f"F{len(made.findings)}"
    assert find_contradictions(made) == ()
    assert msgspec.json.decode(msgspec.json.encode(made), type=Receipt) == made


def test_a_secret_in_a_problem_is_redacted() -> None:
    """The sentence quotes an exception of the program."""
    secret = "hunter2-hunter2-hunter2"
    payoff = make_not_concluded(f"the eager run failed: KeyError: {secret}")
    made = extend_receipt(built(), fold([[started()]]), (), (secret,), against_eager=payoff)
    assert secret not in str(made.against_eager.problem)


@pytest.mark.parametrize(
    ("payoff", "words"),
    [
        (conclude(pairs(0.1, 0.2, noise=0)), "pays after 300 steps (300 to 300): 2.00x"),
        (conclude(pairs(0.2, 0.1, noise=0)), "does not pay: 0.50x (0.50x to 0.50x) as fast"),
        (conclude(pairs(0.1, 0.1, noise=0)), "does not pay: as fast as eager within 1 %"),
        (
            conclude(pairs(0.1, 0.103, noise=0.3)),
            "not resolved, the noise is wider than the effect: ",
        ),
        (conclude(pairs(0.1, 0.2), DIFFERENCE), "not concluded, since the"),
        (
            make_not_concluded("the eager run failed: boom"),
            "not concluded: the eager run failed: boom",
        ),
    ],
)
def test_the_verdict_is_one_line(payoff: AgainstEagerSection, words: str) -> None:
    """On the screen and in Markdown."""
    made = receipt_with(payoff)
    assert words in describe_against_eager(made.against_eager)
    assert words in " ".join(render(made).split())
    assert "**Against eager:**" in render_markdown(made)


def test_an_interval_without_an_end_worth_writing() -> None:
    """Two pairs that have nothing in common: torch runs on a busy machine look like that."""
    made = [ArmPair(arm(0.1), eager(0.01)), ArmPair(arm(0.1), eager(5.0))]
    assert "x to over 1,000x); more pairs of runs (--rounds 4)" in sentence(conclude(made))


def test_a_run_too_short_to_pay_says_so() -> None:
    """It has 60 steps."""
    assert sentence(conclude(pairs(0.1, 0.2, noise=0))).endswith("; the run has 60")


def test_diff_shows_the_ratio_of_both() -> None:
    """As a measurement, which no gate judges."""
    before, after = (receipt_with(conclude(pairs(0.1, s, noise=0))) for s in (0.2, 0.3))
    change = {each.name: each for each in compare(before, after).numbers}["times_as_fast_as_eager"]
    assert (change.before, change.after) == (pytest.approx(2.0), pytest.approx(3.0))


def test_hostile_text_is_no_markup() -> None:
    """The problem quotes the program."""
    made = receipt_with(make_not_concluded("\x1b[31m<b>@all</b> `x`"))
    assert "\x1b" not in render(made, RenderOptions(width=80))
    assert "<b>" not in render_markdown(made)
