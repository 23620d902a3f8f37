"""Keys of findings: names that stay the same over runs, whatever else a run finds."""

import pytest
from msgspec.structs import replace

from compilediag.commands.receipts import find_finding
from compilediag.errors import UsageError
from compilediag.option_fields import names_finding
from compilediag.receipt.finding_keys import assign_keys
from compilediag.receipt.schema.compiles import FindingRecord, Place
from tests.support.gate_receipts import again, branch, receipt
from tests.support.receipt_records import finding_record

FORWARD = Place(file="model.py", line=3, function="forward")
RESUMED = replace(FORWARD, function="torch_dynamo_resume_in_forward_at_31")


def keys(*findings: FindingRecord) -> list[str | None]:
    return [finding.key for finding in assign_keys(findings)]


@pytest.mark.parametrize(
    ("variable", "place", "key"),
    [
        ("pos.pe", FORWARD, "CD103-pe"),
        ('self.cfg["k"]', FORWARD, "CD103-k"),
        ("layers[3].rotary", None, "CD103-rotary"),
        ("cache[140212345678912]", FORWARD, "CD103-cache"),
        ("cache[key 1]", FORWARD, "CD103-cache"),
        ("größe", FORWARD, "CD103-größe"),
        (None, FORWARD, "CD103-forward"),
        (None, RESUMED, "CD103-forward"),
        (None, replace(FORWARD, function="<lambda>"), "CD103-lambda"),
        ("[0]", None, "CD103-lazy-buffer"),
        ("x" * 90, FORWARD, "CD103-" + "x" * 40),
    ],
)
def test_a_key_is_the_rule_and_the_last_name(variable, place, key) -> None:
    """Of the variable, else of the function, else of the rule; addresses are no names."""
    assert keys(
        finding_record(rule="CD103", slug="lazy-buffer", variable=variable, location=place)
    ) == [key]


def test_findings_with_one_name_are_told_apart_by_what_they_are_about() -> None:
    """By frame and source, or by a break's reason; not by their line, their number or order."""
    one = finding_record(rule="CD103", slug="lazy-buffer", variable="a.pe", location=FORWARD)
    other = replace(one, variable="b.pe")
    elsewhere = replace(one, location=replace(FORWARD, function="decode"))
    both = keys(one, other, elsewhere)
    assert len(set(both)) == 3
    assert all(str(key).startswith("CD103-pe-") for key in both)
    moved = replace(one, location=replace(FORWARD, line=99), id="F7")
    assert keys(elsewhere, other, moved) == both[::-1]
    behind = [replace(one, location=replace(RESUMED, line=line)) for line in (31, 40)]
    assert len(set(keys(one, *behind))) == 3
    assert keys(one, *behind)[0] == both[0]
    prints = finding_record(rule="CD201", variable=None, location=FORWARD, title="print in forward")
    assert len(set(keys(prints, replace(prints, title="warn in forward")))) == 2
    divisible = finding_record(rule="CD118", variable="x", location=FORWARD, title="no multiple")
    equal = replace(divisible, title="sizes that are equal differ")
    kinds = keys(divisible, equal, replace(equal, location=RESUMED))
    assert len(set(kinds)) == 3
    assert keys(replace(equal, location=replace(FORWARD, line=99)), divisible) == kinds[1::-1]


def test_a_receipt_has_them() -> None:
    """Also where one finding is of a break; a run with less keeps the keys of what it has."""
    both = receipt(again("n", 1, 1), again("m", 2, 2), breaks=(branch(),))
    assert [finding.key for finding in both.findings] == ["CD107-n", "CD107-m", "CD201-forward"]
    assert [finding.key for finding in receipt(again("m")).findings] == ["CD107-m"]


def test_a_finding_is_found_by_number_and_by_key() -> None:
    """In any case of letters; what is neither is named with what there is."""
    one = receipt(again("n", 1, 1), again("m", 2, 2))
    for word in ("2", "F2", "f2", "CD107-m", "cd107-M"):
        assert names_finding(word)
        assert find_finding(word, one, "r.json").id == "F2"
    assert not any(map(names_finding, ("train.py", "CD107", "F", "")))
    with pytest.raises(UsageError, match=r"r\.json has CD107-n, CD107-m, and no CD107-k"):
        find_finding("CD107-k", one, "r.json")
    with pytest.raises(UsageError, match=r"r\.json has findings 1 to 2, and no 3"):
        find_finding("3", one, "r.json")
    same = replace(one, findings=tuple(replace(each, key="CD107-n") for each in one.findings))
    with pytest.raises(UsageError, match="has F1 and F2 with this key"):
        find_finding("CD107-n", same, "r.json")
