"""What varied: each guarded value under its own name, with its value in each graph."""

from collections.abc import Sequence
from dataclasses import replace

import timelines

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.figures.varied import build_varied
from compilediag.receipt.schema.compiles import VariedValue
from compilediag_harness.wire import EntryDiff, FalseGuard, GuardFacts

HELD = GuardFacts(root="argument", holder_kind="object")


def number(source: str, expected: str, actual: str) -> FalseGuard:
    text = f"{source} == {expected}"
    return FalseGuard(source, "EQUALS_MATCH", text, expected, actual, timelines.WHERE, facts=HELD)


def tensor(source: str, expected: str, actual: str) -> FalseGuard:
    text = f"tensor '{source}' size mismatch at index 0. expected {expected}, actual {actual}"
    place = timelines.WHERE
    return FalseGuard(source, "TENSOR_MATCH", text, expected, actual, place, facts=HELD)


def varied(*entries: Sequence[tuple[str, Sequence[FalseGuard]]]) -> tuple[VariedValue, ...]:
    """Of one frame; each recompile with the false guards of the entries before it."""
    attempts = [timelines.attempt()]
    for at, diffs in enumerate(entries, 1):
        again = replace(
            timelines.recompile(f"0/{at}", step=at),
            entries=tuple(EntryDiff(identity, tuple(guards)) for identity, guards in diffs),
            reasons=(),
        )
        attempts.append(timelines.attempt(f"0/{at}", kind="recompile", step=at, cause=again))
    run = timelines.timeline(attempts)
    return build_varied(run, find_run_causes(run))


def shown(row: VariedValue) -> tuple[str, int, list[tuple[str, str]], tuple[str, ...]]:
    return row.variable, row.count, [(at.compile_id, at.value) for at in row.values], row.entries


def test_values_by_graph_and_the_entries_kept_from_serving() -> None:
    rows = varied(
        [("0/0", [number("L['m'].n", "1", "2")])],
        [
            ("0/1", [number("L['m'].n", "2", "3"), number("L['flag']", "0", "1")]),
            ("0/0", [number("L['m'].n", "1", "3"), number("L['flag']", "0", "1")]),
        ],
    )
    assert [shown(row) for row in rows] == [
        ("m.n", 2, [("0/0", "1"), ("0/1", "2"), ("0/2", "3")], ("0/0", "0/1")),
        ("flag", 1, [("0/0", "0"), ("0/1", "0"), ("0/2", "1")], ("0/0", "0/1")),
    ]


def test_a_value_beside_a_buffer_has_its_own_name() -> None:
    """`max_len` grows with `keys`, and goes by its name also where it alone is false."""
    keys, length = "L['c'].keys", "L['c'].max_len"
    rows = varied(
        [("0/0", [tensor(keys, "[10, 8]", "[14, 8]"), number(length, "10", "14")])],
        [("0/1", [number(length, "14", "18")]), ("0/0", [tensor(keys, "[10, 8]", "[18, 8]")])],
    )
    values = {row.variable: [at.value for at in row.values] for row in rows}
    assert values == {"c.keys": ["[10, 8]", "[14, 8]", "[18, 8]"], "c.max_len": ["10", "14", "18"]}


def test_a_size_says_more_than_a_type() -> None:
    """A graph for None is compared with one for a tensor by the type alone."""
    keys = "L['c'].keys"
    gone = FalseGuard(
        keys, "TYPE_MATCH", f"___check_type_id({keys}, 1)", "torch.Tensor", "NoneType",
        timelines.WHERE, facts=HELD,
    )  # fmt: skip
    rows = varied(
        [("0/0", [gone])],
        [("0/1", [number("L['n']", "1", "2")]), ("0/0", [tensor(keys, "[10, 8]", "[14, 8]")])],
    )
    values = next([at.value for at in row.values] for row in rows if row.variable == "c.keys")
    assert values == ["[10, 8]", "None", "[14, 8]"]


def test_layers_that_varied_alike_are_one_row() -> None:
    alike = [number(f"L['c'].layers[{at}].n", "1", "2") for at in range(3)]
    rows = varied([("0/0", [*alike, number("L['c'].layers[3].n", "1", "9")])])
    assert [(row.variable, row.alike) for row in rows] == [
        ("c.layers[*].n", 3),
        ("c.layers[3].n", 1),
    ]
