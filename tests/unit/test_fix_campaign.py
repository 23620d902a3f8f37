"""The executions of a campaign, and what is known when it is stopped."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.certify.points import Certificate, ExecutedState
from compilediag.errors import UsageError
from compilediag.fixes.proof_types import FindingResult, ListedChanges
from compilediag.receipt.file import read_receipt, write_receipt
from compilediag.receipt.proofs import explain_missing_proof
from compilediag.receipt.schema.compiles import (
    CandidateRecord,
    CompileEvent,
    FindingRecord,
    FixRecord,
    Place,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import candidates as of_finding
from compilediag.rules.breaks.rule import WITHIN_PACKAGE
from compilediag.rules.changes import Edit, EditImpossible, ProgramChange
from compilediag.rules.recompiles import ONE_GRAPH_EACH
from compilediag.rules.values import BOTH_MODES
from compilediag.runs.certify.execute import Pair
from compilediag.runs.fix import campaign as campaigns
from compilediag.runs.fix.campaign import Campaign, choose_steps, make_campaign, run_campaign
from compilediag.runs.fix.executions import DIFFERS, Attempt
from compilediag.runs.fix.results import NAME, add_proofs, build_fix_json, format_env, save_results
from compilediag.runs.supervised.run import Program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials.trial import choose_campaign_folder
from compilediag.views.fix import render_candidates, render_fixes
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import GraphRun
from tests.support.certified_states import calls, printed, state, varied
from tests.support.timelines import WHERE
from tests.unit.test_fix_certificate import again, cause, finding, receipt

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


def line(*values: str) -> str:
    return f'export {SOURCES}="{",".join(values)}"'


UNCHANGED = "the program as it is, with the backend eager"
FIRST_OF_ALL = "the first changes of all findings"
CERTIFICATE = "for the certificate: all that was found"


class Runs:
    """Stands for real executions: each removes the causes whose sources are in the variable."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.events = BEFORE.compile.events
        self.needs: dict[str, str] = {}
        """The sources that have to be there for a cause to go, where it is not its own."""
        self.wrong: list[str] = []
        """With all of these sources the program returns something else."""
        self.fails_on: dict[str, str] = {}
        self.adds: dict[str, tuple[CompileEvent, ...]] = {}
        """Recompiles that a change with these sources makes."""
        self.stay: tuple[CompileEvent, ...] = ()
        """Recompiles that no change removes."""
        self.backend_adds = ""
        """A cause that only the program's own backend has."""
        self.stop_at = 99

    def execute(self, pair: Pair, what: str, *, new: bool, **_: Any) -> ExecutedState:
        pair.trials.runs += 1
        if new or pair.backend:
            self.made.append(what)
        if pair.trials.runs == self.stop_at:
            raise KeyboardInterrupt
        values = pair.states.variables.get(SOURCES, "") if new else ""
        for source, why in self.fails_on.items():
            if source in values:
                raise UsageError(why)
        left = [
            event
            for event in self.events
            if event in self.stay or not self.is_gone(pair, event, values)
        ]
        left += [each for source, more in self.adds.items() if source in values for each in more]
        value = 2.0 if self.wrong and all(source in values for source in self.wrong) else 1.0
        return state(
            calls(1.0, value),
            printed("loss 1.0"),
            varied("as it was"),
            varied("size 4 → 1"),
            receipt=receipt(*left),
            graphs_run=(GraphRun(9.0, WHERE, 5, (), 2),),
        )

    def is_gone(self, pair: Pair, event: Any, values: str) -> bool:
        variable = event.causes[0].variable
        if variable == self.backend_adds and pair.backend:
            return True
        return all(f"'{name}'" in values for name in self.needs.get(variable, variable))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """The findings have the candidates that they name, and no others."""
    monkeypatch.setattr(of_finding, "_MAKERS", (of_finding.propose_candidates,))
    monkeypatch.chdir(tmp_path)
    made = Runs()
    # Looked up late: a test may have another one.
    monkeypatch.setattr(Pair, "execute", lambda *given, **more: made.execute(*given, **more))  # noqa: PLW0108
    return made


def campaign(of: Receipt = BEFORE, **more: Any) -> Campaign:
    program = Program(("train.py",), RunOptions(), {}, ".compilediag/runs")
    return make_campaign(of, of.findings, program, lambda text: None, **more)


def proofs(results: tuple[FindingResult, ...]) -> list[str | None]:
    return [item.proof.change.line if item.proof else None for item in results]


def reasons(result: FindingResult) -> list[str]:
    return [tried.certificate.reason for tried in result.tried]


def screen(*fixes: FindingResult) -> str:
    return render_fixes(BEFORE, fixes, [], [], [], ["certify -- train.py"], RenderOptions())


def test_the_first_of_all_at_once_then_others_on_top_then_one_certificate(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, line(N), CERTIFICATE]
    assert proofs(results) == [line(N), line(M)]
    assert [tried.proved for tried in results[0].tried] == [False, True]
    assert results[0].tried[1].beside == ("F2",)
    assert format_env(made) == [line(M, N)]


@pytest.mark.parametrize("count", [2, 5])
def test_independent_causes_need_three_runs_behind_the_first(runs: Runs, count: int) -> None:
    names = "abcde"[:count]
    of = tuple(
        with_candidates(finding(number=f"F{at}", variable=name), f"L['{name}']", f"L['{name}0']")
        for at, name in enumerate(names, 1)
    )
    causes = [again(at, cause(name, f"F{at}")) for at, name in enumerate(names, 1)]
    runs.events = tuple(causes)
    assert all(proofs(run_campaign(campaign(receipt(*causes, findings=of)))))
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, CERTIFICATE]


def test_of_all_that_fail_at_once_each_is_tried_by_itself(runs: Runs) -> None:
    """One of them crashes the program: the other is proved, and nothing is said of it that is only
    true of both."""
    runs.fails_on = {BAD: "RuntimeError: no"}
    results = run_campaign(campaign())
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, line(BAD), line(N), line(M), CERTIFICATE]
    assert proofs(results) == [line(N), line(M)]


def test_one_change_is_certified_without_a_search(runs: Runs) -> None:
    only = with_candidates(finding(), "L['n']")
    runs.events = (again(1, cause()),)
    made = campaign(receipt(*runs.events, findings=(only,)))
    assert proofs(run_campaign(made)) == [line(N)]
    assert runs.made == [line(N)]


def advise(item: FindingRecord) -> FindingRecord:
    """The finding with its first candidate as its recipe."""
    assert item.fix.candidates
    summary = f"start it with: {line(item.fix.candidates[0].value)}"
    fix = msgspec.structs.replace(item.fix, summary=summary, recipe="setting")
    return msgspec.structs.replace(item, fix=fix)


RECIPES = "for the certificate: the recipes of all findings"


def test_recipes_of_all_findings_are_certified_without_a_search(runs: Runs) -> None:
    first, second = advise(with_candidates(finding(), N, BAD)), advise(SECOND)
    made = campaign(msgspec.structs.replace(BEFORE, findings=(first, second)))
    assert proofs(run_campaign(made)) == [line(N), line(M)]
    assert runs.made == [RECIPES]
    assert format_env(made) == [line(N, M)]


def test_where_a_recipe_fails_the_search_tells_which(runs: Runs) -> None:
    """No half of them is certified before."""
    runs.wrong = [BAD]
    first, second = advise(with_candidates(finding(), BAD, N)), advise(SECOND)
    made = campaign(msgspec.structs.replace(BEFORE, findings=(first, second)))
    assert proofs(run_campaign(made)) == [line(N), line(M)]
    assert runs.made[:3] == [RECIPES, UNCHANGED, FIRST_OF_ALL]
    assert runs.made[-1] == CERTIFICATE


def test_what_did_nothing_for_its_finding_is_left_out_of_what_is_proved(runs: Runs) -> None:
    """Recipes of all findings, of which one is none; no other is searched for the first."""
    first, other = advise(with_candidates(finding(), N)), "L['other']"
    without = "for the certificate: without the changes that did nothing"
    for values, made, together in (
        ((other,), [], [line(N)]),
        ((other, M), [UNCHANGED, line(M), CERTIFICATE], [line(N), line(M)]),
    ):
        runs.made = []
        second = advise(with_candidates(finding(number="F2", variable="m"), *values))
        campaigned = campaign(msgspec.structs.replace(BEFORE, findings=(first, second)))
        results = run_campaign(campaigned)
        assert proofs(results) == [line(N), line(M) if M in values else None]
        assert [change.line for change in campaigned.together] == together
        assert runs.made == [RECIPES, without, *made]


@pytest.mark.parametrize(("count", "left", "proved"), [(3, 1, line(N)), (3, 2, None)])
def test_of_changes_that_remove_no_finding_the_one_that_halves_it_is_proved(
    runs: Runs, count: int, left: int, proved: str | None
) -> None:
    """The screen says both figures."""
    runs.events = tuple(again(number, cause()) for number in range(count))
    runs.stay = runs.events[-left:]
    results = run_campaign(campaign(receipt(*runs.events, findings=(FIRST,))))
    assert runs.made == [UNCHANGED, line(BAD), line(N), *[CERTIFICATE] * (proved is not None)]
    assert proofs(results) == [proved]
    said = f"its recompiles {count} → {left}" if proved else "! none of them works"
    assert said in screen(*results)


def test_what_is_refused_for_its_finding_is_not_to_be_typed(runs: Runs) -> None:
    """Although the program is better with it."""
    runs.events = tuple(again(number, cause()) for number in range(3))
    runs.stay = runs.events[1:]
    made = campaign(receipt(*runs.events, findings=(with_candidates(finding(), N),)))
    (result,) = run_campaign(made)
    assert reasons(result) == ["2 of 3 recompiles remain"]
    assert (made.together, format_env(made)) == ((), [])


def test_recipes_are_searched_together_before_what_is_no_recipe(runs: Runs) -> None:
    """One that crashes the program does not hide that they hold."""
    runs.fails_on = {BAD: "RuntimeError: no"}
    third = with_candidates(finding(number="F3", variable="k"), BAD)
    first = advise(with_candidates(finding(), N))
    runs.events = (*BEFORE.compile.events, again(3, cause("k", "F3")))
    of = receipt(*runs.events, findings=(first, advise(SECOND), third))
    assert proofs(run_campaign(campaign(of))) == [line(N), line(M), None]
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, line(BAD), CERTIFICATE]


def test_what_crashed_the_program_for_a_finding_is_not_run_for_another(runs: Runs) -> None:
    runs.fails_on = {BAD: "RuntimeError: no"}
    second = with_candidates(finding(number="F2", variable="m"), "L['other']", BAD, M)
    made = campaign(msgspec.structs.replace(BEFORE, findings=(FIRST, second)))
    results = run_campaign(made)
    assert proofs(results) == [line(N), line(M)]
    assert [text for text in runs.made if BAD in text] == [line(BAD)]
    assert [reasons(result).count("RuntimeError: no") for result in results] == [1, 1]


def test_a_trial_that_does_not_end_removes_nothing(runs: Runs) -> None:
    """Each change is tried by itself then, with the time of the short run and little more."""
    execute, limits = runs.execute, list[float | None]()

    def execute_without_end(pair: Pair, what: str, **more: Any) -> ExecutedState:
        made = execute(pair, what, **more)
        limits.append(pair.limit_s)
        if what in (FIRST_OF_ALL, line(BAD)):
            pair.problems.append("it had not ended after 30 s")
            return replace(made, problem="time limit")
        return made

    runs.execute = execute_without_end
    results = run_campaign(campaign())
    assert proofs(results) == [line(N), line(M)]
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, line(BAD), line(N), line(M), CERTIFICATE]
    assert reasons(results[0])[0] == "it had not ended after 30 s"
    own_s = BEFORE.goodput.wall_s if BEFORE.goodput else 0.0
    assert limits == [None, *[2 * (own_s or 0.0) + 30] * 4, None, None]


def test_a_program_that_differs_from_itself_is_said_at_the_first_trial(runs: Runs) -> None:
    """Not after a search: no change of it can be proved."""
    execute, values = runs.execute, iter(range(9))

    def execute_at_random(pair: Pair, what: str, **more: Any) -> ExecutedState:
        made = execute(pair, what, **more)
        (old,) = made.timeline.recorded_calls
        return (
            replace(
                made, timeline=replace(made.timeline, recorded_calls=[calls(next(values), 1.0)])
            )
            if old
            else made
        )

    runs.execute = execute_at_random
    made = campaign()
    assert proofs(run_campaign(made)) == [None, None]
    assert runs.made[:2] == [UNCHANGED, FIRST_OF_ALL]
    assert len(runs.made) == 3
    (note,) = made.notes
    assert note.startswith(f"{DIFFERS}; call 0 of ")
    assert "seed what it draws by itself" in note


def test_what_does_not_go_together_is_seen_at_once(runs: Runs) -> None:
    """One is refused beside the other, which is proved."""
    runs.wrong = [N, M]
    results = run_campaign(campaign())
    assert proofs(results) == [None, line(M)]
    assert "returned something else" in reasons(results[0])[1]


def test_a_failing_trial_is_a_result(runs: Runs) -> None:
    runs.fails_on = {BAD: "it timed out", N: "RuntimeError: no"}
    results = run_campaign(campaign())
    assert proofs(results) == [None, line(M)]
    assert reasons(results[0]) == ["it timed out", "RuntimeError: no"]


def test_what_another_cause_hides_is_tried_again(runs: Runs) -> None:
    runs.needs = {"n": "nm"}
    results = run_campaign(campaign())
    assert proofs(results) == [line(N), line(M)]
    assert runs.made[-1] == CERTIFICATE


def test_what_goes_with_another_finding_needs_no_run(runs: Runs) -> None:
    follows = with_candidates(finding(number="F3", variable="k"), "L['k']")
    of = receipt(
        *BEFORE.compile.events, again(3, cause("k", "F3")), findings=(FIRST, SECOND, follows)
    )
    runs.events, runs.needs = of.compile.events, {"k": "nm"}
    results = run_campaign(campaign(of))
    assert proofs(results) == [line(N), line(M), line(N)]
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, line(N), CERTIFICATE]


def test_what_only_the_own_backend_shows_is_searched_with_it(runs: Runs) -> None:
    runs.backend_adds = "m"
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [line(N), line(M)]
    # The last trial had the program's own backend, and all that was found.
    assert runs.made == [UNCHANGED, line(BAD), line(N), line(M)]


def test_changes_that_are_not_proved_together_are_certified_in_halves(runs: Runs) -> None:
    """Only the whole program shows that one of them is wrong."""
    made = campaign()
    execute = runs.execute

    def execute_with_late_error(pair: Pair, what: str, **more: Any) -> ExecutedState:
        runs.wrong = [] if pair.backend else [M]
        return execute(pair, what, **more)

    runs.execute = execute_with_late_error
    results = run_campaign(made)
    assert proofs(results) == [line(N), None]
    assert made.notes[0].startswith("2 changes together: refused: ")
    assert format_env(made) == [line(N)]


def test_what_is_proved_beside_others_stays_proved_where_it_needs_them(runs: Runs) -> None:
    """The half without them shows no more than that."""
    first = with_candidates(finding(), N)
    third = with_candidates(finding(number="F3", variable="k"), "L['k']")
    of = receipt(
        *BEFORE.compile.events, again(3, cause("k", "F3")), findings=(first, SECOND, third)
    )
    runs.events, runs.needs, is_gone = of.compile.events, {"n": "nk"}, runs.is_gone

    def comes_back(pair: Pair, event: Any, values: str) -> bool:
        is_third = event.causes[0].variable == "k"
        return is_gone(pair, event, values) and (not is_third or bool(pair.backend))

    runs.is_gone = comes_back
    made = campaign(of)
    results = run_campaign(made)
    assert proofs(results) == [line(N), line(M), None]
    assert results[0].proof.beside == ("F2", "F3")
    # All of them make the program better with the same results: `--env` and `--apply` have them.
    assert [change.line for change in made.together] == [line(N), line(M), line("L['k']")]
    assert any("3 changes together: proved, but for a finding" in note for note in made.notes)


def test_halves_are_certified_within_the_time_of_four_runs(runs: Runs) -> None:
    made = campaign()
    execute = runs.execute

    def execute_long(pair: Pair, what: str, **more: Any) -> ExecutedState:
        runs.wrong = [] if pair.backend else [M]
        made.started -= 0.0 if pair.backend else 1000.0
        return execute(pair, what, **more)

    runs.execute = execute_long
    assert proofs(run_campaign(made)) == [None, None]
    assert [note for note in made.notes if note.startswith("no time to certify by itself: ")]


def test_what_was_found_is_said_when_it_is_stopped(runs: Runs) -> None:
    runs.stop_at = 3
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [None, None]
    assert results[1].tried[0].certificate.verdict == "proved"
    assert "found, not certified" in screen(*results)
    assert (made.stopped, made.interrupted, len(results[0].tried)) == (True, True, 1)
    assert made.notes == ["interrupted in run 3: what was not tried by then is left out"]


def test_a_budget_starts_no_run_beyond_it(runs: Runs) -> None:
    made = campaign(budget_s=-1.0)
    run_campaign(made)
    assert runs.made == []
    assert "the budget of -1 s has no room for another run" in made.notes[0]


def test_a_search_takes_no_longer_than_the_program_unless_a_budget_is_given(
    runs: Runs, monkeypatch
) -> None:
    """What was found by then is certified."""
    monkeypatch.setattr(campaigns, "MIN_S", -1.0)
    made = campaign()
    assert proofs(run_campaign(made)) == [None, line(M)]
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, CERTIFICATE]
    assert made.notes[0].endswith("four plain runs: 1 of finding 1; --budget 1h goes on")
    assert proofs(run_campaign(campaign(budget_s=60.0))) == [line(N), line(M)]


def test_a_budget_keeps_time_for_the_certificate(runs: Runs) -> None:
    made = campaign(budget_s=105.0)
    made.whole.run_s = 100.0
    made.short.run_s = 10.0
    assert proofs(run_campaign(made)) == [None, line(M)]
    assert runs.made == [UNCHANGED, FIRST_OF_ALL, CERTIFICATE]
    assert made.notes[0].startswith("changes not tried within 105 s with a certificate: 1 of ")


def test_beside_a_change_that_made_it_worse_nothing_is_refused(runs: Runs) -> None:
    """Not a change either that removes its finding when it is tried by itself."""
    runs.adds = {BAD: tuple(again(3 + at, cause("m", "F2")) for at in range(3))}
    before = msgspec.structs.replace(BEFORE, findings=(with_candidates(finding(), BAD), SECOND))
    assert proofs(run_campaign(campaign(before))) == [None, line(M)]


@pytest.mark.parametrize("advised", [f"start it with: {line(BAD)}", "pad it"])
def test_a_refused_change_is_not_advised_below(runs: Runs, advised: str) -> None:
    item = with_candidates(finding(), BAD)
    item = msgspec.structs.replace(item, fix=msgspec.structs.replace(item.fix, summary=advised))
    text = screen(*run_campaign(campaign(msgspec.structs.replace(BEFORE, findings=(item,)))))
    assert ("its recipe was tried here" in text) == (f": {advised}" not in text) == (BAD in advised)


def test_behind_a_refused_certificate_there_is_time_for_another_one(runs: Runs) -> None:
    made = campaign()
    made.whole.run_s, made.started = 100.0, time.monotonic() - 60.0
    assert made.has_time(made.whole)
    made.whole.attempts[frozenset()] = Attempt(frozenset(), Certificate(()), None, None)
    assert not made.has_time(made.whole)


def test_nothing_runs_without_candidates(runs: Runs) -> None:
    none = receipt(again(1, cause()), findings=(finding(),))
    assert proofs(run_campaign(campaign(none))) == [None]
    assert runs.made == []


@pytest.mark.parametrize(
    ("last", "steps", "chosen"), [(2, 100, 5), (90, 100, None), (None, 100, None), (2, 0, None)]
)
def test_short_runs_end_a_little_after_the_last_recompile(last, steps, chosen) -> None:
    event = msgspec.structs.replace(again(1, cause()), step=last)
    of = receipt(event, findings=(FIRST,))
    section = msgspec.structs.replace(of.steps, count=steps) if of.steps else None
    assert section is not None
    of = msgspec.structs.replace(of, steps=section)
    assert choose_steps(of, of.findings) == chosen


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
    refusal = RefusedChange(change=line(BAD), reason="1 of 1 recompiles remain")
    assert (fix.refused, second.refused) == ((refusal,), ())
    assert explain_missing_proof(saved.findings[0], saved) is None
    document = json.loads((tmp_path / NAME).read_text())
    assert document == json.loads(json.dumps(build_fix_json(made, results)))
    refused, proved = document["findings"][0]["tried"]
    assert (refused["proved"], refused["refused"]) == (False, "1 of 1 recompiles remain")
    assert (proved["proved"], proved["refused"], proved["runs"]) == (True, None, 2)


def test_the_screen(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    lines = format_env(made)
    following = ["certify -- train.py", "run -- train.py"]
    text = render_fixes(
        BEFORE, results, lines, made.together, ["a note"], following, RenderOptions()
    )
    assert text.startswith("2 of 2 findings have a proved change\n")
    assert f"     ✗ refused  {line(BAD)}\n" in text
    assert "1 of 1 recompiles remain" in text
    assert "     ✓ proved  export" in text
    assert "its recompiles 1 → 0" in text
    assert text.count("certified in one run of the whole program: 1, 2") == 1
    assert "recompiles 2 → 0" in text
    shell = f"  type this before you start the program:\n    {format_env(made)[0]}\n"
    assert shell in text
    assert text.endswith("  note: a note\n\n  next: compilediag run -- train.py\n")


@pytest.mark.parametrize(
    ("tried", "candidates", "sentence"),
    [(0, 0, "! no change to try"), (0, 2, "! not tried"), (1, 2, "! none of them works")],
)
def test_the_screen_says_what_to_edit_where_nothing_is_proved(runs, tried, candidates, sentence):
    """At which line, and how it is checked; an edit that is not tried with what it needs."""
    refused = run_campaign(campaign())[0].tried[0]
    edits = [RefusedChange(change=f"edit {n}", reason=f"`x[{n}]` is kept") for n in range(3)]
    listed = ListedChanges((refused.change,) * candidates, tuple(edits))
    fix = FixRecord(summary="pass x as a tensor", recipe="tensor", how="")
    place = Place(file="model.py", line=7, function="forward")
    item = msgspec.structs.replace(FIRST, fix=fix, location=place)
    text = screen(FindingResult(item, (refused,) * tried, listed))
    assert text.startswith("0 of 1 finding has a proved change\n")
    assert f"     {sentence}\n" in text
    assert "       not possible: edit 0: `x[0]` is kept\n" in text
    assert "       not possible: edit 1: `x[1]` is kept\n       and 1 more\n" in text
    assert "     fix at model.py:7 in forward: pass x as a tensor\n" in text
    assert "     then check the edit: compilediag certify -- train.py\n" in text
    assert text.endswith("\n  next: compilediag certify -- train.py\n")
    plan = render_candidates(BEFORE, [(FIRST, ListedChanges((), tuple(edits)))], RenderOptions())
    assert "no change to try\n" in plan
    assert "not possible: edit 1: `x[1]` is kept\n" in plan


def test_a_recipe_that_was_refused_is_advised_no_more(runs: Runs) -> None:
    """Neither on the screen nor in the receipt, which `show` and `explain` read."""
    made = campaign()
    refused = run_campaign(made)[0].tried[0]
    said = refused.change.line
    fix = msgspec.structs.replace(FIRST.fix, summary=said, recipe="setting")
    item = msgspec.structs.replace(FIRST, fix=fix)
    text = screen(result := FindingResult(item, (refused,), ListedChanges((), ())))
    assert "fix at" not in text
    assert "change the line, take it out of what is compiled, or leave it" in " ".join(text.split())
    assert add_proofs(made, [result]).findings[0].fix.label == "advice"


def test_advice_that_was_refused_is_not_given_again(runs: Runs) -> None:
    refused = run_campaign(campaign())[0].tried[0]
    line = 'export TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS=">=0:allow_rnn=True"'
    tried = replace(refused, change=replace(refused.change, line=line))
    for other, said in (("", "change the line, take it out of what"), ("keep it; or ", "keep it")):
        advice = f"{other}set torch._dynamo.config.allow_rnn = True, as torch's own hint says"
        item = msgspec.structs.replace(FIRST, fix=FixRecord(summary=advice, how=""))
        text = screen(FindingResult(item, (tried,), ListedChanges((tried.change,), ())))
        assert re.search(rf"advice at [^:]*:\d+ in \w+: {said}[ \n]", text), text
    captured = "export TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1"  # in a variable of its own
    tried = replace(refused, change=replace(refused.change, line=captured))
    advice = "keep it; or set torch._dynamo.config.capture_dynamic_output_shape_ops = True, as said"
    item = msgspec.structs.replace(FIRST, fix=FixRecord(summary=advice, how=""))
    assert FindingResult(item, (tried,), ListedChanges((), ())).advised.fix.summary == "keep it"


@pytest.mark.parametrize(
    ("advice", "asked"),
    [
        (ONE_GRAPH_EACH.fix, False),
        (BOTH_MODES.fix, False),
        (WITHIN_PACKAGE.fix, False),
        ("accept it; or remove the call; or move it", True),
        ("a graph with and one without it: leave it where both are wanted; else pass it", True),
        ("pad to a fixed size, or leave it", True),
    ],
)
def test_where_nothing_is_to_be_edited_no_edit_is_to_be_checked(advice: str, asked: bool) -> None:
    item = msgspec.structs.replace(FIRST, fix=FixRecord(summary=advice, how=""))
    text = screen(FindingResult(item, (), ListedChanges((), ())))
    assert ("then check the edit: " in text) == asked


def test_the_screen_puts_each_line_where_it_belongs() -> None:
    """What is typed, what is written, what `--apply` makes; hostile lines stay inert."""
    edit = Edit("train.py", 1, "before", ("y",))
    changes = [
        ProgramChange("environment", "export A=1", "", variables=(("A", "1"),)),
        ProgramChange("configuration", "torch._dynamo.config.x = True\x1b[31m", ""),
        ProgramChange("source", "train.py:1 mark\n::error::", "", edits=(edit,)),
    ]
    text = render_fixes(BEFORE, [], ["export A=1"], changes, [], [], RenderOptions())
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


def test_another_torch_than_that_of_the_findings(runs: Runs) -> None:
    environment = msgspec.structs.replace(BEFORE.environment, torch="1.0")
    made = campaign(msgspec.structs.replace(BEFORE, environment=environment))
    assert proofs(run_campaign(made)) == [None, None]
    assert runs.made == [UNCHANGED]
    now = BEFORE.environment.torch
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
    runs.stop_at = 2
    stopped = campaign(proved)
    save_results(stopped, run_campaign(stopped), str(path))
    assert [explain_missing_proof(each, proved) for each in read_receipt(path).findings] == [
        None,
        None,
    ]
    runs.stop_at, runs.fails_on = 99, {N: "RuntimeError: no"}
    failing = campaign(proved)
    save_results(failing, run_campaign(failing), str(path))
    assert [each.fix.verified for each in read_receipt(path).findings] == [False, True]


def test_of_what_the_whole_program_refuses_another_is_tried(runs: Runs) -> None:
    """The first removes the finding in short runs too; the second is proved beside the other's."""
    first = with_candidates(finding(), N, "L['bad','n']")
    made = campaign(msgspec.structs.replace(BEFORE, findings=(first, SECOND)))
    execute = runs.execute

    def execute_with_late_error(pair: Pair, what: str, **more: Any) -> ExecutedState:
        values = pair.states.variables.get(SOURCES, "")
        runs.wrong = [] if pair.backend or "bad" in values else [N]
        return execute(pair, what, **more)

    runs.execute = execute_with_late_error
    results = run_campaign(made)
    assert proofs(results) == [line("L['bad','n']"), line(M)]
    assert format_env(made) == [line(M, "L['bad','n']")]


def test_nothing_is_proved_where_a_trial_wrote_what_the_next_may_read(runs: Runs, tmp_path) -> None:
    execute = runs.execute

    def write(pair: Pair, what: str, **more: Any) -> ExecutedState:
        (tmp_path / "log.txt").write_text(what)
        return execute(pair, what, **more)

    runs.execute = write
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [None, None]
    assert "past a trial" in reasons(results[1])[0]
    assert not (tmp_path / "log.txt").exists()
