"""Runs that `measure against-eager` makes, what ends them, and what of its input is refused."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from built_receipt import built, compiled, ended, started, torch_seen

from compilediag.certify.points import ExecutedState
from compilediag.cli import main
from compilediag.commands import against_eager as command
from compilediag.compare import intervals
from compilediag.errors import UsageError
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.comparisons import AgainstEagerSection
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run import CacheUse, Program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials import against_eager as runs
from compilediag.runs.trials import trial as trial_module
from compilediag.runs.trials.against_eager import COMPILED, Pairs, run_pairs
from compilediag.runs.trials.trial import Trial
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import Event, StepsEnded, TrialPlan

pytest.importorskip("scipy", minversion="1.15")


def trial(name: str, step_s: float, steps: int = 40, **changes: Any) -> Trial:
    """A run with these steps, which compiles in its first unless it is eager."""
    ends = tuple(1.0 + step_s * n for n in range(steps))
    events: list[Event] = [started(), torch_seen()]
    events += [compiled("0/0", 1.0, 0, 4.0)] if name == "compiled" else []
    events += [StepsEnded(9.0, 0, "optimizer", ends, (step_s,) * steps)] if steps else []
    events.append(ended())
    observed = ExecutedState(built(events), fold([events]))
    return replace(Trial(name, observed, None, "out.txt", 10.0), **changes)


@dataclass
class Runs:
    """Stands for real runs: what each was made with."""

    made: list[str] = field(default_factory=list[str])
    plans: list[TrialPlan] = field(default_factory=list[TrialPlan])
    limits: list[float | None] = field(default_factory=list["float | None"])
    kept: list[bool] = field(default_factory=list[bool])
    step_s: Mapping[str, float] = field(default_factory=lambda: {"compiled": 0.1, "eager": 0.2})
    changed: Callable[[int, Trial], Trial] = lambda _number, made: made

    def run(
        self,
        _program: Program,
        folder: str,
        name: str,
        plan: TrialPlan,
        timeout_s: float | None,
        *,
        caches: CacheUse,
    ) -> Trial:
        if name not in self.step_s:
            raise UsageError("no run that compares numbers is made up")
        self.made.append(name)
        self.plans.append(plan)
        self.limits.append(timeout_s)
        self.kept.append(caches == "kept")
        number = int(Path(folder).name.partition("-")[0])
        return self.changed(number, trial(name, self.step_s[name]))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Runs:
    stand_in = Runs()
    monkeypatch.setattr(trial_module, "run_trial", stand_in.run)
    return stand_in


def pairs(**changes: Any) -> Pairs:
    program = Program(("train.py",), RunOptions(), {}, "folder")
    return Pairs(program, lambda _: None, quiet=True, **changes)


FIRST = trial("compiled", 0.1)


def ran(**changes: Any) -> Pairs:
    campaign = pairs(**changes)
    run_pairs(campaign, FIRST)
    return campaign


def payoff_of(campaign: Pairs) -> AgainstEagerSection:
    return command._conclude_payoff(campaign, None)  # pyright: ignore[reportPrivateUsage]


def section_in(receipt: Path) -> AgainstEagerSection:
    return read_receipt(str(receipt)).against_eager


def test_both_arms_have_the_same_collectors(made: Runs) -> None:
    """The stance is all that differs; nothing is recorded of outputs, which would cost time."""
    run_pairs(pairs(rounds=2), FIRST)
    assert {replace(plan, stance=None) for plan in made.plans} == {COMPILED}
    assert [plan.stance for plan in made.plans] == ["force_eager", "force_eager", None]
    assert COMPILED.call_seconds
    assert not COMPILED.looks_at_calls


def test_an_eager_run_has_a_limit(made: Runs) -> None:
    """So many times what the compiled one took; a compiled one that of the user only."""
    run_pairs(pairs(rounds=2), FIRST)
    limit = runs.EAGER_TIMES * FIRST.wall_s + runs.EAGER_EXTRA_S
    assert made.limits == [limit, limit, None]


def test_the_users_limit_and_the_budget_are_limits_too(made: Runs) -> None:
    campaign = pairs(rounds=1, budget_s=1e6)
    campaign.program = replace(campaign.program, options=RunOptions(timeout_s=7.0))
    run_pairs(campaign, FIRST)
    assert made.limits == [7.0]


def test_an_eager_run_that_is_ended_at_its_limit_is_the_last(made: Runs) -> None:
    """Fifty times slower: its steps are compared, and no more runs are spent on it."""
    limit = "the time limit of 110 s was reached (killed)"
    made.changed = lambda _number, it: replace(it, timed_out=True, problem=limit, exit_code=137)
    made.step_s = {"compiled": 0.1, "eager": 5.0}
    campaign = ran()
    assert made.made == ["eager"]
    assert not campaign.made[0].eager.whole
    payoff = payoff_of(campaign)
    assert payoff.verdict == "pays"
    assert any("time limit" in note for note in payoff.notes)


@pytest.mark.parametrize("number", [1, 3])
def test_a_run_that_fails_is_one_sentence(made: Runs, number: int) -> None:
    """An eager one that runs out of memory; the compiled one of a later pair. What was made before
    is concluded from."""
    made.changed = lambda index, it: (
        replace(it, problem="OutOfMemoryError: 20 GiB", exit_code=1) if index == number else it
    )
    campaign = ran()
    payoff = payoff_of(campaign)
    if number == 1:
        assert str(payoff.problem).startswith("the eager run failed: OutOfMemoryError: 20 GiB; its")
    else:
        assert payoff.pairs == 1
        assert "1 of 3 pairs: the compiled run failed again: OutOfMemoryError" in payoff.notes[0]


def test_no_more_runs_than_the_budget_has_room_for(made: Runs, monkeypatch) -> None:
    """A run takes ten seconds of the clock."""
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    campaign = ran(budget_s=45.0, started=-10.0)
    assert made.made == ["eager", "eager", "compiled"]
    assert campaign.stopped == "the budget of 45 s has no room for another run"
    assert made.limits == [35.0, 25.0, 15.0]


def test_steps_that_cannot_be_compared_end_it(made: Runs) -> None:
    """What is so in the first pair is so in the others."""
    made.changed = lambda _number, it: replace(it, observed=trial("compiled", 0.1).observed)
    campaign = ran()
    assert made.made == ["eager"]
    assert "the program sets the stance" in str(campaign.stopped)


def test_ctrl_c_in_a_run_ends_all(made: Runs) -> None:
    """The pair that was begun is lost, those before are not."""
    made.changed = lambda number, it: replace(it, interrupted=True) if number == 4 else it
    campaign = ran()
    assert (campaign.interrupted, len(campaign.made)) == (True, 2)


# --- the command ---


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("train.py", "add --yes if nobody can be asked"),
        ("--yes", "say what to run: `compilediag measure against-eager train.py`"),
        ("--yes -- -", "a program on stdin can be read only once"),
        ("--yes --depyf train.py", "--depyf changes the runs that against-eager compares"),
        ("--yes --otlp env train.py", "there is no option --otlp"),
        ("--rounds 0 train.py", "x>=1"),
        ("--budget soon train.py", "--budget must be a time such as 90s, 10m or 1h"),
        ("--yes no_such_file.py", "no_such_file.py"),
    ],
)
def test_one_sentence_for_what_cannot_be_used(typed: str, sentence: str, capsys: Any) -> None:
    assert main(["measure", "against-eager", *typed.split()]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("flag", ["--budget 9m", "--rounds 2", "--yes", "--keep-caches"])
def test_options_of_several_runs_belong_to_them(flag: str, capsys) -> None:
    """A plain run has no use for them."""
    name, *value = flag.split()
    assert main(["run", name, *value, "train.py"]) == 2
    assert f"there is no option {name}" in " ".join(capsys.readouterr().err.split())


def test_scipy_is_missed_before_anything_runs(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(intervals, "import_module", missing)
    with pytest.raises(UsageError, match="measure against-eager"):
        intervals.require_scipy()
    assert main(["measure", "against-eager", "--yes", "train.py"]) == 2
    assert "pip install 'compilediag[stats]'" in capsys.readouterr().err


FirstRuns = Callable[[Trial], Path]


@pytest.fixture
def first_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Runs) -> FirstRuns:
    """The first run is this one; the others are made up too."""
    folder = tmp_path / "run"
    folder.mkdir()
    assert made.made == []

    def begin(first: Trial) -> Path:
        assert first.observed is not None
        seen = first.observed
        outcome = Outcome(
            first.exit_code, str(folder), seen.receipt, str(folder), timeline=seen.timeline
        )
        monkeypatch.setattr(command, "run_first_trial", lambda *_args, **_more: (outcome, first))
        return folder / "receipt.json"

    return begin


def test_the_command_says_whether_it_pays(first_runs: FirstRuns, capsys: Any) -> None:
    """On the screen, and in the receipt on disk; exit code 0 whatever the verdict is."""
    receipt = first_runs(FIRST)
    assert main(["measure", "against-eager", "--keep-caches", "--yes", "train.py"]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "runs train.py 6 times, compiled and eager in turns, and once more to compare" in err
    steps = math.ceil(4.0 / 0.1)
    assert f"against eager: pays after {steps} steps ({steps} to {steps}): 2.00x" in err
    section = section_in(receipt)
    found = section.verdict, section.caches, section.pairs, len(section.runs)
    assert found == ("pays", "kept", 3, 6)


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        (replace(FIRST, problem="ValueError: no data", exit_code=1), 1, "the program does not run"),
        (replace(FIRST, interrupted=True, exit_code=130), 130, "interrupted in the first run"),
        (trial("eager", 0.1), 2, "the program compiled nothing"),
    ],
)
def test_what_the_first_run_may_already_show(first, code, words, first_runs, made, capsys) -> None:
    """No other run is made; the exit code is the program's, or 2."""
    receipt = first_runs(first)
    assert main(["measure", "against-eager", "--yes", "train.py"]) == code
    assert made.made == []
    assert words in " ".join(capsys.readouterr().err.split())
    assert section_in(receipt).verdict == "not_concluded"


def test_an_eager_run_that_fails_gives_two(first_runs: FirstRuns, made: Runs, capsys: Any) -> None:
    """The program itself ran: 2 is that of a comparison that could not be made."""
    first_runs(FIRST)
    made.changed = lambda _number, it: replace(it, problem="killed by SIGKILL", exit_code=137)
    assert main(["measure", "against-eager", "--yes", "train.py"]) == 2
    assert "the eager run failed: killed by SIGKILL" in " ".join(capsys.readouterr().err.split())
