"""The receipt of a run, from values made by hand: counts, causes, seconds, checks, no secrets."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from built_receipt import (
    AGREED,
    BREAK,
    CWD,
    DIAGNOSIS,
    RUN,
    built,
    compiled,
    ended,
    events,
    finding,
    flag_guard,
    recompiled,
    started,
    torch_seen,
)
from receipt_schema import json_schema

from compilediag.diagnosis.reconcile import Agreement
from compilediag.receipt import compiles
from compilediag.receipt.assemble import TAIL_BYTES, build_receipt
from compilediag.receipt.file import encode_receipt
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.compiles import ExcerptRecord
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.wire import (
    EntryDiff,
    Event,
    EvidenceLost,
    GraphBroke,
    GuardFacts,
    ProcessEnded,
    Recompiled,
    VaryingEnded,
)

GOLDEN = Path(__file__).parents[1] / "data" / "receipt-1.0.json"


def golden() -> bytes:
    """The bytes of the golden receipt, which is built with the version of its release."""
    receipt = built()
    return encode_receipt(receipt).replace(
        f'"version": "{receipt.header.producer.version}"'.encode(), b'"version": "0.1.0"'
    )


def test_golden() -> None:
    """The receipt of one run, byte for byte but for the last digits of sums, which Python adds up
    better from 3.12 on; running this file as a program makes it anew.

    After the release of a version its golden file must not change any more.
    """
    assert _rounded(golden()) == _rounded(GOLDEN.read_bytes())


def _rounded(text: bytes) -> str:
    """Twelve digits of each fraction, everything else as it is."""
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.12g}", text.decode())


def test_valid_by_an_independent_validator() -> None:
    """Built receipts fit the JSON Schema, also where nothing at all was seen."""
    validator = jsonschema.Draft202012Validator(json_schema())
    blind = Diagnosis((), "blind", Agreement({}, None, (), {}))
    nothing = build_receipt(
        Timeline(), blind, RunMetadata("01JD3Q0000000000000000000Z", "2026-11-20T14:45:00Z")
    )
    for receipt in (built(), nothing):
        validator.validate(json.loads(encode_receipt(receipt)))


@pytest.mark.parametrize(
    ("more", "run"),
    [
        (events()[:-1], RUN),
        ([*events()[:-1], ended(records_dropped=1)], RUN),
        ([*events()[:-1], EvidenceLost(3.0, 1, "text_log", "silenced"), ended()], RUN),
        ([started(), torch_seen({"metrics_rows": "no counts"}), ended()], RUN),
        (None, replace(RUN, journal=JournalFacts(11, torn_tail=True))),
        (None, replace(RUN, journal=JournalFacts(11, records_lost={"bad_json": 1}))),
        ([started(), ended()], RUN),
    ],
    ids=["no end", "dropped", "silenced", "hook missing", "torn", "bad record", "no torch"],
)
def test_incomplete_evidence(more: list[Event] | None, run: RunMetadata) -> None:
    """Every way to lose evidence turns the check false."""
    assert built(more, run).checks.evidence_complete is False


def test_what_is_missing_is_told() -> None:
    """A missing hook and a silenced source are reasons; losses are counted by reason."""
    silenced = EvidenceLost(3.0, 1, "text_log", "the program replaced the handlers")
    run = replace(RUN, journal=JournalFacts(3, True, {"bad_json": 2, "gap": 1}))
    found = built([started(), torch_seen({"metrics_rows": "no counts"}), silenced], run)
    assert found.completeness.reasons == (
        "metrics_rows: no counts",
        "text_log: the program replaced the handlers",
    )
    assert found.completeness.journal_torn_tail is True
    assert found.completeness.records_lost == {
        "bad_json": 2,
        "bad_payload_hash": 0,
        "too_long": 0,
        "unknown_kind": 0,
        "gap": 1,
    }


def test_calls_that_are_made_again_at_the_end_are_no_time_of_the_program() -> None:
    again = VaryingEnded(3.0, 0.5, ())
    plain, recorded = (built([*events()[:-1], *more, ended()]) for more in ((), (again,)))
    assert plain.goodput is not None
    assert recorded.goodput is not None
    assert recorded.goodput.wall_s == plain.goodput.wall_s - 0.5


def test_ranks() -> None:
    """A rank whose journal did not arrive is named by its absence."""
    journals = [[started(rank, 4, pid=rank), torch_seen(), ended()] for rank in (0, 1, 3)]
    receipt = build_receipt(fold(journals, None, ()), DIAGNOSIS, RUN)
    assert receipt.completeness.ranks_expected == 4
    assert receipt.completeness.ranks_present == (0, 1, 3)
    assert receipt.checks.all_ranks_reported is False
    assert (receipt.header.run.rank, receipt.header.run.world_size) == (0, 4)


def test_disagreement_is_told_with_its_numbers() -> None:
    """What the sources said stands in the receipt, not only that they differ."""
    differing = Agreement(
        {"events": True, "metrics": True, "text_log": True}, False, ("3, but 4",), {"a": 3, "b": 4}
    )
    receipt = built(diagnosis=Diagnosis((), "blind", differing))
    assert receipt.verdict == "blind"
    assert receipt.completeness.sources.agree is False
    assert receipt.completeness.differences == ("3, but 4",)
    assert receipt.completeness.numbers == {"a": 3, "b": 4}


FAILED = replace(RUN, status="failed", exit_code=1)


@pytest.mark.parametrize(
    ("run", "reason", "no_oom"),
    [
        (replace(FAILED, failure_reason="ValueError: x"), "ValueError: x", None),
        (replace(FAILED, log_tail="torch.OutOfMemoryError: ..."), "KeyError: 1", False),
        (replace(RUN, status="killed", exit_code=137, failure_reason="SIGKILL"), "SIGKILL", None),
    ],
)
def test_failures(run: RunMetadata, reason: str, no_oom: bool | None) -> None:
    """A failed run says why: the parent's reason, else the exception that the process reported;
    only a known cause answers the question about memory."""
    receipt = built([*events()[:-1], ended(failure="KeyError: 1")], run)
    assert receipt.failure.reason == reason
    assert receipt.checks.exit_code_zero is False
    assert receipt.checks.no_oom is no_oom


def test_log_tail_is_bounded_and_begins_with_a_line() -> None:
    """At most 8 KiB of UTF-8, cut at the front, between two lines."""
    lines = "".join(f"línea {number}\n" for number in range(2000))
    receipt = built(run=replace(RUN, status="failed", exit_code=1, log_tail=lines))
    tail = receipt.failure.log_tail
    assert len(tail.encode()) <= TAIL_BYTES
    assert tail.startswith("línea ")
    assert lines.endswith(tail)


def test_without_a_parent() -> None:
    """`watch()` knows neither exit code nor journal: null, and no check fails for it."""
    facts = RunMetadata("01JD3Q0000000000000000000Z", "2026-11-20T14:45:00Z", wall_s=5.0)
    receipt = built(run=facts)
    assert receipt.checks.exit_code_zero is None
    assert receipt.completeness.journal_records is None
    assert receipt.header.configuration.name == "model.py"
    assert receipt.header.run.argv_redacted == ("model.py", "--lr", "3e-4")
    assert receipt.checks.evidence_complete is True


def test_many_compiles_are_counted_and_not_all_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is bounded, the counts are not, and the receipt says so."""
    monkeypatch.setattr(compiles, "MAX_EVENTS", 20)
    rows: list[Event] = [compiled(f"{number}/0", 0.5, 0, 0.0) for number in range(23)]
    receipt = built([started(), torch_seen(), *rows, ended()])
    assert receipt.compile.compiles == 23
    assert len(receipt.compile.events) == 20
    assert receipt.completeness.reasons == (
        "compile.events: 3 later compiles are counted and not listed",
    )


def test_entries_that_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recompile lists them, nearest first, until there are too many in the receipt."""
    known = replace(flag_guard(), novel=False)
    new = replace(flag_guard(), source="G['n']", text="G['n'] == 1", novel=True)
    entries = (EntryDiff("0/0", (known, new), 9), EntryDiff("0/1", (new,), 9, left_out=2))
    asked = replace(recompiled("0/2", 0.5, 1), entries=entries, entries_left_out=3)
    rows: list[Event] = [compiled("0/0", 0.5, 0, 0.0), compiled("0/1", 0.5, 0, 0.0)]
    rows += [asked, compiled("0/2", 0.5, 1, 0.6)]
    event = built([started(), torch_seen(), *rows, ended()]).compile.events[-1]
    assert [(item.compile_id, item.left_out) for item in event.entries] == [("0/1", 2), ("0/0", 0)]
    assert [[guard.novel for guard in item.guards] for item in event.entries] == [
        [True],
        [False, True],
    ]
    assert event.entries_left_out == 3
    monkeypatch.setattr(compiles, "MAX_FALSE_GUARDS", 2)
    event = built([started(), torch_seen(), *rows, ended()]).compile.events[-1]
    assert (event.entries, event.entries_left_out) == ((), 5)


def test_not_a_number_raises_a_check() -> None:
    """NaN and infinities become null, and the receipt says that there were some."""
    nan = finding(cost_s=float("nan"), evidence={"ratio": float("inf"), "n": 1})
    receipt = built(diagnosis=Diagnosis((nan,), "findings", AGREED))
    assert receipt.findings[0].cost_s is None
    assert receipt.findings[0].evidence == {"ratio": None, "n": 1}
    assert receipt.checks.values_finite is False


CANARIES = {
    "argv": "hf_CANARYargvABCDEFGH0123456789",
    "argv value": "plain-canary-password",
    "environment": "ghp_CANARYenvironment0123456789abcdef",
    "guard": "sk-CANARYguard0123456789abcdefghij",
    "guarded value": "quiet canary phrase",
    "reason": "xoxb-0123456789-CANARYreason",
    "evidence": "glpat-CANARYevidence0123456789",
    "failure": "AKIACANARYFAILURE012",
    "tail": "https://canaryuser:canarypass@example.org",
    "break": "eyJjYW5hcnkiOiAxfQCANARYbreak.eyJjYW5hcnkiOiAxfQ.c2lnbmF0dXJl",
    "known": "swordfish-known-to-the-parent",
}


def test_no_canary_is_in_the_receipt() -> None:
    """Secrets planted in every place a program can put them: none is in the receipt's bytes."""
    planted = CANARIES
    guard = replace(
        flag_guard(f"'{planted['guarded value']}'", f"'{planted['guard']}'"),
        source="L['cfg'].api_key",
        text=f"L['cfg'].api_key == '{planted['guarded value']}'",
        facts=GuardFacts(root="argument", value_type="str"),
    )
    question = replace(
        recompiled("0/1", 2.6, 3, guard), reasons=(f"0/0: L['u'] == '{planted['reason']}'",)
    )
    planned = [
        item for item in events() if not isinstance(item, (Recompiled, GraphBroke, ProcessEnded))
    ]
    planned += [question, GraphBroke(2.0, 0, "0/0", 0, BREAK.replace("Data-dep", planted["break"]))]
    planned += [ended(failure=f"Error: {planted['failure']}")]
    argv = ("model.py", planted["argv"], "--password", planted["argv value"])
    planned[0] = replace(started(), argv=argv)
    run = replace(
        RUN,
        status="failed",
        exit_code=1,
        argv=argv,
        environment={"TORCH_LOGS": f"recompiles,{planted['environment']}"},
        secret_values=(planted["known"],),
        log_tail=f"GET {planted['tail']}\n{planted['argv value']}\n{planted['known']}\x1b[1m"
        + planted["reason"],
        extensions={"note": planted["reason"]},
    )
    timeline = fold([sorted(planned, key=lambda item: item.t)], None, (CWD,))
    diagnosis = diagnose(timeline)
    extra = finding(evidence={"reasons": [f"x == '{planted['evidence']}'", planted["known"]]})
    diagnosis = replace(diagnosis, findings=(*diagnosis.findings, extra))
    lines = (f"client = Client({planted['reason']!r})", f"password = {planted['argv value']!r}")
    excerpt = ExcerptRecord(file="model.py", line=2, function="main", first=1, lines=lines)
    run = replace(run, excerpts={extra.id: (excerpt,)})
    content = encode_receipt(build_receipt(timeline, diagnosis, run)).decode()
    leaked = [name for name, secret in planted.items() if secret in content]
    leaked += [word for word in ("canaryuser", "canarypass", "CANARY") if word in content]
    assert leaked == []
    redactions = json.loads(content)["header"]["run"]["redactions"]
    assert redactions["count"] >= len(planted) - 1
    assert {"aws", "secret_name", "known_value"} <= set(redactions["rules"])


def test_the_canaries_would_be_found() -> None:
    """The same texts without redaction do contain them: the test above can fail."""
    raw = repr(replace(RUN, argv=tuple(CANARIES.values())))
    assert all(secret in raw for secret in CANARIES.values())


if __name__ == "__main__":
    GOLDEN.write_bytes(golden())
    sys.exit(0)
