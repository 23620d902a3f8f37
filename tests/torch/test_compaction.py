"""`FixedShape.until_done`: rows that are left move to smaller sizes; masking gives the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from compilediag_harness.shapes.compaction import ActiveCount
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape


class State(NamedTuple):
    left: Any
    total: Any
    path: Any
    clock: Any


def step(state: State) -> State:
    """Adds what is left, also to rows that are done: holding them is not its work."""
    return State(
        state.left - 1,
        state.total + state.left * 0.5,
        torch.cat((state.path[:, 1:], state.left[:, None]), 1),
        state.clock + 1,
    )


def start(lives: list[int]) -> State:
    left = torch.tensor(lives)
    rows = len(lives)
    return State(left, torch.zeros(rows), torch.zeros(rows, 3, dtype=torch.int64), torch.zeros(()))


def done(state: State) -> Any:
    return state.left <= 0


def masked(state: State, steps: int) -> State:
    """All rows to the end, those that are done held: what compaction must give."""
    for _ in range(steps):
        if bool(done(state).all()):
            break
        new, held = step(state), done(state)
        state = State(
            torch.where(held, state.left, new.left),
            torch.where(held, state.total, new.total),
            torch.where(held[:, None], state.path, new.path),
            new.clock,
        )
    return state


def fixed_of(*buckets: int) -> FixedShape:
    dims = {"state.left": 0, "state.total": 0, "state.path": 0}
    return FixedShape(step, dims, list(buckets))


MANY = [1, 9, 3, 1, 0, 2, 7, 1, 1, 1, 4, 1, 2]


@pytest.mark.parametrize("lives", [MANY, [5], [0, 0], [3, 3, 3], list(range(17))])
@pytest.mark.parametrize("compaction", [False, True])
def test_results_are_those_of_masking(lives: list[int], compaction: bool) -> None:
    """Every row in its place, whatever sizes it went through, also stopped early; what has no rows
    is the newest."""
    fixed = fixed_of(2, 4, 8, 32)
    for steps in (4, 40):
        with torch.no_grad():
            loop = fixed.until_done(start(lives), done, steps, compaction=compaction)
        expected = masked(start(lives), steps)
        assert all(torch.equal(a, b) for a, b in zip(loop.state, expected, strict=True))


def test_large_batches_are_split_until_few_are_left() -> None:
    """Three calls a step at first, then two, then one."""
    lives = torch.tensor(MANY * 3)
    with torch.no_grad():
        fixed = FixedShape(lambda left: left - 1, {"left": 0}, [2, 4, 8, 16])
        loop = fixed.until_done(lives, lambda left: left <= 0, 20)
    assert loop.sizes == (36, 18, 16, 16, 8, 8, 8, 4, 4)
    assert torch.equal(loop.state, torch.zeros_like(lives))


def test_rows_that_are_left_move_to_smaller_sizes() -> None:
    """The sizes follow the number of rows that are left, and only warmed sizes occur."""
    with torch.no_grad():
        loop = fixed_of(2, 4, 8, 16).until_done(start(MANY), done, 20)
        without = fixed_of(2, 4, 8, 16).until_done(start(MANY), done, 20, compaction=False)
    assert loop.active == (12, 6, 4, 3, 2, 2, 2, 1, 1)
    assert loop.sizes == (16, 8, 4, 4, 2, 2, 2, 2, 2)
    assert (loop.steps, loop.rows, loop.compacted) == (9, 13, 3)
    assert (without.sizes, without.compacted) == ((16,) * 9, 0)


def test_a_late_count_is_safe() -> None:
    """On a device the count is some steps old: the sizes are larger, the result is the same."""
    looked: list[int] = []
    look = ActiveCount.update

    def late(self: ActiveCount, flags: Any) -> None:
        looked.append(int((~flags).sum()))
        self.bound = min([self.bound, *looked[:-3]])

    ActiveCount.update = late  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            loop = fixed_of(2, 4, 8, 16).until_done(start(MANY), done, 20)
    finally:
        ActiveCount.update = look  # type: ignore[method-assign]
    expected = masked(start(MANY), 20)
    assert all(torch.equal(a, b) for a, b in zip(loop.state[:3], expected[:3], strict=True))
    assert loop.sizes[:5] == (16, 16, 16, 16, 8)


class _Landing:
    """A count on its way to the host."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.arrived = False
        self.value = 0

    def copy_(self, count: Any, *, non_blocking: bool) -> None:
        assert non_blocking
        self.value = int(count)
        self.events.append("copy")

    def __getitem__(self, place: int) -> int:
        assert self.arrived, "read before it arrived: that waits for the device"
        return self.value


class _Device:
    """As much of torch as counting on a device uses."""

    int64 = torch.int64

    def __init__(self) -> None:
        self.events: list[str] = []
        self.landing = _Landing(self.events)
        self.cuda = self

    def empty(self, *_shape: int, dtype: Any, pin_memory: bool) -> _Landing:
        assert pin_memory
        return self.landing

    def Event(self) -> _Device:
        return self

    def record(self) -> None:
        self.events.append("record")

    def query(self) -> bool:
        return self.landing.arrived


class _OnDevice:
    is_cuda = True

    def __init__(self, left: int) -> None:
        self.left = left

    def __invert__(self) -> Any:
        return torch.ones(self.left, dtype=torch.bool)


def test_a_count_on_a_device_is_never_waited_for() -> None:
    """It is read only when its event has passed, one is on its way at a time; it never grows."""
    device = _Device()
    count = ActiveCount(device, 9)
    count.update(_OnDevice(7))
    count.update(_OnDevice(6))
    assert (count.bound, device.events) == (9, ["copy", "record"])
    device.landing.arrived = True
    count.update(_OnDevice(5))
    assert count.bound == 7
    count.update(_OnDevice(4))
    assert count.bound == 5


def test_gradients_flow_through_a_compacted_loop() -> None:
    """Of what every row was given, to the row it was given to."""
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    lives = torch.tensor([1, 3, 1, 1, 2])

    def grow(state: dict[str, Any]) -> dict[str, Any]:
        return {"left": state["left"] - 1, "x": state["x"] * 2.0}

    fixed = FixedShape(grow, {"state": 0}, [2, 4, 8])
    loop = fixed.until_done({"left": lives, "x": weight * 1.0}, lambda s: s["left"] <= 0, 10)
    loop.state["x"].sum().backward()
    assert weight.grad.tolist() == [2.0, 8.0, 2.0, 2.0, 4.0]


def test_an_empty_state_is_done() -> None:
    """No step, no row."""
    loop = fixed_of(2).until_done(start([]), done, 5)
    assert (loop.steps, loop.rows) == (0, 0)


def test_bad_loops_say_what_is_wrong() -> None:
    """A step that returns something else; flags that are none."""
    with pytest.raises(ShapeUnusable, match="another structure than it takes"):
        FixedShape(lambda x: (x, x), {"x": 0}, [2]).until_done(torch.ones(2), lambda x: x > 2, 3)
    with pytest.raises(ShapeUnusable, match=r"one bool a row, \[2\], not torch.float32 \[2, 3\]"):
        FixedShape(lambda x: x, {"x": 0}, [2]).until_done(torch.ones(2, 3), lambda x: x, 3)
