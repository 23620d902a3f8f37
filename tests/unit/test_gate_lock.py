"""The baseline's file: one text for one content, merged by git, refused where it is not ours."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gate_lanes import lane
from gate_receipts import again, branch, eager, first, receipt
from msgspec.structs import replace
from timelines import PACKAGE_FILE, TORCH_FILE

from compilediag.compare.gate.baseline import LOCK_NAME, Baseline, format_lock, parse_lock
from compilediag.compare.gate.baseline_file import find_lock, read_lock, write_lock
from compilediag.compare.gate.judge import judge, list_enlarged, record_baseline
from compilediag.compare.keys import FrameKey
from compilediag.compare.run_baseline import KnownFrame, build_run_baseline
from compilediag.errors import BaselineUnreadable
from compilediag.receipt.finding_keys import normalize_file

RUN = receipt(first(), again("n"), eager(), breaks=[branch()])


def test_the_text_does_not_depend_on_the_order() -> None:
    """Two machines that saw the same in another order write the same bytes."""
    names = [f"v{index}" for index in range(9)]
    shuffled = random.Random(1).sample(names, len(names))
    one = format_lock(Baseline((lane("b", *names), lane("a"))))
    assert one == format_lock(Baseline((lane("a"), lane("b", *shuffled))))


def test_one_item_a_line() -> None:
    """A cause is one line of the file, so that a new one is one line of a diff."""
    before = format_lock(Baseline((lane("a", "n", "p"),))).splitlines()
    after = format_lock(Baseline((lane("a", "n", "o", "p"),))).splitlines()
    assert len(set(after) - set(before)) == 1
    assert set(before) <= set(after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.update(schema="other"), "is not a compilediag baseline"),
        (lambda raw: raw.update(schema_version="2.0"), "upgrade compilediag"),
        (lambda raw: raw.update(schema_version=None), "no schema version"),
        (lambda raw: raw.update(lanes=[]), "lanes: Expected `object`"),
        (lambda raw: raw["lanes"].update(a=3), "lanes: a: Expected `object`"),
        (lambda raw: raw["lanes"]["a"]["counts"].update(frames=-1), "counts: Expected `int` >= 0"),
        (lambda raw: raw["lanes"]["a"]["counts"].pop("frames"), "counts: frames is missing"),
        (lambda raw: raw["lanes"]["a"].update(causes={}), "causes: Expected `array`"),
        (lambda raw: raw["lanes"]["a"].update(causes=[3]), r"causes: Expected `object`.*\[0\]"),
        (lambda raw: raw["lanes"]["a"]["causes"][0].pop("rule"), r"causes\[0\]: .*field `rule`"),
        (lambda raw: raw["lanes"]["a"]["causes"][0].update(file=3), r"causes\[0\]: Exp.*file"),
        (
            lambda raw: raw["lanes"]["a"]["causes"].append(raw["lanes"]["a"]["causes"][0]),
            r"causes\[1\] is the same item as causes\[0\]",
        ),
        (lambda raw: raw["lanes"]["a"]["lane"].update(preset=[]), r"lane: .*got `array`"),
        (lambda raw: raw["lanes"]["a"].update(recordings="2"), r"recordings: .*got `str`"),
    ],
)
def test_a_damaged_file_is_an_error(change: Any, message: str) -> None:
    """The message names the file and the field."""
    raw = json.loads(format_lock(Baseline((lane("a", "n"),))))
    change(raw)
    with pytest.raises(BaselineUnreadable, match=message) as caught:
        parse_lock(json.dumps(raw), "x.json")
    assert "x.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not readable as JSON"),
        ("{", "not readable as JSON"),
        ("[" * 100_000, "not readable as JSON"),
        ('{"schema": NaN}', "NaN is no number"),
        ("[]", "is not a compilediag baseline"),
    ],
)
def test_no_baseline_at_all(text: str, message: str) -> None:
    """Foreign and cut files."""
    with pytest.raises(BaselineUnreadable, match=message):
        parse_lock(text)


DAMAGE: tuple[Any, ...] = (None, -1, True, "x", "\ud800", 1.5, 10**30, [], {}, [[]], [{}], {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a document."""
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inner:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("damage", DAMAGE, ids=repr)
def test_no_damage_is_a_fault_of_ours(damage: Any) -> None:
    """Any value in any place is refused by name, or read, written again and judged by."""
    whole = json.loads(format_lock(Baseline((record_baseline(RUN, None, reason="r").baseline,))))
    for path in places(whole):
        raw = json.loads(json.dumps(whole))
        holder = raw
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = damage
        try:
            lock = parse_lock(json.dumps(raw), "x.json")
        except BaselineUnreadable:
            continue
        assert format_lock(parse_lock(format_lock(lock))) == format_lock(lock)
        for each in lock.configurations:
            judge(RUN, baseline=each, baseline_name="x.json")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": 1, "\\u0061": 1}',
        '[{"b": {"a": [], "c": 0, "a": []}}]',
        '{"a": 100000.0, "a": 1e5}',
        '{"": {}, "": {}}',
    ],
)
def test_two_entries_of_one_name_are_refused(text: str) -> None:
    """However they are spelled and wherever they stand: a merge that kept both sides must not let
    the last one win in silence."""
    with pytest.raises(
        BaselineUnreadable, match=r"two entries named .* two configurations of one name"
    ):
        parse_lock(text)


@pytest.mark.parametrize("mark", ["<<<<<<< ours", "|||||||", "=======", ">>>>>>> theirs"])
def test_each_mark_of_a_merge(mark: str) -> None:
    """One mark that was left behind is enough; the same signs inside a text are none."""
    with pytest.raises(BaselineUnreadable, match="unresolved merge conflict at line 2"):
        parse_lock(f"{{\n{mark}\n}}")
    with pytest.raises(BaselineUnreadable, match="is not a compilediag baseline"):
        parse_lock(f'{{\n"reason": "{mark}"\n}}')


def test_nothing_depends_on_the_machine() -> None:
    """No line, no second, no folder: the same run recorded elsewhere gives the same text."""
    here = receipt(first(), again("n", line=12), eager(), breaks=[branch(14)])
    there = receipt(first(line=90), again("n", line=99, seconds=7.0), eager(), breaks=[branch(88)])
    texts = {
        format_lock(Baseline((record_baseline(each, None, reason="r").baseline,)))
        for each in (here, there)
    }
    assert len(texts) == 1
    assert "/home" not in texts.pop()


@pytest.mark.parametrize(
    ("file", "portable"),
    [
        ("app.py", "app.py"),
        ("pkg/app.py", "pkg/app.py"),
        (TORCH_FILE, "site-packages/torch/nn/modules/module.py"),
        (PACKAGE_FILE, "site-packages/einops/layers.py"),
        ("/usr/lib/python3.12/json/decoder.py", "python/json/decoder.py"),
        ("/home/me/shared/lib/model.py", ".../lib/model.py"),
        ("C:\\me\\lib\\model.py", ".../lib/model.py"),
        ("<eval_with_key>.12", "<eval_with_key>"),
        ("<>", "<>"),
        ("/a/site-packages/b/site-packages/c.py", "site-packages/c.py"),
        ("site-packages/c.py", "site-packages/c.py"),
        ("/my-packages/c.py", ".../my-packages/c.py"),
        ("/opt/python3.9/app.py", ".../python3.9/app.py"),
    ],
)
def test_files_by_names_that_travel(file: str, portable: str) -> None:
    """Packages by their name, other folders by their last parts."""
    assert normalize_file(file) == portable


def test_functions_that_torch_names_after_lines() -> None:
    """What follows a graph break is named by torch after its line; two of them are one frame."""
    names = ["torch_dynamo_resume_in_forward_at_31", "torch_dynamo_resume_in_forward_at_36"]
    frames = build_run_baseline(
        receipt(*(first(name, n) for n, name in enumerate(names)))
    ).baseline.frames
    assert frames == (KnownFrame(FrameKey("app.py", "forward (resumed)"), 2),)


def test_reasons_stay_and_new_ones_are_asked_for() -> None:
    """A kept cause keeps its reason, a new one gets the one given; what is gone is dropped."""
    old = record_baseline(receipt(first(), again("n")), None, reason="warm-up")
    assert old.allowed == ("CD107 n",)
    both = receipt(first(), again("n"), again("m", 2, 2))
    assert record_baseline(both, old.baseline).unexplained == ("CD107 m",)
    new = record_baseline(both, old.baseline, reason="second size")
    assert {item.key.variable: item.reason for item in new.baseline.causes} == {
        "n": "warm-up",
        "m": "second size",
    }
    assert record_baseline(receipt(), new.baseline).baseline.causes == ()


def test_a_missing_reason_is_reported_and_can_be_added_later() -> None:
    """An entry without a reason, made by hand, is filled in by the next update with one."""
    made = record_baseline(receipt(first(), again("n")), None, reason="warm-up").baseline
    bare = replace(made, causes=tuple(replace(item, reason=None) for item in made.causes))
    again_ = receipt(first(), again("n"))
    assert record_baseline(again_, bare).without_reason == ("CD107 n",)
    assert record_baseline(again_, bare, reason="late").baseline.causes[0].reason == "late"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"\xff\xfe")
    with pytest.raises(BaselineUnreadable, match=LOCK_NAME):
        read_lock(tmp_path / LOCK_NAME)


def test_the_file_is_found_up_to_the_repository(tmp_path: Path) -> None:
    """In the folder or one above, but never beyond the root of the repository."""
    inner = tmp_path / "repo" / "pkg"
    inner.mkdir(parents=True)
    (tmp_path / LOCK_NAME).touch()
    assert find_lock(inner) is None
    (tmp_path / "repo" / ".git").touch()
    assert find_lock(inner) is None
    (tmp_path / "repo" / LOCK_NAME).touch()
    assert find_lock(inner) == str(tmp_path / "repo" / LOCK_NAME)


def test_writing_replaces_the_file_behind_a_link(tmp_path: Path) -> None:
    """A linked baseline stays a link; nothing is left beside it; the same text is not written."""
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "x.json", tmp_path / LOCK_NAME
    real.write_text("{}", encoding="utf-8")
    link.symlink_to(real)
    lock = Baseline((lane("a"),))
    assert write_lock(link, lock)
    assert link.is_symlink()
    assert read_lock(real) == lock
    assert not write_lock(link, lock)
    assert [path.name for path in real.parent.iterdir()] == ["x.json"]


def test_a_baseline_that_a_change_enlarges_is_shown_as_such() -> None:
    """Items with their reasons, more of one, a lane; nothing for one that is smaller or moved."""
    base = record_baseline(RUN, None, reason="by design").baseline
    more = record_baseline(
        receipt(first(), again("n"), again("m", 2, 2), eager()), base, reason="why"
    ).baseline
    (sentence,) = list_enlarged(base, more, "origin/main")
    assert sentence == (
        "this change itself allows 1 thing that origin/main does not: CD107 m 0 → 1 (reason: why)"
    )
    (smaller,) = list_enlarged(more, base, "main")
    assert smaller.endswith("graph break in forward of app.py 0 → 1 (reason: by design)")
    assert list_enlarged(base, base, "main") == ()
    assert "adds the configuration 'train'" in list_enlarged(None, base, "main")[0]
    counts = replace(base, counts={**base.counts, "frames": base.counts["frames"] + 1})
    assert "frames 2 → 3" in list_enlarged(base, counts, "main")[0]
    assert judge(RUN, baseline=base, enlarged=[sentence]).notices[0] == sentence


def test_a_reason_for_each_item() -> None:
    """A part of the name chooses; what it does not choose keeps its own, or gets that of all."""
    made = record_baseline(
        RUN, None, reasons=[("CD107 n", "warm-up"), ("runs eager", "no compiler")]
    )
    assert made.unexplained == ("graph break in forward of app.py",)
    assert made.explained == {"CD107 n", "runs eager"}
    every = record_baseline(RUN, made.baseline, reason="by design", reasons=[("CD107", "measured")])
    assert [item.reason for item in every.baseline.allowed] == [
        "measured",
        "by design",
        "no compiler",
    ]
    assert every.unexplained == ()
    assert record_baseline(RUN, None, reason="x", reasons=[("CD108", "y")]).explained == frozenset()
