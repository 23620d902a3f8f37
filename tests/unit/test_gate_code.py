"""Which receipts are of the code that is checked out, and which are of other code."""

import pytest
from gate_receipts import receipt

from compilediag.compare.gate.inconclusive import (
    CHANGED,
    NO_FILE,
    WorkingTree,
    compare_code,
    is_code,
)
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.receipt.schema.identity import Provenance

RAN = Provenance(
    git_commit="a" * 40,
    source="git",
    source_sha256={"train.py": "1", "conf.yaml": "2"},
    imports_complete=True,
    folder=".",
)
SAME = WorkingTree("a" * 40, {"train.py": "1", "conf.yaml": "2"}, ())


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (WorkingTree("a" * 40, {"train.py": "9", "conf.yaml": "2"}, ()), "train.py has changed"),
        (WorkingTree("a" * 40, {"train.py": NO_FILE, "conf.yaml": "2"}, ()), "train.py has"),
        (WorkingTree("a" * 40, {"train.py": None, "conf.yaml": "2"}, ()), "train.py has"),
        (WorkingTree("a" * 40, {}, None), "train.py, conf.yaml have changed since the run"),
        (WorkingTree("b" * 40, SAME.digests, ("data.json",)), "data.json has changed"),
        (WorkingTree("b" * 40, SAME.digests, None), "bbbbbbbbbb is checked out; what differs"),
    ],
)
def test_other_code_is_not_judged(here: WorkingTree, words: str) -> None:
    """A changed, missing or unreadable file, and another commit that cannot be compared with."""
    (reason,) = compare_code(RAN, here).reasons
    assert reason.startswith("the receipt is of other code: ")
    assert words in reason
    judged = judge(receipt(), code=compare_code(RAN, here))
    assert (judged.judged, judged.passed) == (False, False)
    assert record_baseline(receipt(), None, code=compare_code(RAN, here)).inconclusive == (reason,)


@pytest.mark.parametrize(
    "changed", ["README.md", "docs/a.rst", "compilediag.lock.json", "test_train.py", "allowed.json"]
)
def test_what_changes_nothing_of_the_run_does_not_count(changed: str) -> None:
    """Documents, the baseline under any name, and source that the run did not import."""
    here = WorkingTree("b" * 40, SAME.digests, (changed,), baseline="allowed.json")
    assert compare_code(RAN, here).reasons == ()


def test_source_counts_where_the_imports_are_not_known() -> None:
    """A receipt that holds the digest of its script alone."""
    ran = Provenance(git_commit="a" * 40, source_sha256={"train.py": "1"})
    here = WorkingTree("b" * 40, {"train.py": "1"}, ("model.py",))
    assert "model.py has changed" in compare_code(ran, here).reasons[0]


def test_a_file_written_during_the_run_does_not_say_which_version_ran() -> None:
    """Whatever is there now."""
    ran = Provenance(source_sha256={"model.py": CHANGED})
    (reason,) = compare_code(ran, WorkingTree(None, {"model.py": "1"}, None)).reasons
    assert "model.py was written while the run went on" in reason


def test_a_deleted_file_is_the_same_where_it_is_still_absent() -> None:
    """A tracked file that had been deleted before the run."""
    ran = Provenance(git_commit="a" * 40, source_sha256={"old.json": NO_FILE})
    here = WorkingTree("a" * 40, {"old.json": NO_FILE}, ("old.json",))
    assert compare_code(ran, here).reasons == ()


def test_a_receipt_without_any_provenance_is_judged_with_a_notice() -> None:
    """Of a trace from elsewhere nobody can say which code it is of."""
    found = compare_code(Provenance(), WorkingTree("b" * 40, {}, None))
    assert found.reasons == ()
    assert judge(receipt(), code=found).notices[0] == (
        "the receipt does not record which code it is of"
    )


def test_bytecode_is_no_code() -> None:
    """A repository that tracks it has it written anew by every run."""
    assert not is_code("package/__pycache__/model.cpython-311.pyc")
    assert is_code("package/model.py")
