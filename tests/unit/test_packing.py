"""Buffers that are filled and overwritten: what source and samples show, when it is a finding."""

import ast
from dataclasses import replace
from types import CodeType
from typing import Any

import pytest
from timelines import FILE, process, timeline

from compilediag.extensions.packing import find_packing_copies
from compilediag.timeline.timeline import SampledStep, Step
from compilediag_harness.extensions.packing import count_elements, find_packing
from compilediag_harness.wire import Location, PackedBuffer

MIB = 2**20
PACKED = PackedBuffer(
    Location(FILE, 12, "pack"), "batch", "zeros", 10, 1, 32, 64 * MIB, 48 * MIB, 1e-3
)


# --- the source ---


def packs(torch: Any, rows: Any) -> Any:
    batch = torch.zeros(8, 4).to("cpu")
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
    return batch


def copies(self: Any, rows: Any) -> None:
    self.batch.zero_()
    for row in rows:
        self.batch[0].copy_(row)


def adds(torch: Any, rows: Any) -> Any:
    sums = torch.zeros(8)
    for row in rows:
        sums[0] = row
        sums[1] += row
    return sums


def fills_once(torch: Any, rows: Any, batch: Any) -> Any:
    if batch is None:
        batch = torch.zeros(8)
    for row in rows:
        batch[0] = row
    return batch


def replaces(torch: Any, rows: Any) -> Any:
    batch = torch.zeros(8)
    batch = torch.cat([batch, rows])
    batch[0] = 1.0
    return batch


def found_in(function: Any) -> list[tuple[str, str, int]]:
    """Buffer, filling and line of the filling of every line that is a packing."""
    code: CodeType = function.__code__
    first = code.co_firstlineno
    found = (find_packing(code, first + offset) for offset in range(8))
    return [(item.name, item.fill, item.fill_line - first) for item in found if item is not None]


def test_a_filled_buffer_is_found_by_its_name() -> None:
    """Made by a call, also one whose result is moved, or filled again by a method."""
    assert found_in(packs) == [("batch", "zeros", 1)]
    assert found_in(copies) == [("self.batch", "zero_", 1)]


@pytest.mark.parametrize("function", [adds, fills_once, replaces])
def test_what_needs_its_filling_or_may_not_have_it_is_none(function: Any) -> None:
    """Something is added to it, it is filled only sometimes, its name has become something else."""
    assert found_in(function) == []


@pytest.mark.parametrize(
    ("index", "elements"),
    [
        ("2", 30),
        ("place, : len(row)", 4 * 5),
        ("place, 1:-1, start : start + 2", 4 * 2),
        (":", 240),
        ("-1, :, 3:99", 6 * 2),
        ("place, : unknown", None),
        ("place, ::2", None),
        ("mask", None),
        ("place, 0, 0, 0", None),
    ],
)
def test_an_index_tells_how_much_it_means(index: str, elements: int | None) -> None:
    """Of a tensor of 8 x 6 x 5; nothing where that would have to be computed by the program."""
    expression = ast.parse(f"buffer[{index}]", mode="eval").body
    assert isinstance(expression, ast.Subscript)
    names = {"place": 3, "row": [0] * 4, "start": 2, "mask": [True, False]}
    assert count_elements(expression.slice, (8, 6, 5), names) == elements


# --- the rule ---


def found(*packed: PackedBuffer, wall_s: float = 0.02) -> Any:
    """The findings where each of these was packed in a sampled step of its own."""
    run = timeline(
        syncs=tuple(
            SampledStep(0, number, False, True, (), 0.0, {}, (item,))
            for number, item in enumerate(packed, start=3)
        )
    )
    steps = tuple(Step(0, n, n + 1.0, wall_s, None, None, None, 0.0) for n in range(8))
    return list(find_packing_copies(replace(run, processes=(process(),), steps=steps)))


@pytest.mark.parametrize(
    "packed",
    [
        replace(PACKED, buffer_bytes=16 * MIB, written_bytes=16 * MIB),
        replace(PACKED, buffers=4),
        replace(PACKED, written_bytes=MIB),
        replace(PACKED, written_bytes=None),
        replace(PACKED, seconds=1e-4),
        replace(PACKED, seconds=None),
    ],
)
def test_what_is_not_worth_it_or_not_known_is_not_told(packed: PackedBuffer) -> None:
    """Small buffers, mostly padding, an unknown share, stores that take next to nothing."""
    assert found(packed, packed, packed) == []


def test_one_step_is_not_every_step() -> None:
    """Nor is one of three."""
    small = replace(PACKED, seconds=1e-5)
    assert found(PACKED) == []
    assert found(PACKED, PACKED, small, small) == []
