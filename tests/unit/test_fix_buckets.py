"""A few sizes to pad to as a change: what is proposed, how it is written into a program, and the
point of the certificate that padding is harmless."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.certify.points import JudgedPoint
from compilediag.fixes.certificate import check_padding
from compilediag.fixes.rewrite import rewrite
from compilediag.receipt.schema.invocations import Invocation, VaryingSizesRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from compilediag.rules.changes import Edit, EditImpossible, ProgramChange, build_trial_plan
from compilediag.runs.fix.sources import list_possible
from compilediag.timeline.fixed_shapes import FixedShapeRun, SizeRun
from compilediag_harness.wire import PaddingChecked
from tests.support.timelines import WHERE, timeline
from tests.unit.test_fix_certificate import finding, receipt

SIZES = {4: 3, 5: 1, 9: 2, 10: 1}


def called(
    dims: tuple[tuple[str, ...], ...] = (("x:0",),), sizes: Any = SIZES, **more: Any
) -> Receipt:
    combinations = tuple((each,) if isinstance(each, int) else each for each in sizes)
    varying = VaryingSizesRecord(dims=dims, sizes=combinations, counts=tuple(sizes.values()))
    invocation = Invocation(
        name="forward", file="model.py", line=3, calls=sum(sizes.values()), varying=varying
    )
    whole = receipt()
    environment = msgspec.structs.replace(whole.environment, torch="2.13.0")
    return msgspec.structs.replace(
        whole, environment=environment, invocations=(invocation,), **more
    )


def buckets(rule: str, of: Receipt, **evidence: Any) -> list[ProgramChange]:
    about = msgspec.structs.replace(finding(rule), evidence=evidence)
    return [change for change in list_changes(about, of) if change.pads]


@pytest.mark.parametrize("rule", ["CD105", "CD118", "CD151", "CD152", "CD403"])
def test_the_fewest_sizes_that_pad_little_and_fewer_than_came(rule: str) -> None:
    (change,) = buckets(rule, called())
    assert change.line == (
        'compiled = compilediag.FixedShape(compiled, dims={"x": 0}, buckets=[5, 10])'
        "  # where it is compiled"
    )
    assert (change.kind, change.left, *change.pads) == ("program", 1, change.padded[0].function)
    plan = build_trial_plan([change])
    assert (plan.padded[0].axes[0].buckets, plan.check_padding) == ((5, 10), True)
    assert plan.labels == ("FixedShape(forward, [5, 10])",)
    one = buckets(rule, called(sizes={8: 5, 6: 1}))
    assert [each.padded[0].axes[0].buckets for each in one] == [(8,)]


def test_a_mask_among_the_arguments_has_other_padding() -> None:
    found = buckets("CD105", called((("x:0", "mask:0"),)))
    assert [change.padded[0].pad for change in found] == [None, 0, 1]
    assert 'dims={"x": 0, "mask": 0}, buckets=[5, 10], pad=0)' in found[1].line


def test_two_sizes_that_change_are_a_grid() -> None:
    sizes = {(4, 10): 2, (4, 12): 2, (8, 10): 2, (8, 12): 2, (8, 11): 1}
    (change,) = buckets("CD105", called((("x:0",), ("x:1",)), sizes))
    assert [len(axis.buckets) for axis in change.padded[0].axes] == [2, 2]
    assert 'dims={"x": {"rows": 0, "length": 1}}' in change.line
    assert change.left == 3


def test_nothing_is_proposed_without_a_plan() -> None:
    assert not buckets("CD105", called((("x:0", "x:1"),)))  # a size in two dimensions
    assert not buckets(
        "CD105", called((("x:0",), ("y:0",), ("z:0",)), {(1, 2, 3): 1, (2, 3, 4): 1})
    )
    assert not buckets("CD105", called(sizes={8: 5, 0: 1}))  # one size with rows
    assert not buckets("CD105", called(), kind="padded")
    assert not buckets("CD104", called())
    elsewhere = msgspec.structs.replace(called().invocations[0], line=99, name="other")
    assert not buckets("CD105", msgspec.structs.replace(called(), invocations=(elsewhere,)))


# --- the edits ----------------------------------------------------------------------------------

ARGUMENTS = 'dims={"x": 0}, buckets=[4, 8]'


def wrapped(text: str, name: str = "f") -> str:
    text = f"import compilediag\nimport torch\n{text}"
    edit = Edit("f.py", 9, "fixed_shape", (name, ARGUMENTS))
    return rewrite(text, [edit]).removeprefix("import compilediag\nimport torch\n")


def test_what_is_compiled_under_a_name_is_wrapped() -> None:
    shape = f"compilediag.FixedShape(torch.compile(m, dynamic=False), {ARGUMENTS})"
    assert wrapped("f = torch.compile(m, dynamic=False)  # kept\n") == f"f = {shape}  # kept\n"
    local = "def main(m):\n    f = m\n    f = torch.compile(f)\n    f(1)\n"
    assert f"    f = compilediag.FixedShape(torch.compile(f), {ARGUMENTS})\n" in wrapped(local)
    renamed = "from torch import compile as fast\nf = fast(m)\n"
    assert f"f = compilediag.FixedShape(fast(m), {ARGUMENTS})\n" in wrapped(renamed)
    decorated = "@torch.compile\ndef f(x):\n    return x\n\nf(1)\n"
    assert f"\n\n\nf = compilediag.FixedShape(f, {ARGUMENTS})\n\nf(1)" in wrapped(decorated)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f = torch.compile(m)  # kept\n", "f = torch.compile(m, dynamic=True)  # kept\n"),
        (
            "f = torch.compile(\n    m,\n    mode=None,\n)\n",
            "f = torch.compile(\n    m,\n    mode=None, dynamic=True,\n)\n",
        ),
        ("@torch.compile\ndef f(x): ...\n", "@torch.compile(dynamic=True)\ndef f(x): ...\n"),
        ("@torch.compile()\ndef f(x): ...\n", "@torch.compile(dynamic=True)\ndef f(x): ...\n"),
        ("f = torch.compile(m, dynamic=None)\n", None),
        ("f = torch.compile(m, **options)\n", None),
        ("f = m\n", None),
    ],
)
def test_a_keyword_is_passed_where_a_name_is_compiled(before: str, after: str | None) -> None:
    edit = Edit("f.py", 9, "compile_option", ("f", "dynamic=True"))
    if after is not None:
        assert rewrite(f"import torch\n{before}", [edit]) == f"import torch\n{after}"
        return
    with pytest.raises(EditImpossible):
        rewrite(f"import torch\n{before}", [edit])


@pytest.mark.parametrize(
    "text",
    [
        "f = build()\n",
        "f, g = torch.compile(m), 3\n",
        "class A:\n    @torch.compile\n    def f(self, x):\n        return x\n",
        "class A:\n    f = torch.compile(m)\n",
        "f = torch.compile(m)\ndef g(f):\n    f(1)\n",
        "f = torch.compile(m)\ndef g():\n    global f\n    f = 3\n",
        "f = torch.compile(m)\nfor f in models:\n    f(1)\n",
        "if a:\n    f = torch.compile(m)\nelse:\n    f = m\n",
        "f = torch.compile(m)\nf = other(f)\n",
        "@torch.compile\n@cached\ndef f(x):\n    return x\nf = g\n",
        "def f(x):\n    return x\n",
        "from m import f\n",
        "f(1)\n",
    ],
)
def test_a_name_that_is_not_certainly_what_is_compiled_is_not(text: str) -> None:
    with pytest.raises(EditImpossible):
        wrapped(text)


def test_of_two_ways_to_do_the_same_the_first_that_can_be_made_is_tried(tmp_path: Path) -> None:
    (outside,) = buckets("CD105", called())
    impossible = replace(
        outside, edits=(Edit(str(tmp_path / "gone.py"), 1, "fixed_shape", ("f", ARGUMENTS)),)
    )
    found = list_possible([impossible, outside], {})
    assert found.possible == (outside,)
    assert [each.change for each in found.impossible] == [impossible.line]
    assert list_possible([outside, replace(outside, line="another")], {}).possible == (outside,)
    apart = replace(outside, same_as="")
    assert list_possible([apart, replace(apart, line="another")], {}).possible == (
        apart,
        replace(apart, line="another"),
    )


# --- the certificate ----------------------------------------------------------------------------


def checked(*kinds: str, unseen: tuple[str, ...] = (), probes: Any = ("zeros",)) -> PaddingChecked:
    outputs = {
        "outputs": ("",) * len(kinds),
        "max_abs": (0.0,) * len(kinds),
        "kinds": kinds,
        "bitwise": (True,) * len(kinds),
        "notes": tuple(f"note on {kind}" for kind in kinds),
    }
    tried = {"size": (3,), "run": (4,), "probes": probes, "seeds": (), "rng_consumed": False}
    return PaddingChecked(0.0, 0, 0, WHERE, unseen=unseen, **tried, **outputs)


def judge_padded(*checks: PaddingChecked) -> JudgedPoint:
    """The point on a run of which every batch of 3 rows was padded to 4."""
    size = SizeRun((4,), 12, 36)
    shape = FixedShapeRun(
        0, 0, WHERE, ("rows",), ((4,),), (size,), (), (), checks, (), requested={(3,): 12}
    )
    (point,) = check_padding((WHERE,), timeline([]), timeline([], fixed_shapes=(shape,)))
    return point


def test_padding_is_harmless_and_how_much_there_is() -> None:
    point = judge_padded(checked("safe", "nan_leak"))
    assert point.outcome == "holds", point
    assert (point.figures[0].before, point.figures[0].after) == (0.0, 33.3)


@pytest.mark.parametrize(
    ("checks", "reason"),
    [
        ((), "was not checked"),
        ((checked("safe", "contaminated"),), "padding is unsafe for forward: the result (contam"),
        ((checked("safe"), checked("reduced")), "padding is unsafe for forward: the result (red"),
        ((checked("state"), checked("safe")), "padding is unsafe"),
        ((checked("rng"),), "is unknown: the result (rng): note on rng"),
        ((checked("safe", unseen=("variable rows (generator)",)),), "rows (generator) cannot be"),
        ((checked("safe", probes=("padding in use",)),), "no other padding could be tried"),
    ],
)
def test_padding_that_harms_or_may_is_refused(checks, reason) -> None:
    """By the check of any mode, first or last."""
    point = judge_padded(*checks)
    assert point.outcome == "fails"
    assert reason in point.sentence


def test_what_is_not_padded_is_refused() -> None:
    (point,) = check_padding((WHERE,), timeline([]), timeline([]))
    assert point.sentence == "nothing was padded"
