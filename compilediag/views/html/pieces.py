"""Functions that were compiled, each with the pieces that graph breaks cut it into."""

from __future__ import annotations

from collections.abc import Iterable
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
class Piece:
    """A frame (a whole function, or what runs behind one of its breaks), or a graph break."""

    state: str
    """"compiled", "eager", "limit" (ran eager at its limit), or "cut" for a break."""
    name: str
    detail: str
    reason: str
    finding: int | None = None


@dataclass(frozen=True, slots=True)
class FunctionPieces:
    """A function of the program or a library, with its pieces and the breaks between them."""

    name: str
    place: str
    entered: str
    pieces: tuple[Piece, ...]
    pieces_left_out: int


def functions(
    receipt: Receipt, options: RenderOptions
) -> tuple[tuple[FunctionPieces, ...], tuple[Piece, ...]]:
    """Functions with most compiles first, at most `MAX_FUNCTIONS`; and the breaks in functions that
    are inlined into others, or of which no frame was seen."""
    frames: dict[tuple[str, str], list[FrameDetail]] = {}
    for each in receipt.compile.frames_detail:
        frames.setdefault((each.frame.file, _original(each.frame.function)[0]), []).append(each)
    breaks: dict[tuple[str, str], list[GraphBreak]] = {}
    for item in receipt.compile.breaks:
        breaks.setdefault((item.file, _original(item.function)[0]), []).append(item)
    numbers = {item.id: number for number, item in lookups.numbered(receipt)}
    ordered = sorted(frames, key=lambda key: -sum(each.compiles for each in frames[key]))
    shown = tuple(
        _function(key[1], frames[key], _cuts(breaks.get(key, ()), numbers, options), options)
        for key in ordered[:MAX_FUNCTIONS]
    )
    others = [item for key, items in breaks.items() if key not in frames for item in items]
    return shown, _cuts(others[:MAX_FUNCTIONS], numbers, options)


def _original(function: str) -> tuple[str, int | None]:
    """The function that a frame is a part of, and the line behind which it goes on."""
    name = resumed_function(function)
    return (function, None) if name is None else (name, int(function.rpartition("_at_")[2]))


def _function(
    name: str, frames: list[FrameDetail], cuts: tuple[Piece, ...], options: RenderOptions
) -> FunctionPieces:
    """Its breaks stand behind its first piece."""
    ordered = sorted(frames, key=lambda each: _original(each.frame.function)[1] or 0)
    first, call = ordered[0].frame, ordered[0].entered_at
    pieces = [_piece(each, options) for each in ordered[:MAX_PIECES]]
    return FunctionPieces(
        name=options.text(name, 100),
        place=options.place(first.file, first.line, 120),
        entered="" if call is None else called(call, options),
        pieces=(pieces[0], *cuts, *pieces[1:]),
        pieces_left_out=max(0, len(ordered) - MAX_PIECES),
    )


def _piece(item: FrameDetail, options: RenderOptions) -> Piece:
    room = item.headroom
    full = room.limit is not None and room.variants >= room.limit
    line = _original(item.frame.function)[1]
    state = "limit" if item.ran_eager and full else "eager" if item.ran_eager else "compiled"
    words = {"limit": "at its limit: ran eager", "eager": "ran eager", "compiled": "compiled"}
    detail = [words[state], count(item.compiles, "compile")]
    detail += [] if room.limit is None else [f"{room.variants} of {room.limit} variants"]
    detail += [] if item.guards is None else [count(item.guards, "guard")]
    detail += [] if item.guard_eval_us is None else [f"{figure(item.guard_eval_us)} us a check"]
    name = "from its start" if line is None else f"behind the break at line {line}"
    return Piece(state, name, options.dot.join(detail), options.text(item.eager_reason or "", 300))


def _cuts(
    breaks: Iterable[GraphBreak], numbers: dict[str, int], options: RenderOptions
) -> tuple[Piece, ...]:
    return tuple(
        Piece(
            "cut",
            line_of(item.file, item.line, item.function, options),
            count(item.count, "time"),
            options.text(item.reason, 200),
            None if item.finding is None else numbers.get(item.finding),
        )
        for item in sorted(breaks, key=lambda each: (each.file, each.line))[:MAX_PIECES]
    )
