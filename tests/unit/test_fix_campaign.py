"""The executions of a campaign, and what is known when it is stopped."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.certify.points import ExecutedState
from compilediag.diagnosis.codes import UNCHANGEABLE
from compilediag.errors import UsageError
from compilediag.fixes.proof_types import FindingResult, ListedChanges
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
from compilediag.runs.certify.execute import Pair
from compilediag.runs.fix.campaign import Campaign, choose_steps, make_campaign, run_campaign
from compilediag.runs.fix.results import NAME, build_fix_json, format_env, save_results
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
CERTIFICATE = "all that was found, for the certificate"


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
        left = [event for event in self.events if not self.is_gone(pair, event, values)]
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
    monkeypatch.setattr(of_finding, "_MAKERS", ())
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
    return render_fixes(BEFORE, fixes, [], [], [], RenderOptions())


def test_each_on_top_of_the_others_then_one_certificate(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    assert runs.made == [UNCHANGED, line(BAD), line(N), line(M), CERTIFICATE]
    assert proofs(results) == [line(N), line(M)]
    assert [tried.proved for tried in results[0].tried] == [False, True]
    assert [tried.beside for tried in results[0].tried] == [(), ("F2",)]
    assert format_env(made) == [line(N, M)]


def test_what_does_not_go_together_is_seen_at_once(runs: Runs) -> None:
    """The second is refused beside the first, and the first is proved."""
    runs.wrong = [N, M]
    results = run_campaign(campaign())
    assert proofs(results) == [line(N), None]
    assert "returned something else" in reasons(results[1])[0]


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
    assert proofs(results) == [line(N), line(M), line(M)]
    assert len(runs.made) == 5


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


def test_what_was_found_is_said_when_it_is_stopped(runs: Runs) -> None:
    runs.stop_at = 4
    made = campaign()
    results = run_campaign(made)
    assert proofs(results) == [None, None]
    assert results[0].tried[1].certificate.verdict == "proved"
    assert "found, not certified" in screen(*results)
    assert (made.stopped, made.interrupted, len(results[1].tried)) == (True, True, 0)
    assert made.notes == ["interrupted in run 4: what was not tried by then is left out"]


def test_a_budget_starts_no_run_beyond_it(runs: Runs) -> None:
    made = campaign(budget_s=-1.0)
    run_campaign(made)
    assert runs.made == []
    assert "the budget of -1 s has no room for another run" in made.notes[0]


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
    text = render_fixes(BEFORE, results, lines, made.together, ["a note"], RenderOptions())
    assert text.startswith("2 of 2 findings have a proved change\n")
    assert f"     ✗ refused  {line(BAD)}\n" in text
    assert "1 of 1 recompiles remain" in text
    assert "     ✓ proved  export" in text
    assert "its recompiles 1 → 0" in text
    assert text.count("certified in one run of the whole program: 1, 2") == 1
    assert "recompiles 2 → 0" in text
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
