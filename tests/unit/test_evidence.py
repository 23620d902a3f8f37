"""What the record is worth: blind spots are named, and frames that ran eager unseen are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from timelines import FILE, PACKAGE_FILE, TORCH_FILE, at_limit, attempt, log, process, timeline

from compilediag.diagnosis.findings import Finding, place_of
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.evidence import (
    find_disagreement,
    find_eager_frames,
    find_eager_stances,
    find_stored_profiles,
    find_torn_evidence,
)
from compilediag.timeline.invocations import Calls, StanceCalls
from compilediag.timeline.timeline import Process, Timeline
from compilediag_harness.wire import (
    EvidenceLost,
    FaultOccurred,
    FrameSkipped,
    Location,
    WarningSeen,
)

MODE = "non-infra torch dispatch mode present"


def skipped(reason: str, file: str = FILE) -> Timeline:
    """A run in which Dynamo refused one frame without a metrics row."""
    frame = FrameSkipped(0.0, 2, Location(file, 3, "helper"), reason)
    return timeline([attempt("0/0")], skipped=(frame,))


def one(found: object) -> Finding:
    (finding,) = found  # type: ignore[misc]
    return finding


def test_torn_evidence() -> None:
    """Every loss is listed, with the step in which it was noticed."""
    lost = (
        EvidenceLost(1.0, 4, "text_log", "logger torch._dynamo was silenced by the program"),
        EvidenceLost(1.0, 9, "metrics", "torch keeps no metrics rows"),
    )
    run = timeline([attempt("0/0")], lost=lost, processes=(process(records_dropped=7),))
    finding = one(find_torn_evidence(run))
    assert (finding.rule, finding.count, finding.steps) == ("CD902", 3, (4, 9))
    assert finding.evidence["records_dropped"] == 7
    assert list(find_torn_evidence(timeline([attempt("0/0")]))) == []


def test_sources_disagree() -> None:
    """The finding holds the sentence and every number compared."""
    run = timeline([attempt("0/0")], text_log=log(3))
    finding = one(find_disagreement(run))
    assert (finding.rule, finding.severity) == ("CD903", "error")
    assert finding.evidence["numbers"]["text_recompiling_lines"] == 3  # type: ignore[index]
    assert list(find_disagreement(replace(run, text_log=log(0)))) == []


def test_a_frame_that_ran_eager() -> None:
    """A refused frame of the user is an error with torch's reason and the seconds spent on it."""
    failed = attempt("0/0", kind="failed", seconds=0.4, fail_reason="missing tp_iter\n  Explana")
    finding = one(find_eager_frames(timeline([failed])))
    assert (finding.rule, finding.severity, finding.cost_s) == ("CD904", "error", 0.4)
    assert finding.title == "forward ran eager: missing tp_iter"
    assert finding.location == place_of(Location(FILE, 10, "forward"))


def test_owners_of_eager_frames() -> None:
    """A third party's frame is a warning; torch's own frames are skipped by design."""
    theirs = Location(PACKAGE_FILE, 5, "rearrange")
    finding = one(find_eager_frames(timeline([attempt("0/0", kind="failed", where=theirs)])))
    assert (finding.ownership, finding.severity) == ("third_party", "warning")
    own = Location(TORCH_FILE, 5, "inner")
    assert list(find_eager_frames(timeline([attempt("0/0", kind="failed", where=own)]))) == []


def test_the_limit_is_not_reported_twice() -> None:
    """A frame over the recompile limit is CD152."""
    assert list(find_eager_frames(timeline(at_limit(8)))) == []


@pytest.mark.parametrize(
    ("fail_type", "rule", "outcome"),
    [
        (None, "CD904", "ran eager"),
        ("Unsupported", "CD904", "ran eager"),
        ("NotImplementedError", "CD904", "could not be compiled"),
        ("BackendCompilerFailed", "CD210", "could not be compiled"),
    ],
)
def test_what_became_of_the_call(fail_type: str | None, rule: str, outcome: str) -> None:
    """torch falls back for what it does not support, and raises what it did not expect."""
    failed = attempt("0/0", kind="failed", fail_type=fail_type, fail_reason="why")
    finding = one(find_eager_frames(timeline([failed])))
    assert (finding.rule, finding.title) == (rule, f"forward {outcome}: why")
    assert finding.severity == "error"


def test_generators() -> None:
    """A generator function is one that the user compiled; the inside an expression is not."""
    run = skipped("Attempt to trace generator")
    assert one(find_eager_frames(run)).rule == "CD904"
    inside = replace(run.skipped[0], frame=Location(FILE, 3, "<genexpr>"))
    assert list(find_eager_frames(replace(run, skipped=(inside,)))) == []


@pytest.mark.parametrize(
    ("reason", "file", "expected"),
    [
        (MODE, FILE, "user"),
        (MODE, PACKAGE_FILE, "third_party"),
        (MODE, TORCH_FILE, None),
        ("frame is in the Dynamo skipfiles list", FILE, "user"),
        ("frame is in the Dynamo skipfiles list", PACKAGE_FILE, None),
        ("Dynamo decided to skip the frame while tracing: x", FILE, "user"),
        # Nothing to compile there, or the user asked for it.
        ("no tensor-related objects found in frame", FILE, None),
        ("frame was generated by exec()", FILE, None),
        ("frame is a namedtuple constructor", FILE, None),
        ("frame is already Dynamo-generated code", FILE, None),
        ("`__setattr__` frames are not compiled", FILE, None),
        ("Dynamo tracing is disabled", FILE, None),
        ("frame has already started executing", FILE, None),
    ],
)
def test_refusals(reason: str, file: str, expected: str | None) -> None:
    """Frames Dynamo refused without a metrics row: the user's, and a package's if unexpected."""
    findings = list(find_eager_frames(skipped(reason, file)))
    assert [finding.ownership for finding in findings] == ([expected] if expected else [])
    if findings:
        assert findings[0].steps == (2,)
        assert reason in str(findings[0].evidence["reason"])


def test_a_stored_profile_in_use() -> None:
    """torch's own message proves the use; a job id alone makes it possible."""
    text = "get_code_state /cache/code_state_0.pkl hit local, 2 entries"
    used = timeline([attempt("0/0")], text_log=log(profile_uses=(text,)))
    finding = one(find_stored_profiles(used))
    assert (finding.rule, finding.severity, finding.confidence) == ("CD905", "info", "exact")
    logged = WarningSeen(1.0, 0, "", "torch._dynamo.pgo", text)
    assert one(find_stored_profiles(timeline(warnings=(logged,)))).confidence == "exact"
    env = {"TORCH_COMPILE_JOB_ID": "nightly"}
    possible = timeline([attempt("0/0")], processes=(process(facts={"env": env}),))
    assert one(find_stored_profiles(possible)).confidence == "text"
    assert list(find_stored_profiles(timeline([attempt("0/0")]))) == []


def test_profiles_switched_off() -> None:
    """With local profiles switched off a job id stores and uses nothing."""
    env = {"TORCH_COMPILE_JOB_ID": "x", "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0"}
    for facts in ({"env": env}, {"compile": {"job_id": "x", "local_profile": "0"}}):
        assert list(find_stored_profiles(timeline(processes=(process(facts={**facts}),)))) == []


def test_a_fault_of_ours_is_lost_evidence() -> None:
    """What a collector failed to record must not read as nothing happened."""
    fault = FaultOccurred(1.0, "recompile analysis", "ValueError: x")
    findings = list(find_torn_evidence(Timeline(faults=(fault,))))
    assert [finding.rule for finding in findings] == ["CD902"]
    assert "recompile analysis" in findings[0].title


def test_calls_under_a_stance_that_compiles_nothing() -> None:
    """They are never clean in silence; a block under force_eager that has ended is a note."""
    where = Location("/home/u/serve.py", 9, "warm_up")
    function = Location("/home/u/model.py", 3, "score")
    calls = Calls(0, function, 8, (), (), ())

    def findings(stance: str, last: str) -> list[tuple[str, str, int, Location | None]]:
        timeline = Timeline(
            processes=(Process(0, None, None, {"stance": last}, None),),
            invocations=(calls,),
            stance_calls=(StanceCalls(0, function, stance, 5, where),),
        )
        found = find_eager_stances(timeline)
        return [(item.title, item.severity, item.count, item.location) for item in found]

    title = '5 of 8 calls under the stance "{}"'
    assert findings("eager_on_recompile", "default") == [
        (title.format("eager_on_recompile"), "warning", 5, place_of(where))
    ]
    assert findings("force_eager", "force_eager")[0][1] == "warning"
    assert findings("force_eager", "default")[0][1] == "info"


def test_a_stance_of_a_damaged_journal() -> None:
    """It is nobody's stance, and costs no receipt."""
    calls = StanceCalls(0, Location("a.py", 1, "f"), "unheard_of", 1, None)
    assert list(find_eager_stances(Timeline(stance_calls=(calls,)))) == []


def test_a_field_of_another_type_costs_itself_alone() -> None:
    """Another rule may use a name for something else; what else the evidence has is read."""
    read = GuardEvidence.of({"expected": "1", "actual": "2", "buckets": [[4]], "limit": "none"})
    assert (read.expected, read.actual, read.buckets, read.limit) == ("1", "2", (), None)
