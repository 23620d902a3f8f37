"""Which runs a campaign makes, and what is known when it is stopped."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.diagnosis.codes import UNCHANGEABLE
from compilediag.fixes.proof_types import FindingResult, ListedChanges, ObservedRun
from compilediag.receipt.file import read_receipt, write_receipt
from compilediag.receipt.proofs import explain_missing_proof
from compilediag.receipt.schema.compiles import (
    CandidateRecord,
    FindingRecord,
    FixRecord,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import candidates as of_finding
from compilediag.rules.changes import NEEDS_LIBCST, Edit, EditImpossible, ProgramChange
from compilediag.runs.fix.campaign import Campaign, run_campaign
from compilediag.runs.fix.results import NAME, build_fix_json, format_env, save_results
from compilediag.runs.supervised.run import Program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials import trial as trial_module
from compilediag.runs.trials.trial import Trial, choose_campaign_folder
from compilediag.views.fix import render_candidates, render_fixes
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import TrialPlan
from tests.support.built_receipt import built
from tests.unit.test_fix_certificate import again, cause, finding, output, receipt, run

SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"


def with_candidates(item: FindingRecord, *values: str) -> FindingRecord:
    candidates = tuple(
        CandidateRecord(kind="environment", setting=SOURCES, value=value, risk="slower")
        for value in values
    )
    return msgspec.structs.replace(item, fix=FixRecord(summary="", how="", candidates=candidates))


FIRST = with_candidates(finding(), "L['bad']", "L['n']")
SECOND = with_candidates(finding(number="F2", variable="m"), "L['m']")
BEFORE = receipt(again(1, cause()), again(2, cause("m", "F2")), findings=(FIRST, SECOND))


BAD, N, M = (f"L['{name}']" for name in ("bad", "n", "m"))


class Runs:
    """Stands for real runs: each removes the causes whose sources are in the variable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.events = BEFORE.compile.events
        self.random = False
        self.fails_on: dict[str, str] = {}
        self.stop_at = 99
        self.together_fails = False
        self.need_each_other = ""
        self.follows = ("", "")
        monkeypatch.setattr(trial_module, "run_trial", self.run)

    def run(
        self,
        program: Program,
        number: int,
        name: str,
        plan: TrialPlan,
        variables: Mapping[str, str],
        timeout_s: float | None,
        **_: bool,
    ) -> Trial:
        self.made.append(name)
        self.timeout_s = timeout_s
        if number == self.stop_at:
            raise KeyboardInterrupt
        values = variables.get(SOURCES, "")
        left = [event for event in self.events if f"L['{event.causes[0].variable}']" not in values]
        name_of_follower, needed = self.follows
        gone = all(f"'{each}'" in values for each in needed)
        left = [e for e in left if e.causes[0].variable != name_of_follower]
        left += [e for e in self.events if e.causes[0].variable == name_of_follower and not gone]
        if self.need_each_other and not all(f"'{name}'" in values for name in self.need_each_other):
            needing = {*self.need_each_other}
            left = [e for e in self.events if e.causes[0].variable in needing or e in left]
        if self.together_fails and "n" in values and "m" in values:
            left = list(self.events)
        value = float(number) if self.random else 1.0
        problems = (why for source, why in self.fails_on.items() if source in values)
        seen = ObservedRun(receipt(*left), run(value=value), next(problems, None))
        return Trial(name, seen, seen.problem, f"{number}.txt", 2.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The findings have the candidates that they name, and no others."""
    monkeypatch.setattr(of_finding, "_MAKERS", ())
    return Runs(monkeypatch)


def campaign(of: Receipt = BEFORE, **more: Any) -> Campaign:
    program = Program(("train.py",), RunOptions(), {}, "/nowhere")
    return Campaign(program, lambda text: None, receipt=of, wanted=of.findings, **more)


def proofs(results: tuple[FindingResult, ...]) -> list[str | None]:
    return [item.proof.change.line if item.proof else None for item in results]


def line(*values: str) -> str:
    return f'export {SOURCES}="{",".join(values)}"'


def screen(*fixes: FindingResult) -> str:
    return render_fixes(BEFORE, fixes, [], [], [], RenderOptions())


def test_each_alone_then_together_then_again(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    assert runs.made == [
        "the program as it is",
        "eager, for its results",
        line("L['bad']"),
        line("L['n']"),
        line("L['m']"),
        "all of them together",
        "all of them together, again",
    ]
    assert proofs(results) == [line("L['n']"), line("L['m']")]
    assert [each.certificate.holds for each in results[0].tried] == [False, True]
    assert results[0].tried[1].certificate.runs == 3
    assert format_env(made) == [line("L['n']", "L['m']")]
    assert runs.timeout_s == 4 * 2.0 + 60


def test_what_does_not_go_together_is_proved_alone(runs: Runs) -> None:
    runs.together_fails = True
    made = campaign()
    results = run_campaign(made)
    assert runs.made[-3:] == ["all of them together", f"again: {line(N)}", f"again: {line(M)}"]
    assert proofs(results) == [line("L['n']"), line("L['m']")]
    assert format_env(made) == []
    assert made.notes[0].startswith("with all changes together finding 1 is refused: ")
    assert "do not go together" in made.notes[1]


def test_a_failing_trial_is_a_result(runs: Runs) -> None:
    runs.fails_on = {"L['bad']": "timed out", "L['n']": "RuntimeError: no"}
    results = run_campaign(campaign())
    assert proofs(results) == [None, line("L['m']")]
    reasons = [each.certificate.reason for each in results[0].tried]
    assert reasons[:2] == ["does not run: timed out", "does not run: RuntimeError: no"]


def test_a_random_program_is_run_no_more(runs: Runs) -> None:
    runs.random = True
    made = campaign()
    assert proofs(run_campaign(made)) == [None, None]
    assert len(runs.made) == 3
    assert "results differ between two unchanged runs" in made.notes[0]


@pytest.mark.parametrize(
    ("problem", "note"),
    [
        ("RuntimeError: no GPU", "does not run: RuntimeError: no GPU"),
        ("EOFError: EOF when reading a line", "EOF when reading a line (its input is empty here)"),
    ],
)
def test_a_program_that_fails_is_run_no_more(runs: Runs, problem: str, note: str) -> None:
    runs.fails_on = {"": problem}
    made = campaign()
    assert proofs(run_campaign(made)) == [None, None]
    assert runs.made == ["the program as it is"]
    assert note in made.notes[0]


def test_one_run_proves_nothing_when_stopped(runs: Runs) -> None:
    runs.stop_at = 5
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [None, None]
    assert results[0].tried[1].certificate.holds
    assert (made.stopped, len(results[1].tried)) == (True, 0)


def test_a_budget_starts_no_run_beyond_it(runs: Runs) -> None:
    made = campaign(budget_s=1.0)
    run_campaign(made)
    assert runs.made == ["the program as it is"]
    assert "the budget of 1 s has no room for another run, which takes about 2 s" in made.notes[0]


def test_nothing_runs_without_candidates(runs: Runs) -> None:
    none = receipt(again(1, cause()), findings=(finding(),))
    assert proofs(run_campaign(campaign(none))) == [None]
    assert runs.made == []


def test_two_changes_that_need_each_other(runs: Runs) -> None:
    """Neither holds alone: both are proved together, and each names the other."""
    runs.need_each_other = "nm"
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [line("L['n']"), line("L['m']")]
    assert runs.made[5:] == [
        f"together: {line(BAD)}; {line(M)}",
        f"together: {line(N)}; {line(M)}",
        "all of them together, again",
    ]
    beside = [item.proof and (item.proof.beside, item.proof.certificate.runs) for item in results]
    assert beside == [(("F2",), 2), (("F1",), 2)]
    assert format_env(made) == [line(N, M)]
    found = build_fix_json(made, results)["findings"][1]["tried"][0]
    assert (found["together_with"], found["proved"]) == (["F1"], True)
    assert found["risk"] == "together with the change of finding 1; slower"


def test_what_follows_from_all_others(runs: Runs) -> None:
    """A finding without a candidate is gone when the others are; no run is made for it alone."""
    follows = finding(number="F3", variable="k")
    of = receipt(
        *BEFORE.compile.events, again(3, cause("k", "F3")), findings=(FIRST, SECOND, follows)
    )
    runs.events, runs.follows = of.compile.events, ("k", "nm")
    results = run_campaign(campaign(of))
    assert [item.proof and item.proof.beside for item in results] == [(), (), ("F2",)]
    assert proofs(results)[2] == line(N)
    assert len(runs.made) == 7
    assert runs.made[-1] == "all of them together, again"


def test_a_refused_change_on_top_of_one_that_holds(runs: Runs) -> None:
    runs.follows = ("m", "nm")
    results = run_campaign(campaign())
    assert [item.proof and item.proof.beside for item in results] == [(), ("F1",)]
    assert runs.made[-2:] == [f"together: {line(N)}; {line(M)}", "all of them together, again"]


def test_a_budget_without_time_for_changes_together_is_said(runs: Runs) -> None:
    """The runs that make the proofs of what holds are kept free."""
    runs.follows = ("m", "nm")
    made = campaign(budget_s=7.0)
    run_campaign(made)
    assert not [name for name in runs.made if name.startswith("together")]
    assert made.notes == ["the budget left no time to try more changes together"]
    assert made.stopped


def test_nothing_is_taken_that_is_not_needed(runs: Runs) -> None:
    """Where one of two findings goes with both changes, neither is proved."""
    runs.follows = ("n", "nm")
    runs.fails_on = {"L['m']": "timed out"}
    assert proofs(run_campaign(campaign())) == [None, None]


def test_more_rounds(runs: Runs) -> None:
    results = run_campaign(campaign(rounds=4))
    assert runs.made[5:] == ["all of them together", *["all of them together, again"] * 3]
    assert [item.proof and item.proof.certificate.runs for item in results] == [5, 5]


def test_what_was_tried_is_beside_the_receipt_and_proofs_are_in_it(runs: Runs, tmp_path) -> None:
    path = tmp_path / "receipt.json"
    write_receipt(BEFORE, path)
    made = campaign()
    results = run_campaign(made)
    save_results(made, results, str(path))
    saved = read_receipt(path)
    fix, second = (each.fix for each in saved.findings)
    assert (fix.verified, fix.proof.change) == (True, line(N))
    assert fix.proof.torch == BEFORE.environment.torch
    refusal = RefusedChange(change=line("L['bad']"), reason="1 of 1 recompiles remain")
    assert (fix.refused, second.refused) == ((refusal,), ())
    assert explain_missing_proof(saved.findings[0], saved) is None
    document = json.loads((tmp_path / NAME).read_text())
    assert document == json.loads(json.dumps(build_fix_json(made, results)))
    refused, proved = document["findings"][0]["tried"]
    assert (refused["proved"], refused["refused"]) == (False, "1 of 1 recompiles remain")
    assert (proved["proved"], proved["refused"], proved["runs"]) == (True, None, 3)


def test_the_screen(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    lines = format_env(made)
    text = render_fixes(BEFORE, results, lines, made.together, ["a note"], RenderOptions())
    assert text.startswith("2 of 2 findings have a proved change\n")
    assert f"     ✗ refused  {line(BAD)}\n" in text
    assert "1 of 1 recompiles remain" in text
    assert "     ✓ proved  export" in text
    assert "recompiles 1 → 0" in text
    shell = f"  type this before you start the program:\n    {format_env(made)[0]}\n"
    assert shell in text
    assert text.endswith("  note: a note\n\n  next: compilediag explain 1\n")


def test_there_is_always_a_reason() -> None:
    """Rules whose findings usually have a change have no reason of their own."""
    grown = msgspec.structs.replace(FIRST, rule="CD105")
    assert "CD105" not in UNCHANGEABLE
    text = screen(FindingResult(grown, (), ListedChanges((), ())))
    assert "no change is known for code of this form" in text


def test_edits_that_need_libcst_are_one_line() -> None:
    """Whether they would fit the files is not known: their names would say nothing."""
    edits = tuple(RefusedChange(change=f"edit {each}", reason=NEEDS_LIBCST) for each in "ab")
    other = RefusedChange(change="edit c", reason="line 3 is not a statement of its own")
    text = screen(FindingResult(FIRST, (), ListedChanges((), (*edits, other))))
    assert "       2 edits not tried: edits need libcst: pip install" in text
    assert "edit a" not in text
    assert "not possible: edit c: line 3" in text


@pytest.mark.parametrize(
    ("tried", "candidates", "sentence"),
    [
        (0, 0, "! no change to try: compilediag explain 1 says what to edit"),
        (0, 2, "! not tried: compilediag explain 1 says what to edit"),
        (1, 2, "! none of them works: compilediag explain 1 says what to edit"),
    ],
)
def test_the_screen_says_what_to_do_where_nothing_is_proved(runs, tried, candidates, sentence):
    refused = run_campaign(campaign())[0].tried[0]
    listed = ListedChanges((refused.change,) * candidates, ())
    text = screen(FindingResult(FIRST, (refused,) * tried, listed))
    assert text.startswith("0 of 1 finding has a proved change\n")
    assert f"     {sentence}\n" in text
    words = UNCHANGEABLE[FIRST.rule]
    assert (" ".join(words.split()[:4]) in text) == (not candidates)


def test_the_screen_says_what_stands_in_the_way_of_an_edit() -> None:
    """Of the program, instead of what its rule says in general."""
    edits = [RefusedChange(change=f"edit {n}", reason=f"`x[{n}]` is kept") for n in range(3)]
    listed = ListedChanges((), tuple(edits))
    text = screen(FindingResult(FIRST, (), listed))
    assert "not possible: edit 0: `x[0]` is kept\n" in text
    assert text.count("not possible") == 2
    assert UNCHANGEABLE[FIRST.rule] not in text
    plan = render_candidates(BEFORE, [(FIRST, listed)], RenderOptions())
    assert "no change to try\n" in plan
    assert "not possible: edit 0: `x[0]` is kept\n" in plan


def test_the_screen_puts_each_line_where_it_belongs() -> None:
    """What is typed, what is written, what `--apply` makes; hostile lines stay inert."""
    edit = Edit("train.py", 1, "before", ("y",))
    changes = [
        ProgramChange("environment", "export A=1", "", variables=(("A", "1"),)),
        ProgramChange("configuration", "torch._dynamo.config.x = True\x1b[31m", ""),
        ProgramChange("source", "train.py:1 mark\n::error::", "", edits=(edit,)),
    ]
    text = render_fixes(BEFORE, [], ["export A=1"], changes, [], RenderOptions())
    assert text == (
        "no finding of at least `warning`: nothing to fix\n\n"
        "  type this before you start the program:\n    export A=1\n"
        "  write this into the program:\n    torch._dynamo.config.x = True\\x1b[31m\n"
        "  edits, made by `compilediag fix --apply`:\n    train.py:1 mark\\n::error::\n"
    )


def test_campaigns_before_stay_as_they_are(tmp_path: Path) -> None:
    assert choose_campaign_folder(str(tmp_path)) == str(tmp_path / "fix")
    (tmp_path / "fix" / "01-x").mkdir(parents=True)
    assert choose_campaign_folder(str(tmp_path)) == str(tmp_path / "fix-2")


def test_float64_costs_a_run_only_where_numbers_alone_differ(runs: Runs, monkeypatch) -> None:
    """One run, for all changes after it too; a run that fails excuses nothing."""
    made = run_with_rounding(runs, monkeypatch)
    results = run_campaign(made)
    name = "eager, with calls in float64"
    assert runs.made.count(name) == 1
    assert runs.made.index(name) == runs.made.index(line("L['n']")) + 1
    assert proofs(results) == [line("L['n']"), line("L['m']")]
    runs.made.clear()
    runs.fails_on = {"reference": "RuntimeError: no"}
    assert proofs(run_campaign(campaign())) == [None, line("L['m']")]
    assert runs.made.count(name) == 1


def run_with_rounding(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """The change of n makes the output 0.0001 smaller; so much is eager from float64."""

    def run_trial(*given: Any, **_: bool) -> Trial:
        trial, plan, variables = runs.run(*given), given[3], given[4]
        assert trial.observed is not None
        value, more = (0.9999 if "L['n']" in variables.get(SOURCES, "") else 1.0), {}
        if plan.reference:
            exact = replace(output(0.9999).answers[0], dtype="float64")
            more = {"sampled_outputs": (replace(output(1.0), reference=(exact,)),)}
        observed = replace(trial.observed, timeline=run(value=value, **more))
        problem = runs.fails_on.get("reference") if plan.reference else None
        return replace(trial, observed=observed, problem=problem)

    monkeypatch.setattr(trial_module, "run_trial", run_trial)
    return campaign()


def test_another_torch_than_that_of_the_findings(runs: Runs) -> None:
    environment = msgspec.structs.replace(BEFORE.environment, torch="1.0")
    made = campaign(msgspec.structs.replace(BEFORE, environment=environment))
    assert proofs(run_campaign(made)) == [None, None]
    assert runs.made == ["the program as it is"]
    now = built().environment.torch
    assert f"with torch 1.0, and the program has {now} now: name the program" in made.notes[0]


def test_a_line_that_no_longer_matches_ends_the_runs(runs: Runs, tmp_path: Path) -> None:
    """An edit that the text has no place for any more is one sentence, and nothing is lost."""
    made = campaign()
    edit = Edit(str(tmp_path / "gone.py"), 1, "before", ("y",))
    with pytest.raises(EditImpossible, match=r"gone\.py cannot be read"):
        made.make_edited_files([ProgramChange("source", "x", "", edits=(edit,))])


def test_a_proof_of_a_campaign_before_is_kept_unless_its_change_fails(runs: Runs, tmp_path) -> None:
    """One that is interrupted takes nothing away."""
    path = tmp_path / "receipt.json"
    made = campaign()
    save_results(made, run_campaign(made), str(path))
    proved = read_receipt(path)
    runs.stop_at = 5
    stopped = campaign(proved)
    save_results(stopped, run_campaign(stopped), str(path))
    assert [explain_missing_proof(each, proved) for each in read_receipt(path).findings] == [
        None,
        None,
    ]
    runs.stop_at, runs.fails_on = 99, {"L['n']": "RuntimeError: no"}
    failing = campaign(proved)
    save_results(failing, run_campaign(failing), str(path))
    assert [each.fix.verified for each in read_receipt(path).findings] == [False, True]
