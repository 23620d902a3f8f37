"""A gate that demands a proved change for each finding."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import enter_plain_repository
from gate_receipts import again, branch, first, receipt
from msgspec.structs import replace
from timelines import PACKAGE_FILE

from compilediag.certify.points import JudgedPoint
from compilediag.cli import main
from compilediag.commands.certify import add_certified
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.gate.judgement import Judgement
from compilediag.compare.gate.limits import parse_limits
from compilediag.receipt.file import write_receipt
from compilediag.receipt.proofs import compute_sources_digest
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    ProofPoint,
    ProofRecord,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.certificate import CertificateDocument

LINE = "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['n']\""


def with_digests(run: Receipt, **digests: str) -> Receipt:
    provenance = replace(run.header.provenance, source_sha256=digests)
    return replace(run, header=replace(run.header, provenance=provenance))


CLEAN = receipt()
FOUND = with_digests(receipt(first(), again("n")), **{"app.py": "aa"})
DIGEST = compute_sources_digest({"app.py": "aa"})
GOOD = ProofRecord(
    kind="environment",
    change=LINE,
    risk="slower",
    runs=3,
    points=(ProofPoint(name="finding", passed=True, sentence="recompiles 1 → 0"),),
    torch=FOUND.environment.torch,
    sources=DIGEST,
)


def with_proof(run: Receipt, proof: ProofRecord | None, *refused: str) -> Receipt:
    """Every finding that is more than information with this proof."""
    tried = tuple(RefusedChange(change=each, reason="no") for each in refused)

    def changed(item: FindingRecord) -> FindingRecord:
        if item.severity == "info":
            return item
        return replace(item, fix=replace(item.fix, proof=proof, refused=tried))

    return replace(run, findings=tuple(map(changed, run.findings)))


def judged(run: Receipt, **more: Any) -> Judgement:
    return judge(run, require_proved_fix=True, **more)


def test_a_finding_needs_a_proved_change() -> None:
    found = judged(FOUND)
    assert [(item.kind, item.rule, item.finding) for item in found.failures] == [
        ("unproved", "CD107", "F1")
    ]
    assert found.failures[0].message.endswith("no change is proved; run `compilediag fix 1`")
    assert judge(FOUND).passed


def test_what_was_tried_in_vain_is_to_be_edited() -> None:
    (failure,) = judged(with_proof(FOUND, None, "a", "b")).failures
    assert failure.message.endswith(
        "no change is proved (2 were tried and refused); run `compilediag explain 1`"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sources": "00"}, "its change was proved for other code"),
        ({"torch": "2.7.1"}, "its change was proved with torch 2.7.1, and this run had"),
        ({"sources": None}, "code and a torch that are not known"),
        ({"torch": None}, "code and a torch that are not known"),
        ({"runs": 1}, "its change did not hold in two runs"),
        (
            {"points": (ProofPoint(name="answers", passed=False, sentence="other results"),)},
            "its change did not hold in two runs",
        ),
    ],
)
def test_other_proofs_count_as_none(change: dict[str, Any], why: str) -> None:
    proof = ProofRecord(**{name: getattr(GOOD, name) for name in GOOD.__struct_fields__} | change)
    (failure,) = judged(with_proof(FOUND, proof)).failures
    assert why in failure.message
    assert failure.proved is None


def test_a_file_that_was_added_is_other_code() -> None:
    more = with_digests(FOUND, **{"app.py": "aa", "model.py": "bb"})
    assert not judged(with_proof(more, GOOD)).passed


def test_what_the_baseline_allows_needs_one_too() -> None:
    """And what is new fails as ever, with its proof shown."""
    known = record_baseline(FOUND, None, reason="accepted").baseline
    more = {"baseline": known, "baseline_name": "x.json"}
    assert judge(FOUND, **more).passed
    assert [item.kind for item in judged(FOUND, **more).failures] == ["unproved"]
    assert judged(with_proof(FOUND, GOOD), **more).passed
    none = record_baseline(CLEAN, None).baseline
    (failure,) = judged(with_proof(FOUND, GOOD), baseline=none, baseline_name="x").failures[:1]
    assert (failure.kind, failure.proved) == ("cause", f"{LINE} (recompiles 1 → 0)")


def test_limits_come_first_and_both_are_judged() -> None:
    kinds = [item.kind for item in judged(FOUND, limits=parse_limits("CD107>0")).failures]
    assert kinds[-1] == "unproved"
    assert "limit" in kinds


def test_only_own_code_where_that_is_asked() -> None:
    foreign = receipt(breaks=[branch(3, "call", PACKAGE_FILE)])
    assert not judged(foreign).passed
    assert judged(foreign, own_code_only=True).passed


def test_what_cannot_be_judged_does_not_pass_by_a_proof() -> None:
    assert not judged(replace(with_proof(FOUND, GOOD), verdict="blind")).judged


@pytest.fixture(autouse=True)
def plain_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_plain_repository(monkeypatch, tmp_path)


def gate(run: Receipt, *words: str) -> int:
    write_receipt(run, Path("r.json"))
    return main(["gate", "r.json", "--any-code", *words])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It needs neither a baseline nor a limit, and says what to run."""
    unknown = replace(FOUND, header=replace(FOUND.header, run=ran("train.py", "--lr", "1")))
    assert gate(unknown, "--require-proved-fix") == 3
    out = capsys.readouterr().out
    assert "1 finding without a proved change" in out
    assert "next: compilediag fix train.py --lr 1" in out
    assert gate(with_proof(FOUND, None, "a"), "--require-proved-fix") == 3
    assert "next: compilediag explain 1 r.json" in capsys.readouterr().out
    assert gate(CLEAN, "--require-proved-fix") == 0
    assert gate(with_proof(FOUND, GOOD), "--require-proved-fix") == 0


def ran(*words: str) -> Any:
    return replace(FOUND.header.run, argv_redacted=words)


def test_pyproject(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("[tool.compilediag.gate]\nrequire_proved_fix = true\n")
    assert gate(FOUND) == 3
    assert gate(FOUND, "--update", "--reason", "accepted") == 0
    assert json.loads(Path("compilediag.lock.json").read_text())["lanes"]
    Path("pyproject.toml").write_text("[tool.compilediag.gate]\nrequire_proofs = true\n")
    assert gate(FOUND) == 2
    assert "unknown key 'require_proofs' in [tool.compilediag.gate]" in capsys.readouterr().err


# --- by `certify` ---------------------------------------------------------------------------------

DOCUMENT = CertificateDocument(
    schema="compilediag.certificate",
    verdict="proved",
    base="HEAD",
    change=("train.py",),
    executions=1,
    points=(
        JudgedPoint(name="results", outcome="holds", sentence="equal"),
        JudgedPoint(name="cost", outcome="stated", sentence="1 s"),
    ),
)


def test_findings_that_are_gone_are_proved() -> None:
    proved = add_certified(FOUND, replace(FOUND, findings=()), DOCUMENT)
    assert not judged(FOUND).passed
    assert judged(proved).passed


def test_findings_that_remain_are_not() -> None:
    assert not judged(add_certified(FOUND, FOUND, DOCUMENT)).passed


def test_the_proof_is_for_this_code() -> None:
    proved = add_certified(FOUND, replace(FOUND, findings=()), DOCUMENT)
    header = proved.header
    other = replace(header.provenance, source_sha256={"app.py": "bb"})
    moved = replace(proved, header=replace(header, provenance=other))
    assert not judged(moved).passed


def test_a_point_that_fails_is_no_proof() -> None:
    failed = replace(DOCUMENT, points=(replace(DOCUMENT.points[0], outcome="fails"),))
    assert not judged(add_certified(FOUND, replace(FOUND, findings=()), failed)).passed
