"""The certificate as a whole: its points, what to execute again, and its document."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compilediag.certify.change import Change, ChangedFile
from compilediag.certify.judge import judge
from compilediag.certify.points import Certificate, ExecutedState, JudgedPoint
from compilediag.json_document import convert_to_builtins
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.views.certificate import MAX_BYTES, CertificateDocument, shorten_document
from compilediag_harness.wire import GraphRun, LinesRun, WatchedLines
from tests.support.certified_states import FILE, calls, compiled, printed, state, varied
from tests.support.timelines import WHERE

CHANGE = Change((ChangedFile(FILE, (3,)),), {}, {})
RECORDED: dict[str, Any] = {
    "graphs_run": (GraphRun(9.0, WHERE, 5, (), 2),),
    "lines_run": (LinesRun(9.0, FILE, (3,), (3,)),),
}


def make(value: float = 1.0, recompiles: int = 0, line: str = "loss 1.0") -> ExecutedState:
    records = (calls(1.0, value), printed(line), varied("as it was"), varied("size 4 → 1"))
    return state(*records, receipt=compiled(recompiles), **RECORDED)


BEFORE = make(recompiles=3)


def test_a_good_change_is_proved() -> None:
    certificate = judge(BEFORE, make(), CHANGE)
    assert certificate.verdict == "proved", certificate.reason
    names = "program exercised better compiled results".split()
    assert [point.name for point in certificate.points] == [*names, "other inputs", "cost"]
    assert certificate.points[-1].outcome == "stated"


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (make(1.5), "refused"),
        (make(recompiles=3), "refused"),
        (replace(make(), problem="it hung"), "refused"),
    ],
)
def test_a_bad_change_is_not(after: ExecutedState, verdict: str) -> None:
    assert judge(BEFORE, after, CHANGE).verdict == verdict


def test_of_a_state_that_does_not_run_nothing_else_is_judged() -> None:
    points = judge(BEFORE, replace(make(), problem="it hung"), CHANGE).points
    assert [point.name for point in points] == ["program"]


def test_a_line_that_did_not_run_is_not_decided() -> None:
    change = replace(CHANGE, files=(ChangedFile(FILE, (3, 4)),))
    assert judge(BEFORE, make(), change).verdict == "not decided"


def test_further_executions_are_asked_for_until_they_decide() -> None:
    noisy = judge(BEFORE, make(line="loss 2.0"), CHANGE)
    assert (noisy.verdict, noisy.further) == ("refused", "again")
    certain = judge(BEFORE, make(line="loss 2.0"), CHANGE, again=make())
    assert (certain.verdict, certain.further) == ("refused", None)
    rounded = judge(BEFORE, make(1.0002), CHANGE)
    assert rounded.further == "eager"
    assert judge(BEFORE, make(1.0002), CHANGE, eager=make(1.0001)).verdict == "proved"


def test_a_recorded_run_is_executed_once_more_for_a_branch_that_is_gone_alone() -> None:
    """Nobody asked it which lines ran. Where nothing is compiled that takes less time, so it comes
    first; in the other, what calls ran that were made again counts too."""
    change = replace(CHANGE, files=(ChangedFile(FILE, (3,), branches=((2, 5),)),))
    recorded = replace(BEFORE, is_watched=False)
    certificate = judge(recorded, make(), change)
    assert (certificate.verdict, certificate.further) == ("not decided", "eager")
    assert judge(recorded, make(recompiles=3), change).further is None
    missed = replace(CHANGE, files=(ChangedFile(FILE, (3, 8), branches=((2, 5),)),))
    assert judge(recorded, make(), missed).further is None, "nothing else would prove it"
    assert judge(recorded, make(), CHANGE).further is None
    timeline = replace(BEFORE.timeline, lines_run=(LinesRun(9.0, FILE, (2,), ()),))
    unseen = replace(BEFORE, timeline=timeline)
    assert judge(unseen, make(), change).further is None
    eager = judge(recorded, make(), change, eager=unseen)
    assert (eager.verdict, eager.further) == ("not decided", "again")
    ran = replace(BEFORE.timeline, lines_run=(LinesRun(9.0, FILE, (2, 5), ()),))
    assert judge(recorded, make(), change, eager=replace(BEFORE, timeline=ran)).verdict == "proved"
    seen_itself = replace(BEFORE, timeline=ran)
    assert judge(seen_itself, make(), change, eager=unseen).verdict == "proved"
    assert judge(recorded, make(), change, again=unseen).verdict == "not decided"
    made = replace(varied("size 4 → 1"), lines=(WatchedLines(FILE, (5,)),))
    seen = replace(timeline, varied_calls=(varied("as it was"), made))
    again = replace(BEFORE, timeline=seen)
    assert judge(recorded, make(), change, again=again).verdict == "proved"


def test_where_another_point_fails_nothing_further_is_executed() -> None:
    worse = judge(BEFORE, make(1.0002, recompiles=4), CHANGE)
    assert (worse.verdict, worse.further) == ("refused", None)


def make_document(certificate: Certificate, **texts: Any) -> CertificateDocument:
    reason, verdict = certificate.reason, certificate.verdict
    return CertificateDocument(
        verdict=verdict, reason=reason, points=certificate.points, executions=2, **texts
    )


LONG = Certificate(
    tuple(
        JudgedPoint(
            name,
            "fails",
            f"{name}: " + "long „sentence” " * 60,
            tuple(ProofFigure(f"figure {n}", 1.0, 2.0) for n in range(6)),
            ("detail " * 30,) * 50,
        )
        for name in (
            "program",
            "exercised",
            "better",
            "compiled",
            "results",
            "other inputs",
            "cost",
        )
    )
)


def test_the_document_is_small_without_all() -> None:
    texts: dict[str, Any] = {
        "base": "the recorded run " * 20,
        "change": ("/a/long/path/of/a/file.py",) * 40,
    }
    whole = make_document(LONG, **texts)
    small = shorten_document(whole)
    assert len(msgspec.json.encode(convert_to_builtins(small))) <= MAX_BYTES
    assert [point.name for point in small.points] == [point.name for point in LONG.points]
    assert not small.points[0].details


def test_a_short_document_is_whole() -> None:
    certificate = judge(BEFORE, make(), CHANGE)
    document = shorten_document(make_document(certificate, base="HEAD", change=("a.py",)))
    assert [point.sentence for point in document.points] == [
        point.sentence for point in certificate.points
    ]
    assert document.points[2].figures == certificate.points[2].figures
