"""An end of `certify` from outside: where it came, and the points that can be judged by then."""

from pathlib import Path
from typing import Any

import pytest

from compilediag.certify.points import ExecutedState
from compilediag.cli import main
from compilediag.commands import certify
from compilediag.runs.certify.execute import Interrupted, Pair, decide
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.states import States
from compilediag.runs.fix.executions import make_unchanged_states
from compilediag.runs.supervised.run import Program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials import trial
from compilediag.runs.trials.trial import Trial, Trials
from compilediag_harness.wire import RecordingPlan, TrialPlan, VaryingEnded
from tests.support.certified_states import state
from tests.unit.test_certify_judge import BEFORE, CHANGE, make

NOISY = make(line="loss 2.0")
"""What differs may differ by itself: the old state is to be executed once more."""

WHERE = (
    "interrupted in run 2 (the old state once more), 45 s; before it run 1 (the new state), 8.0 s"
)


def _make_pair(*spent: tuple[str, float], **more: Any) -> Pair:
    program = Program(("train.py",), RunOptions(), {}, "/nowhere")
    trials = Trials(program, print, runs=len(spent), spent=list(spent), interrupted=True, **more)
    return Pair(make_unchanged_states({}), CertifyOptions(no_vary=True), trials, program, CHANGE)


BOTH = ("run 1 (the new state)", 8.0), ("run 2 (the old state once more)", 45.0)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (_make_pair(*BOTH), WHERE),
        (_make_pair(BOTH[0]), "interrupted in run 1 (the new state), 8.0 s"),
        (
            _make_pair(BOTH[0], in_calls=True),
            "interrupted in the calls with other inputs of run 1 (the new state), 8.0 s",
        ),
        (_make_pair(), "interrupted before the first run"),
    ],
)
def test_it_is_said_in_which_run_it_came(pair: Pair, said: str) -> None:
    """Nothing can be judged before both states have ended."""
    end = Interrupted(pair)
    assert (str(end), end.certificate) == (said, None)


def _interrupt(pair: Pair, monkeypatch: pytest.MonkeyPatch, after: ExecutedState) -> Interrupted:
    """Ended in the further execution of the old state."""

    def execute(self: Pair, *_: Any, **__: Any) -> None:
        self.trials.interrupted = True
        raise KeyboardInterrupt

    monkeypatch.setattr(Pair, "execute", execute)
    pair.trials.interrupted = False
    with pytest.raises(KeyboardInterrupt):
        decide(pair, BEFORE, after)
    return Interrupted(pair)


def test_points_that_are_known_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a further execution may excuse is no failure."""
    certificate = _interrupt(_make_pair(*BOTH), monkeypatch, NOISY).certificate
    assert certificate is not None
    assert (certificate.verdict, certificate.reason) == ("not decided", WHERE)
    outcomes = {point.name: point.outcome for point in certificate.points}
    assert (outcomes["better"], outcomes["results"]) == ("holds", "undecided")


def test_without_a_further_execution_nothing_is_refused_that_it_may_excuse() -> None:
    """Ctrl-C in the calls with other inputs ended the program in order, and all others."""
    certificate, _, _ = decide(_make_pair(*BOTH, in_calls=True), BEFORE, NOISY)
    assert certificate.verdict == "not decided"
    assert certificate.reason.startswith("interrupted in the calls with other inputs of run 2")


@pytest.mark.parametrize("flag", ["", "--json"])
def test_what_is_known_is_shown(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With the exit code of an interrupt, and no command that needs the folder, which is gone."""
    end = _interrupt(_make_pair(*BOTH), monkeypatch, NOISY)

    def make_proof(*_: Any) -> None:
        raise end

    def select_states(_: CertifyOptions) -> States:
        return make_unchanged_states({})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(certify, "make_proof", make_proof)
    monkeypatch.setattr(certify, "select_states", select_states)
    assert main(["certify", *flag.split(), "--", "train.py"]) == 130
    printed = capsys.readouterr()
    assert WHERE in printed.err
    shown = " ".join(printed.out.split())
    assert ("not decided: interrupted in run 2" if not flag else '"not decided"') in shown
    assert "compilediag show" not in shown


@pytest.mark.parametrize(
    ("made", "vary_s", "in_calls"),
    [
        ((), 10.0, True),
        ((VaryingEnded(9.0, 1.0, (), timed_out=True),), 10.0, True),
        ((VaryingEnded(9.0, 1.0, ()),), 10.0, False),
        ((), 0.0, False),
    ],
)
def test_the_calls_come_when_the_program_is_over(
    made: tuple[VaryingEnded, ...],
    vary_s: float,
    in_calls: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The states of its generators are the last that is recorded of it."""

    def run_trial(*_: Any, **__: Any) -> Trial:
        observed = state(varying_ends=made)
        return Trial("new", observed, "SIGTERM (killed)", "", 1.0, interrupted=True)

    monkeypatch.setattr(trial, "run_trial", run_trial)
    program = Program(("train.py",), RunOptions(), {}, str(tmp_path))
    trials = Trials(program, lambda _: None, quiet=True)
    trials.run("new", "the new state", TrialPlan(recording=RecordingPlan(1, vary_s)), None)
    where = "in the calls with other inputs of run 1" if in_calls else "in run 1"
    assert trials.describe_end().startswith(f"interrupted {where} (the new state), ")
