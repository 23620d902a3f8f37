"""A search for the compiled frame and the layer of torch behind a difference, by runs in which
frames are compiled by another backend (`TORCH_COMPILE_OVERRIDE_BACKENDS`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from msgspec.structs import replace

from compilediag.receipt.schema.against_eager import NarrowedRecord, NumbersLayer

MAX_RUNS = 14

_STEPS: tuple[tuple[str, NumbersLayer], ...] = (("aot_eager", "backend"), ("eager", "aot_autograd"))
"""Backends that leave out one layer more each, and the layer that is left out."""

WITH_DECOMPOSITIONS = "aot_eager_decomp_partition"


Search = Generator[str, "bool | None", NarrowedRecord]
"""Gives values of the variable; gets whether the difference is still there in a run with it, None
where that run shows nothing."""


def narrowing(own: Sequence[str], others: Sequence[str]) -> Search:
    """The runs that narrow a difference to frames and a layer.

    Args:
        own: ids of the frames of the callable that differs.
        others: those of the rest.
    """
    search = _frames(tuple(own), tuple(others))
    value = next(search, None)
    for runs in range(MAX_RUNS):
        assert value is not None
        differs = yield value
        try:
            value = search.send(differs)
        except StopIteration as done:
            found: NarrowedRecord = done.value
            return replace(found, runs=runs + 1)
    return NarrowedRecord(layer=None, runs=MAX_RUNS, problem=f"not found in {MAX_RUNS} runs")


def _frames(own: tuple[str, ...], others: tuple[str, ...]) -> Search:
    for backend, layer in _STEPS:
        value = f">=0:{backend}"
        differs = yield value
        if differs is None:
            return NarrowedRecord(layer=None, problem=f"the run with {value} shows nothing")
        if differs:
            continue
        candidates, sure = (*own, *others), False
        if own and others and (yield _value(own, backend)) is False:
            candidates, sure = own, True
        found, sure = yield from _halved(candidates, backend, sure)
        named = (yield from _of_backend(found)) if layer == "backend" else layer
        override = _value(found, backend) if sure else value
        problem = None if sure else "several frames together: only all of them were tried"
        frames = found if sure else ()
        return NarrowedRecord(layer=named, frames=frames, override=override, problem=problem)
    return NarrowedRecord(
        layer="dynamo",
        problem="it differs with every frame on the backend eager, too: the graphs themselves do",
    )


def _halved(
    frames: tuple[str, ...], backend: str, sure: bool
) -> Generator[str, bool | None, tuple[tuple[str, ...], bool]]:
    """The fewest of the frames that were seen to be enough, and whether they were seen to be:
    `sure` is that of all of them."""
    while len(frames) > 1:
        middle = len(frames) // 2
        for part in (frames[:middle], frames[middle:]):
            if (yield _value(part, backend)) is False:
                frames, sure = part, True
                break
        else:
            break
    if not sure:
        sure = (yield _value(frames, backend)) is False
    return frames, sure


def _of_backend(frames: tuple[str, ...]) -> Generator[str, bool | None, NumbersLayer]:
    """The decompositions make the difference, without any code that is generated."""
    return "decompositions" if (yield _value(frames, WITH_DECOMPOSITIONS)) else "backend"


def _value(frames: Sequence[str], backend: str) -> str:
    return f"{','.join(frames)}:{backend}"
