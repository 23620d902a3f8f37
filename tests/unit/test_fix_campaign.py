"""Which runs a campaign makes, and what is known when it is stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.fixes.certificate import Observed
from compilediag.receipt.file import read_receipt, write_receipt
from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord, FixRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.options import Options
from compilediag.runs.trials import campaign as campaigns
from compilediag.runs.trials.campaign import Campaign, Result, run_campaign
from compilediag.runs.trials.first_run import campaign_folder
from compilediag.runs.trials.one import Program, Trial
from compilediag.runs.trials.results import NAME, as_json, environment_lines, save
from compilediag.views.fix import FindingFixes, Outcome, render_fixes
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import TrialPlan
from tests.unit.test_fix_certificate import again, cause, finding, receipt, run

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


class Runs:
    """Stands for real runs: each removes the causes whose sources are in the variable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.random = False
        self.fails_on: dict[str, str] = {}
        self.stop_at = 99
        self.together_fails = False
        monkeypatch.setattr(campaigns, "run_trial", self.run)

    def run(
        self,
        program: Program,
        number: int,
        name: str,
        plan: TrialPlan,
        variables: Mapping[str, str],
        timeout_s: float | None,
    ) -> Trial:
        self.made.append(name)
        self.timeout_s = timeout_s
        if number == self.stop_at:
            raise KeyboardInterrupt
        values = variables.get(SOURCES, "")
        left = [
            event
            for event in BEFORE.compile.events
            if f"L['{event.causes[0].variable}']" not in values
        ]
        if self.together_fails and "n" in values and "m" in values:
            left = list(BEFORE.compile.events)
        value = float(number) if self.random else 1.0
        problems = (why for source, why in self.fails_on.items() if source in values)
        seen = Observed(receipt(*left), run(value=value), next(problems, None))
        return Trial(name, seen, seen.problem, f"{number}.txt", 2.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def campaign(of: Receipt = BEFORE, **more: Any) -> Campaign:
    program = Program(("train.py",), Options(), {}, "/nowhere")
    return Campaign(program, of, of.findings, lambda text: None, **more)


def proofs(results: tuple[Result, ...]) -> list[str | None]:
    return [item.proof.change.line if item.proof else None for item in results]


def line(*values: str) -> str:
    return f'export {SOURCES}="{",".join(values)}"'


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
    assert environment_lines(made) == [line("L['n']", "L['m']")]
    assert runs.timeout_s == 4 * 2.0 + 60


def test_what_does_not_go_together_is_proved_alone(runs: Runs) -> None:
    runs.together_fails = True
    made = campaign()
    results = run_campaign(made)
    assert runs.made[-3:] == [
        "all of them together",
        f"again: {line(chr(76) + '[' + repr('n') + ']')}",
        f"again: {line(chr(76) + '[' + repr('m') + ']')}",
    ]
    assert proofs(results) == [line("L['n']"), line("L['m']")]
    assert environment_lines(made) == []
    assert "do not go together" in made.notes[0]


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


def test_a_program_that_fails_is_run_no_more(runs: Runs) -> None:
    runs.fails_on = {"": "RuntimeError: no GPU"}
    made = campaign()
    assert proofs(run_campaign(made)) == [None, None]
    assert runs.made == ["the program as it is"]
    assert "does not run: RuntimeError: no GPU" in made.notes[0]


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
    assert "the budget of 1 s is spent" in made.notes[0]


def test_nothing_runs_without_candidates(runs: Runs) -> None:
    none = receipt(again(1, cause()), findings=(finding(),))
    assert proofs(run_campaign(campaign(none))) == [None]
    assert runs.made == []


def test_what_was_tried_is_beside_the_receipt_and_proofs_are_in_it(
    runs: Runs, tmp_path: Path
) -> None:
    path = tmp_path / "receipt.json"
    write_receipt(BEFORE, path)
    made = campaign()
    results = run_campaign(made)
    save(made, results, str(path))
    fix = read_receipt(path).findings[0].fix
    assert (fix.verified, fix.proof and fix.proof.change) == (True, line("L['n']"))
    document = json.loads((tmp_path / NAME).read_text())
    assert document == json.loads(json.dumps(as_json(made, results)))
    refused, proved = document["findings"][0]["tried"]
    assert (refused["proved"], refused["refused"]) == (False, "1 of 1 recompiles remain")
    assert (proved["proved"], proved["refused"], proved["runs"]) == (True, None, 3)


def test_the_screen(runs: Runs) -> None:
    made = campaign()
    results = run_campaign(made)
    fixes = [
        FindingFixes(
            number,
            item.finding,
            [Outcome(each.change, each.certificate, each.proved) for each in item.tried],
            item.candidates,
        )
        for number, item in enumerate(results, start=1)
    ]
    text = render_fixes(BEFORE, fixes, environment_lines(made), ["a note"], RenderOptions())
    assert text.startswith("2 of 2 findings have a proved change\n")
    assert f"     ✗ refused  {line(chr(76) + '[' + repr('bad') + ']')}\n" in text
    assert "1 of 1 recompiles remain" in text
    assert "     ✓ proved  export" in text
    assert "recompiles 1 → 0" in text
    assert f"  proved together:\n    {environment_lines(made)[0]}\n" in text
    untried = [replace_tried(each) for each in fixes]
    assert "not tried: explain 1" in render_fixes(BEFORE, untried, [], [], RenderOptions())


def replace_tried(fix: FindingFixes) -> FindingFixes:
    return fix._replace(tried=())


def test_campaigns_before_stay_as_they_are(tmp_path: Path) -> None:
    assert campaign_folder(str(tmp_path)) == str(tmp_path / "fix")
    (tmp_path / "fix" / "01-x").mkdir(parents=True)
    assert campaign_folder(str(tmp_path)) == str(tmp_path / "fix-2")
