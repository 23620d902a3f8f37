"""Sources compared: what torch's known offsets explain is no disagreement, everything else is."""

from dataclasses import replace

import pytest
from timelines import FILE, at_limit, attempt, log, process, recompile, site, timeline

from compilediag.diagnosis.reconcile import reconcile
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.compiles import NO_QUESTION
from compilediag.timeline.devices import CudagraphRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EvidenceLost, WarningSeen

BREAK = "Graph break in user code at /home/user/app.py:14\nGraph Break Reason: x\n"
LIMIT_WARNING = "torch._dynamo hit config.recompile_limit (8)\n   function: 'forward'"


def warned(times: int) -> tuple[WarningSeen, ...]:
    return tuple(
        WarningSeen(1.0, 8, "0/8", "torch._dynamo.convert_frame", LIMIT_WARNING)
        for _ in range(times)
    )


def differences(run: Timeline) -> str:
    agreement = reconcile(run)
    assert agreement.agree is (not agreement.differences)
    return "\n".join(agreement.differences)


def test_a_run_that_agrees() -> None:
    """One recompile, one break met twice, a backward row: every source has the same."""
    compiles = [attempt("0/0"), attempt("0/0", kind="backward"), attempt("0/1", kind="recompile")]
    run = timeline(
        compiles,
        breaks=(site(BREAK, count=2, compile_ids=("0/0", "0/1")),),
        text_log=log(1, 0, [(FILE, 14)]),
        processes=(
            process(counters={"metrics_rows": 3, "recompile_calls": 1, "break_records": 2}),
        ),
    )
    agreement = reconcile(run)
    assert (agreement.agree, agreement.differences) == (True, ())
    assert agreement.sources == {"events": True, "metrics": True, "text_log": True}
    assert agreement.numbers["recompiles"] == 1
    assert agreement.numbers["backward_rows"] == 1


TWICE = {"metrics_rows": 2, "recompile_calls": 1}
RECOMPILED = [attempt("0/0"), attempt("0/1", kind="recompile")]
FAILED = attempt(
    "0/1",
    kind="failed",
    fail_reason="no metrics row: the compile did not end",
    cause=recompile("0/1", produced=False),
)


@pytest.mark.parametrize(
    ("run", "number", "text"),
    [
        (timeline([attempt(f"0/{n}") for n in range(3)], text_log=log(0)), ("recompiles", 0), True),
        (
            timeline(
                [*RECOMPILED, attempt("0/0", epoch=1), attempt("0/1", kind="recompile", epoch=1)],
                text_log=log(2),
            ),
            ("frames", 2),
            True,
        ),
        (
            timeline(
                [
                    *RECOMPILED,
                    attempt("0/0", process=1),
                    attempt("0/1", kind="recompile", process=1),
                ],
                processes=(process(0, counters=TWICE), process(1, counters=TWICE)),
                text_log=log(2),
            ),
            ("torch_metrics_rows", 4),
            True,
        ),
        (
            timeline(
                [attempt("0/0"), FAILED],
                processes=(process(counters={"metrics_rows": 1, "recompile_calls": 1}),),
                text_log=log(1),
            ),
            ("torch_metrics_rows", 1),
            True,
        ),
        (timeline(RECOMPILED, text_log=log(0, over_limit=True)), ("recompiles", 1), False),
        (timeline(RECOMPILED), ("recompiles", 1), False),
        *(
            (
                timeline(
                    RECOMPILED, text_log=log(0), lost=(EvidenceLost(1.0, 1, source, "silenced"),)
                ),
                ("recompiles", 1),
                False,
            )
            for source in ("text_log", "graph_breaks")
        ),
    ],
    ids=[
        *("isolated regions", "ids of two epochs", "two processes", "no row of a failure"),
        *("log over its limit", "no log", "silenced log", "silenced breaks"),
    ],
)
def test_what_is_no_disagreement(run: Timeline, number: tuple[str, int], text: bool) -> None:
    """First compiles with ids of recompiles, ids that begin again, sums over processes, a compile
    in which torch raised; and a text log that lacks messages is no second opinion."""
    agreement = reconcile(run)
    assert (agreement.agree, agreement.differences) == (True, ())
    assert agreement.numbers[number[0]] == number[1]
    assert agreement.sources["text_log"] is text


def test_without_any_source_nothing_is_compared() -> None:
    """Nothing was seen, or a process that never imported torch."""
    for run in (Timeline(), Timeline(processes=(process(torch=False),))):
        agreement = reconcile(run)
        assert agreement.agree is None
        assert agreement.sources == {"events": False, "metrics": False, "text_log": False}


def test_a_line_too_many_or_too_few() -> None:
    """A recompile that only one of text and events saw is a disagreement, with the numbers."""
    run = timeline([attempt("0/0"), attempt("0/1", kind="recompile")])
    assert '2 "Recompiling function" lines, the events 1' in differences(
        replace(run, text_log=log(2))
    )
    assert "0 " in differences(replace(run, text_log=log(0)))


def test_a_journal_over_its_limit_lacks_questions_and_no_counts() -> None:
    """Each row has a reason of its own: the recompiles are counted, and nothing disagrees."""
    again = recompile(problem=NO_QUESTION)
    compiles = [attempt("0/0"), attempt("0/1", kind="recompile", cause=again)]
    ended = process(counters={"metrics_rows": 2, "recompile_calls": 1})
    run = timeline(compiles, processes=(ended,), text_log=log(1))
    assert reconcile(run).agree is False
    limited = replace(run, processes=(replace(ended, journal_limit_bytes=64 << 20),))
    agreement = reconcile(limited)
    assert (agreement.agree, agreement.differences) == (True, ())
    assert agreement.numbers["recompiles"] == 1


def test_breaks_by_site() -> None:
    """Sites are compared by file and line, and each side's surplus is named."""
    run = timeline([attempt("0/0")], breaks=(site(BREAK),), text_log=log(0, 0, [(FILE, 15)]))
    found = differences(run)
    assert f"1 graph-break sites are only in the text log ({FILE}:15)" in found
    assert f"1 graph-break sites are only in the events ({FILE}:14)" in found


def test_breaks_that_only_metrics_know() -> None:
    """A restart for a break without a report of it: the break log was silent."""
    reason = "Data-dependent branching\n  Explanation: Detected data-dependent branching."
    compiles = [attempt("0/0", restart_reasons=(reason,))]
    assert "graph breaks in 1 compiles" in differences(timeline(compiles))
    run = timeline(compiles, breaks=(site(BREAK, compile_ids=("0/0_1",)),))
    assert reconcile(run).differences == ()


def test_a_question_that_only_metrics_know() -> None:
    """A row with a reason whose question the events do not have: an event was lost."""
    unasked = recompile(problem="torch's question was not heard: only its first reason is known")
    run = timeline([attempt("0/0"), attempt("0/1", kind="recompile", cause=unasked)])
    assert "1 compiles whose question" in differences(run)
    ended = process(counters={"recompile_calls": 0})
    assert differences(replace(run, processes=(ended,))).count("\n") == 0, "reported once"
    deaf = replace(run, processes=(process(hooks={"recompile_reasons": False}),))
    assert reconcile(deaf).differences == ()
    assert reconcile(deaf).sources["events"] is False


def test_limit_warnings() -> None:
    """Rows at the limit, warnings of torch and the text log must be as many."""
    run = timeline(at_limit(3), text_log=log(3, 0))
    assert "0 recompile-limit warnings, metrics 1" in differences(run)
    found = differences(replace(run, text_log=log(3, 1), warnings=warned(2)))
    assert "torch warned 2 times of the recompile limit, metrics have 1" in found


def test_unknown_lines_are_never_clean() -> None:
    """A text log that was not understood is reported, however well the rest agrees."""
    run = timeline([attempt("0/0")], text_log=log(0, unknown_lines=2))
    assert "2 lines of the text log were not understood" in differences(run)


def test_a_killed_process_may_miss_its_last_event() -> None:
    """SIGKILL between torch's line and our event: one line more is no disagreement, two are."""
    run = timeline([attempt("0/0")], processes=(process(ended=False),), text_log=log(1))
    assert reconcile(run).agree is True
    assert reconcile(replace(run, text_log=log(2))).agree is False


SEEN = {"frames_total": 2, "frames_ok": 2, "unique_graphs": 2, "break_events": 0}
SILENCED = (EvidenceLost(1.0, 1, "text_log", "silenced"),)


def without_text(*, totals: dict[str, int] | None = None, **more: object) -> Timeline:
    """One recompile, which events and metrics have, of a program that silenced torch's loggers."""
    counters = {"metrics_rows": 2, "recompile_calls": 1, **SEEN, **(totals or {})}
    more = {"processes": (process(counters=counters),), **more}
    compiles = [attempt("0/0"), attempt("0/1", kind="recompile")]
    return timeline(compiles, lost=SILENCED, **more)


@pytest.mark.parametrize(
    "totals",
    [
        {"break_events": 1},  # a graph break, whose place only the log has
        {"frames_total": 3},  # a frame that was skipped without a metrics row: a generator, say
        {"unique_graphs": 1},  # the program cleared torch's counters
        {"frames_total": 0, "frames_ok": 0, "unique_graphs": 0},
        {"metrics_rows": 3},  # a row that did not arrive
    ],
)
def test_a_text_log_that_is_missed(totals: dict[str, int]) -> None:
    """Something happened that only the lost log could tell, or it cannot be excluded."""
    run = without_text(totals=totals)
    assert reconcile(run).text_is_spare is False
    assert diagnose(run).verdict == "blind"


def test_what_cannot_stand_in_for_the_text_log() -> None:
    """A process that was killed, a source that is missing, CUDA graphs left out: each may hide
    what only the log reports."""
    killed = without_text(processes=(process(ended=False),))
    one_source = without_text(processes=(process(counters=SEEN, hooks={"metrics_rows": False}),))
    skipped = without_text(cudagraphs=(CudagraphRun(0, (), {}, 1, None, None, None),))
    restarted = attempt("1/0", restart_reasons=("x\n  Explanation: y",))
    broken = replace(without_text(), compiles=(*without_text().compiles, restarted))
    for run in (killed, one_source, skipped, broken):
        assert reconcile(run).text_is_spare is False
        assert "CD902" in {finding.rule for finding in diagnose(run).findings}


def test_questions_that_are_missing_while_metrics_and_text_agree() -> None:
    """This torch has no such hook: the recompile is in both other sources, and nothing is blind."""
    row = recompile("0/1", problem=NO_QUESTION)
    run = timeline(
        [attempt("0/0"), attempt("0/1", kind="recompile", cause=row)],
        text_log=log(1),
        processes=(process(hooks={"recompile_reasons": False}),),
    )
    agreement = reconcile(run)
    assert (agreement.agree, agreement.sources["events"]) == (True, False)
    assert diagnose(run).verdict == "findings"
