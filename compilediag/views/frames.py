"""One line a frame: how often it was compiled, its guards, its room below the limit, ran eager."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compilediag.views.style import RenderOptions
from compilediag.views.table import table
from compilediag.views.text import hang
from compilediag.views.words import NOT_MEASURED, count

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FrameDetail
    from compilediag.receipt.schema.receipt import Receipt

HEAD = ("frame", "compiles", "guards", "guard check", "variants", "ran eager")
RIGHT = ("compiles", "guards", "guard check", "variants")
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]+")
WIDE = 80
WIDE_ONLY = frozenset({"guards", "guard check"})
"""Columns left out of a narrower terminal."""


def render_frames(receipt: Receipt, look: RenderOptions) -> str:
    """The frames of the run as a table, most compiles first, and what its columns mean."""
    frames = receipt.compile.frames_detail
    if not frames:
        nothing = "no frame was seen: torch.compile was not reached, or it was not observed"
        return "\n".join(hang(nothing, look.width, "", "")) + "\n"
    ordered = sorted(frames, key=lambda item: -item.compiles)
    lines = [f"{count(len(frames), 'frame')} that torch.compile attempted", ""]
    shown = [name for name in HEAD if name not in WIDE_ONLY or look.width >= WIDE]
    rows = [_row(item, look) for item in ordered]
    cells = [[row[HEAD.index(name)] for name in shown] for row in rows]
    lines += table(shown, cells, look, right=RIGHT, shrink="frame")
    for item in ordered:
        if item.ran_eager and item.eager_reason:
            name = look.text(item.frame.function, 60)
            told = f"{name} ran eager: {look.text(item.eager_reason)}"
            lines += ["", *hang(told, look.width, "  ", "    ")]
    lines += _decompiled(receipt, look)
    meaning = "variants: compiled versions in use, of recompile_limit; over it the frame runs eager"
    lines += ["", *hang(meaning, look.width, "  ", "    ")]
    return "\n".join(lines) + "\n"


def _decompiled(receipt: Receipt, look: RenderOptions) -> list[str]:
    """Where it stands what torch made of each frame, by compile; from `run --depyf`."""
    linked = {
        uri.rpartition("/")[2].removesuffix(".py"): uri
        for uri in (item.uri for item in receipt.artifacts if item.role == "depyf")
    }
    lines: list[str] = []
    for event in receipt.compile.events:
        identity = event.compile_id.replace("/", "-").replace("!", "a")
        word = _NOT_A_WORD.sub("_", event.frame.function)[:60]
        uri = linked.pop(f"{identity}-{word}", None)
        if uri is not None:
            resumed = event.frame.function.startswith("torch_dynamo_resume_in_")
            what = "what runs after the break" if resumed else "what runs"
            told = f"{look.text(event.compile_id, 40)} {look.text(event.frame.function, 60)}"
            lines += hang(f"{told}, {what}: {look.text(uri)}", look.width, "  ", "    ")
    return ["", *lines] if lines else []


def _row(item: FrameDetail, look: RenderOptions) -> tuple[str, ...]:
    where = f"{look.path(item.frame.file, 60)}:{item.frame.line}"
    room = item.headroom
    limit = "?" if room.limit is None else str(room.limit)
    micros = item.guard_eval_us
    return (
        f"{look.text(item.frame.function, 60)}  {where}",
        str(item.compiles),
        "?" if item.guards is None else str(item.guards),
        NOT_MEASURED if micros is None else f"{micros:.0f} us",
        f"{room.variants} of {limit}",
        "yes" if item.ran_eager else "no",
    )
