"""Functions that were compiled, each with the pieces that graph breaks cut it into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compilediag.receipt.schema.compiles import FrameDetail, GraphBreak
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views import lookups
from compilediag.views.format import count, figure
from compilediag.views.place import called, line_of
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import resumed_function

MAX_FUNCTIONS = 200
MAX_PIECES = 60


@dataclass(frozen=True, slots=True)
class Cut:
    """A graph break."""

    place: str
    reason: str
    times: str
    finding: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A frame: a whole function, or what runs behind one of its breaks."""

    name: str
    state: str
    """"compiled", "eager" or "limit"."""
    words: str
    detail: str
    reason: str
    cuts: tuple[Cut, ...]
    """Breaks of the whole function, shown with its first piece."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program or a library, with its pieces."""

    name: str
    place: str
    entered: str
    pieces: tuple[Piece, ...]
    pieces_left_out: int


def functions(receipt: Receipt, options: RenderOptions) -> tuple[Function, ...]:
    """Functions with most compiles first; at most `MAX_FUNCTIONS`."""
    grouped: dict[tuple[str, str], list[FrameDetail]] = {}
    for each in receipt.compile.frames_detail:
        grouped.setdefault((each.frame.file, _original(each.frame.function)[0]), []).append(each)
    breaks: dict[tuple[str, str], list[GraphBreak]] = {}
    for item in receipt.compile.breaks:
        breaks.setdefault((item.file, _original(item.function)[0]), []).append(item)
    numbers = {item.id: number for number, item in lookups.numbered(receipt)}
    ordered = sorted(grouped, key=lambda key: -sum(each.compiles for each in grouped[key]))
    return tuple(
        _function(grouped[key], _cuts(breaks.get(key, ()), numbers, options), options)
        for key in ordered[:MAX_FUNCTIONS]
    )


def breaks_elsewhere(receipt: Receipt, options: RenderOptions) -> tuple[Cut, ...]:
    """Breaks in functions that are inlined into others, or of which no frame was seen."""
    own = {
        (each.frame.file, _original(each.frame.function)[0])
        for each in receipt.compile.frames_detail
    }
    numbers = {item.id: number for number, item in lookups.numbered(receipt)}
    others = [
        each
        for each in receipt.compile.breaks
        if (each.file, _original(each.function)[0]) not in own
    ]
    return _cuts(others[:MAX_FUNCTIONS], numbers, options)


def _original(function: str) -> tuple[str, int | None]:
    """The function that a frame is a part of, and the line behind which it goes on."""
    name = resumed_function(function)
    return (function, None) if name is None else (name, int(function.rpartition("_at_")[2]))


def _function(
    frames: Sequence[FrameDetail], cuts: tuple[Cut, ...], options: RenderOptions
) -> Function:
    ordered = sorted(frames, key=lambda each: _original(each.frame.function)[1] or 0)
    first = ordered[0]
    name, _ = _original(first.frame.function)
    call = first.entered_at
    return Function(
        name=options.text(name, 100),
        place=options.place(first.frame.file, first.frame.line, 120),
        entered="" if call is None else called(call, options),
        pieces=tuple(
            _piece(each, cuts if each is first else (), options) for each in ordered[:MAX_PIECES]
        ),
        pieces_left_out=max(0, len(ordered) - MAX_PIECES),
    )


def _piece(item: FrameDetail, cuts: tuple[Cut, ...], options: RenderOptions) -> Piece:
    room = item.headroom
    full = room.limit is not None and room.variants >= room.limit
    line = _original(item.frame.function)[1]
    state = "limit" if item.ran_eager and full else "eager" if item.ran_eager else "compiled"
    words = {"limit": "at its limit: ran eager", "eager": "ran eager", "compiled": "compiled"}
    detail = [count(item.compiles, "compile")]
    detail += [] if room.limit is None else [f"{room.variants} of {room.limit} variants"]
    detail += [] if item.guards is None else [count(item.guards, "guard")]
    detail += [] if item.guard_eval_us is None else [f"{figure(item.guard_eval_us)} us a check"]
    return Piece(
        name="from its start" if line is None else f"behind the break at line {line}",
        state=state,
        words=words[state],
        detail=options.dot.join(detail),
        reason=options.text(item.eager_reason or "", 300),
        cuts=cuts,
    )


def _cuts(
    breaks: Sequence[GraphBreak], numbers: dict[str, int], options: RenderOptions
) -> tuple[Cut, ...]:
    return tuple(
        Cut(
            place=line_of(item.file, item.line, item.function, options),
            reason=options.text(item.reason, 200),
            times=count(item.count, "time"),
            finding=None if item.finding is None else numbers.get(item.finding),
        )
        for item in sorted(breaks, key=lambda each: (each.file, each.line))[:MAX_PIECES]
    )
