"""A search for the compiled frame and the layer of torch behind a difference, by runs in which
frames are compiled by another backend (`TORCH_COMPILE_OVERRIDE_BACKENDS`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from compilediag.receipt.schema.comparisons import NarrowedRecord, NumbersLayer

MAX_RUNS = 14

_STEPS: tuple[tuple[str, NumbersLayer], ...] = (("aot_eager", "backend"), ("eager", "aot_autograd"))
"""Backends that leave out one layer more each, and the layer that is left out."""

WITH_DECOMPOSITIONS = "aot_eager_decomp_partition"


Differs = Callable[[str], "bool | None"]
"""Whether the difference is still there in a run with this value of the variable; None where that
run shows nothing."""


class _Enough(Exception):
    """As many runs as may be were made."""


def narrowing(own: Sequence[str], others: Sequence[str], differs: Differs) -> NarrowedRecord:
    """The frames and the layer that a difference is narrowed to.

    Args:
        own: ids of the frames of the callable that differs.
        others: those of the rest.
        differs: makes a run.
    """
    runs = 0

    def counted(value: str) -> bool | None:
        nonlocal runs
        if runs == MAX_RUNS:
            raise _Enough
        runs += 1
        return differs(value)

    try:
        return replace(_frames(tuple(own), tuple(others), counted), runs=runs)
    except _Enough:
        problem = f"not found in {MAX_RUNS} runs"
        return NarrowedRecord(layer=None, runs=MAX_RUNS, problem=problem)


def _frames(own: tuple[str, ...], others: tuple[str, ...], differs: Differs) -> NarrowedRecord:
    for backend, layer in _STEPS:
        value = f">=0:{backend}"
        still = differs(value)
        if still is None:
            return NarrowedRecord(layer=None, problem=f"the run with {value} shows nothing")
        if still:
            continue
        candidates, sure = (*own, *others), False
        if own and others and differs(_value(own, backend)) is False:
            candidates, sure = own, True
        found, sure = _halved(candidates, backend, sure, differs)
        named = layer
        if layer == "backend" and differs(_value(found, WITH_DECOMPOSITIONS)):
            named = "decompositions"  # they make the difference, without any generated code
        override = _value(found, backend) if sure else value
        problem = None if sure else "several frames together: only all of them were tried"
        frames = found if sure else ()
        return NarrowedRecord(layer=named, frames=frames, override=override, problem=problem)
    return NarrowedRecord(
        layer="dynamo",
        problem="it differs with every frame on the backend eager, too: the graphs themselves do",
    )


def _halved(
    frames: tuple[str, ...], backend: str, sure: bool, differs: Differs
) -> tuple[tuple[str, ...], bool]:
    """The fewest of the frames that were seen to be enough, and whether they were seen to be:
    `sure` is that of all of them."""
    while len(frames) > 1:
        middle = len(frames) // 2
        for part in (frames[:middle], frames[middle:]):
            if differs(_value(part, backend)) is False:
                frames, sure = part, True
                break
        else:
            break
    if not sure:
        sure = differs(_value(frames, backend)) is False
    return frames, sure


def _value(frames: Sequence[str], backend: str) -> str:
    return f"{','.join(frames)}:{backend}"
