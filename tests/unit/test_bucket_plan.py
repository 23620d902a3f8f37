"""`compilediag plan`: from the sizes of a receipt to buckets, a picture and code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gate_receipts import receipt
from msgspec.structs import replace
from receipt_records import compile_event, entered
from timelines import FILE, attempt, false_guard, recompile, timeline

from compilediag import cli
from compilediag.diagnosis.figures.invocations import MAX_SIZES, build_invocations_section
from compilediag.receipt.file import write_receipt
from compilediag.receipt.schema.compiles import FrameName
from compilediag.receipt.schema.invocations import (
    FixedShapeRecord,
    ShapesSection,
    SizeRecord,
    VaryingSizesRecord,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.bucket_plan import PlanLimits, make_bucket_plans
from compilediag.rules.diagnose import RECOMPILE_RULES as RULES
from compilediag.timeline.invocations import Calls, ShapeCount
from compilediag.timeline.timeline import Compile
from compilediag.views.plan import render_plan
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import Location

SCORE = Location(FILE, 10, "score")
SIZES = {5: 30, 7: 10, 8: 2, 30: 4, 32: 1}


def called(
    shapes: Mapping[str | None, int],
    tensors: tuple[str, ...] = (),
    function: Location = SCORE,
    padded: int = 0,
) -> Calls:
    """A callable that was called with these shapes."""
    counted = tuple(ShapeCount(text, count, None, None) for text, count in shapes.items())
    calls = sum(shapes.values())
    return Calls(0, function, calls, counted, (), (), tensors=tensors, padded=padded)


def batches(sizes: Mapping[int, int] = SIZES) -> Calls:
    """A function of observations and a mask that have as many rows."""
    shapes: dict[str | None, int] = {
        f"[{size}, 4], mask=[{size}]": count for size, count in sizes.items()
    }
    return called(shapes, ("obs", "mask"))


def compiled_for(*sizes: tuple[str, str], dimension: int = 0) -> list[Compile]:
    """Compiles of the function, again each time that a size of `obs` was another one."""
    compiles = [attempt("0/0", where=SCORE)]
    for number, (before, after) in enumerate(sizes, 1):
        text = f"tensor 'obs' size mismatch at index {dimension}. expected 5, actual 7"
        facts = {"leaf": "TENSOR_MATCH", "expected": before, "actual": after}
        guard = false_guard("L['obs']", text, **facts)
        cause = recompile(f"0/{number}", where=SCORE, guards=[guard])
        compiles.append(attempt(f"0/{number}", kind="recompile", cause=cause, where=SCORE))
    return compiles


def receipt_with(*invocations: Calls) -> Receipt:
    """A receipt that holds the ledger of these calls."""
    seen = timeline([attempt()], invocations=invocations)
    return replace(receipt(), invocations=build_invocations_section(seen))


# --- planning ---


def test_the_ledger_gives_sizes_counts_and_names() -> None:
    """Two buckets for sizes around 6 and 31, compared with the rules of thumb over these calls."""
    (found,) = make_bucket_plans(receipt_with(batches()), PlanLimits(graphs=2))
    assert found.calls == {(size,): number for size, number in SIZES.items()}
    assert found.dims == (("obs:0", "mask:0"),)
    assert found.counts is not None
    assert found.buckets == (8, 32)
    rows = sum(size * count for size, count in SIZES.items())
    assert {row.name: (row.graphs, round(row.waste * rows)) for row in found.alternatives} == {
        "planned": (2, 8 * 42 + 32 * 5 - rows),
        "one size": (1, 32 * 47 - rows),
        "powers of two": (2, 8 * 42 + 32 * 5 - rows),
        "multiples of 8": (2, 8 * 42 + 32 * 5 - rows),
    }


@pytest.mark.parametrize(
    ("text", "arguments", "held_by"),
    [
        ("self.model(batch)", {"obs": "batch"}, "self.model"),
        ("step(batch)", {"obs": "batch"}, "step"),
        ("trainer.fit(batches)", {}, None),  # what it calls is not known to be the callable
        ("make()(batch)", {"obs": "batch"}, None),  # nothing can be assigned to that
        ("y = (", {"obs": "batch"}, None),
    ],
)
def test_the_code_names_what_the_program_calls(text, arguments, held_by) -> None:
    """The name of the compiled code may be torch's, `inner`: the program's call has the variable
    that holds it, where it calls that code itself."""
    given = receipt_with(batches())
    frame = FrameName(function="score", file=str(given.invocations[0].file), line=10)
    event = compile_event(frame=frame, entered_at=entered(arguments, 36, text=text))
    given = replace(given, compile=replace(given.compile, events=(event,)))
    (found,) = make_bucket_plans(given, PlanLimits(graphs=2))
    assert (found.held_by, found.called_at) == (held_by, "train.py:36" if held_by else None)
    drawn = render_plan([found], RenderOptions(width=100))
    assert f"  {held_by or 'score'} = cd.FixedShape({held_by or 'score'}, " in drawn
    assert ("called at train.py:36" in drawn) is (held_by is not None)


def test_limits_reach_the_planner() -> None:
    """Multiples, the cap and the price of a graph change the plan as they should."""
    seen = receipt_with(batches())

    def chosen(**limits: Any) -> tuple[int, ...]:
        (found,) = make_bucket_plans(seen, PlanLimits(**limits))
        return found.buckets

    assert chosen(graphs=8) == (5, 7, 8, 30, 32)
    assert chosen(graphs=8, multiple=6) == (6, 12, 30, 36)
    assert max(chosen(graphs=8, cap=16)) <= 16
    assert chosen(graphs=8, per_graph=100.0) == (8, 32)


def test_most_called_first() -> None:
    """A callable whose sizes never change has no plan; the others stand by their calls."""
    rare = called({"[3]": 1, "[4]": 1}, ("x",), Location(FILE, 50, "rare"))
    fixed = called({"[8]": 900}, ("x",), Location(FILE, 60, "fixed"))
    found = make_bucket_plans(receipt_with(rare, fixed, batches()), PlanLimits())
    assert [item.name for item in found] == ["score", "rare"]


def test_two_sizes_make_a_grid_and_three_no_plan() -> None:
    """A graph for each combination of three sizes would be too many: nothing is proposed."""
    pairs = called({"[2, 7]": 9, "[2, 9]": 1, "[4, 7]": 2, "[4, 9]": 5}, ("ids",))
    (found,) = make_bucket_plans(receipt_with(pairs), PlanLimits(graphs=4))
    assert (found.grid, found.alternatives[0].graphs) == (((2, 4), (7, 9)), 4)
    three = called({"[1, 2, 3]": 1, "[2, 2, 9]": 1, "[2, 5, 3]": 1}, ("ids",))
    (found,) = make_bucket_plans(receipt_with(three), PlanLimits())
    assert (found.buckets, found.grid, found.alternatives) == (None, None, ())


def test_the_receipt_keeps_what_a_plan_needs() -> None:
    """More shapes than are shown are kept as sizes; of more than that, the calls are counted."""
    many = batches(dict.fromkeys(range(1, MAX_SIZES + 4), 2))
    (item,) = receipt_with(many).invocations
    assert len(item.varying.sizes) == MAX_SIZES
    assert item.varying.other_calls == 3 * 2
    assert len(item.shapes) < 20


# --- what pads already ---


def padding(record: FixedShapeRecord, *invocations: Calls) -> Receipt:
    """A receipt with one `FixedShape`, and the ledger of calls."""
    return replace(receipt_with(*invocations), shapes=ShapesSection(fixed=(record,)))


def fixed_shape(
    asked: Mapping[tuple[int, ...], int],
    buckets: tuple[tuple[int, ...], ...] = ((64, 512),),
    axes: tuple[str, ...] = ("rows",),
    waste: float = 3.0,
) -> FixedShapeRecord:
    """A `FixedShape` of the tensor `obs` that was given such batches."""
    return FixedShapeRecord(
        name="score",
        file=FILE,
        line=10,
        axes=axes,
        buckets=buckets,
        sizes=(SizeRecord(run=tuple(its[0] for its in buckets), calls=4, elements=80),),
        padding_waste_fraction=waste,
        warmed=True,
        requested=VaryingSizesRecord(
            dims=tuple((f"obs:{dim}",) for dim in range(len(axes))),
            sizes=tuple(sorted(asked)),
            counts=tuple(asked[its] for its in sorted(asked)),
        ),
    )


def test_what_pads_already_is_planned_by_what_it_was_given() -> None:
    """The ledger of the compiled function has the padded sizes only: nothing is planned of them.
    The comparison has the padding that was measured, and the code names what to write instead."""
    asked = {(size,): number for size, number in SIZES.items()}
    calls = called({"[64, 4]": 40, "[512, 4]": 7}, ("obs",), padded=47)
    (found,) = make_bucket_plans(padding(fixed_shape(asked), calls), PlanLimits(graphs=2))
    assert (found.calls, found.fixed is not None) == (asked, True)
    assert [row.name for row in found.alternatives[:2]] == ["planned", "as it ran"]
    assert found.alternatives[1][1:] == (1, 3.0)
    drawn = render_plan((found,), RenderOptions(width=100))
    assert "FixedShape(score, ...) pads to [64, 512] now; write instead" in drawn
    assert drawn.rstrip().endswith("buckets=[8, 32]")
    assert "cd.FixedShape" not in drawn
    as_planned = fixed_shape(asked, buckets=((8, 32),))
    drawn = render_plan(
        make_bucket_plans(padding(as_planned, calls), PlanLimits(graphs=2)),
        RenderOptions(width=100),
    )
    assert drawn.rstrip().endswith("pads to [8, 32] now: as planned")


def test_two_axes_keep_their_names() -> None:
    """A FixedShape of two axes is planned as a grid, with the names that it was given."""
    asked = {(2, 7): 9, (2, 9): 1, (4, 7): 2, (4, 9): 5, (3, 0): 1}
    record = fixed_shape(asked, ((8,), (16,)), ("B", "T"))
    drawn = render_plan(
        make_bucket_plans(padding(record), PlanLimits(graphs=4)), RenderOptions(width=100)
    )
    assert '{"B": [8], "T": [16]} now; write instead' in drawn
    assert drawn.rstrip().endswith('buckets={"B": [2, 4], "T": [7, 9]}')


def test_calls_from_both_sides_are_said() -> None:
    """A function that is called with and without padding: which sizes were needed is not known."""
    calls = called({"[64, 4]": 4, "[5, 4]": 3}, ("obs",), padded=4)
    (found,) = make_bucket_plans(receipt_with(calls), PlanLimits())
    assert found.padded_calls == 4
    drawn = render_plan((found,), RenderOptions(width=200))
    assert "4 calls of these came from a FixedShape, at sizes that it had padded to" in drawn


def test_nothing_is_planned_of_a_fixed_shape_that_was_only_warmed_up() -> None:
    """The sizes of its recompiles are its buckets: they are no sizes that anybody needs."""
    assert make_bucket_plans(padding(replace(fixed_shape({}), requested=None)), PlanLimits()) == ()


# --- the finding ---


def found_by_rule(sizes: Mapping[int, int], recompiles: int, dimension: int = 0) -> Any:
    """CD105 of a function that was compiled again so often, with its ledger."""
    sizes_met = ("[4, 5]", "[4, 7]") if dimension else ("[5, 4]", "[7, 4]")
    compiles = compiled_for(*[sizes_met] * recompiles, dimension=dimension)
    run = timeline(compiles, invocations=(batches(sizes),))
    (found,) = (finding for rule in RULES for finding in rule(run))
    return found


def test_the_finding_names_sizes_calls_and_buckets() -> None:
    """A size compiled more than once is listed with what was called, how often, and the fewest
    buckets that pad little."""
    found = found_by_rule(SIZES, 4)
    assert found.evidence["sizes"] == [5, 7, 30, 8, 32]
    assert found.evidence["calls"] == [30, 10, 4, 2, 1]
    assert found.evidence["buckets"] == [5, 8, 32]
    assert "pad to 5, 8, 32 (5% padding): compilediag plan" in found.fix.summary


def test_buckets_of_one_dimension_are_not_offered_for_another() -> None:
    """The rows that were called say nothing about columns that changed."""
    found = found_by_rule(SIZES, 4, dimension=1)
    assert "buckets" not in found.evidence
    assert "compilediag plan" not in found.fix.summary


def test_one_recompile_needs_no_plan() -> None:
    """The default of torch: one recompile, then dynamic. The sizes are listed, buckets are not."""
    found = found_by_rule(SIZES, 1)
    assert found.evidence["distinct_sizes"] == 5
    assert "buckets" not in found.evidence
    assert "compilediag plan" not in found.fix.summary


def test_the_screen() -> None:
    """The buckets, the comparison, and code to copy."""
    drawn = render_plan(
        make_bucket_plans(receipt_with(batches()), PlanLimits(graphs=2)), RenderOptions(width=60)
    )
    lines = drawn.splitlines()
    assert lines[0].endswith("47 calls · 5 sizes")
    assert lines[1] == "  changes: dim 0 of obs = dim 0 of mask"
    assert lines[3] == "  dim 0 of obs = dim 0 of mask: 8, 32"
    code = '  score = cd.FixedShape(score, dims={"obs": 0, "mask": 0}, buckets=[8, 32])'
    assert code in lines
    assert all(
        len(line) <= 60 for line in lines if "FixedShape" not in line and "warmup" not in line
    )


def test_calls_that_were_not_seen_are_said() -> None:
    """Where not every call was looked at, or shapes were not distinguished, the plan says so."""
    seen = receipt_with(called({"[2]": 3, "[4]": 1, None: 6}, ("x",)))
    (found,) = make_bucket_plans(seen, PlanLimits())
    drawn = render_plan((replace(found, complete=False),), RenderOptions(width=200))
    assert "6 calls had sizes that are not known" in drawn
    assert "COMPILEDIAG_EVERY_STEP=1 records all" in drawn
    assert "COMPILEDIAG_EVERY_STEP" not in render_plan((found,), RenderOptions(width=200))


def test_the_code_of_a_grid_names_both_sizes() -> None:
    """Two sizes of one tensor have a name each, and a list of buckets each."""
    pairs = called(
        {"[2, 7]": 9, "[2, 9]": 1, "[4, 7]": 2}, ("ids",), Location(FILE, 3, "Net.forward")
    )
    drawn = render_plan(
        make_bucket_plans(receipt_with(pairs), PlanLimits(graphs=4)), RenderOptions(width=100)
    )
    assert (
        'net = cd.FixedShape(net, dims={"ids": {"rows": 0, "length": 1}}, '
        'buckets={"rows": [2, 4], "length": [7, 9]})'
    ) in drawn


def test_what_cannot_be_planned_is_said() -> None:
    """No sizes, three sizes, a size that one tensor has twice, a tensor whose argument is not
    known, as of `generate`, which gives no targets: a sentence, and no code."""
    assert "holds no sizes that change" in render_plan((), RenderOptions())
    three = called({"[1, 2, 3]": 1, "[2, 2, 9]": 1, "[2, 5, 3]": 1}, ("ids",))
    twice = called({"[4, 4]": 1, "[5, 5]": 1}, ("mask",), Location(FILE, 3, "f"))
    unnamed = called({"[4, 1]": 1, "[4, 2]": 1}, ("ids", "targets"), Location(FILE, 4, "g"))
    drawn = render_plan(
        make_bucket_plans(receipt_with(three, twice, unnamed), PlanLimits()), RenderOptions()
    )
    assert "3 sizes change independently" in drawn
    assert "one tensor has this size in two dims" in drawn
    assert "a tensor is known by its position: name its argument" in drawn
    assert "FixedShape(" not in drawn


def test_names_of_the_target_are_escaped() -> None:
    """A key of a dict may hold anything: no control character reaches the screen as it is."""
    shapes: dict[str | None, int] = {'a\x1b"b=[2]': 1, 'a\x1b"b=[3]': 1}
    drawn = render_plan(
        make_bucket_plans(receipt_with(called(shapes)), PlanLimits()),
        RenderOptions(ascii_only=True),
    )
    assert "\x1b" not in drawn
    assert drawn.isascii()


# --- the command ---


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with the receipt of varied batches, and a plain terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "receipt.json"
    write_receipt(receipt_with(batches()), str(path))
    return str(path)


def test_the_command_prints_the_plan(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; -k is the number of buckets."""
    assert cli.main(["plan", saved, "-k", "2"]) == 0
    assert "buckets=[8, 32])" in capsys.readouterr().out
    assert cli.main(["plan", saved, "-k", "2", "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["buckets"], plan["counts"]) == ([8, 32], [30, 10, 2, 4, 1])


def test_limits_that_leave_nothing_are_a_usage_error(saved: str, capsys) -> None:
    """A cap below the multiple: exit code 2 and one sentence."""
    assert cli.main(["plan", saved, "--cap", "7", "--multiple", "8"]) == 2
    assert "no plan: no multiple of 8 from 2 to 7 exists" in capsys.readouterr().err
