"""One line a frame: how often it was compiled, its guards, its room below the limit, ran eager."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compilediag.views.format import NOT_MEASURED, count
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FrameDetail
    from compilediag.receipt.schema.receipt import Receipt

HEAD = ("frame", "compiles", "guards", "guard check", "variants", "ran eager")
RIGHT = ("compiles", "guards", "guard check", "variants")
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]+")
WIDE_ONLY = frozenset({"guards", "guard check"})
"""Columns left out of a narrower terminal."""


def render_frames(receipt: Receipt, options: RenderOptions) -> str:
    """The frames of the run as a table, most compiles first, and what its columns mean."""
    frames = receipt.compile.frames_detail
    if not frames:
        nothing = "no frame was seen: torch.compile was not reached, or it was not observed"
        return "\n".join(options.wrap(nothing)) + "\n"
    ordered = sorted(frames, key=lambda item: -item.compiles)
    lines = [f"{count(len(frames), 'frame')} that torch.compile attempted", ""]
    rows = [frame_row(item, options) for item in ordered]
    lines += table(HEAD, rows, options, right=RIGHT, shrink="frame", wide_only=WIDE_ONLY)
    for item in ordered:
        if item.ran_eager and item.eager_reason:
            name = options.text(item.frame.function, 60)
            sentence = f"{name} ran eager: {options.text(item.eager_reason)}"
            lines += ["", *options.wrap(sentence, "  ", "    ")]
    lines += _decompiled(receipt, options)
    meaning = "variants: compiled versions in use, of recompile_limit; over it the frame runs eager"
    lines += ["", *options.wrap(meaning, "  ", "    ")]
    return "\n".join(lines) + "\n"


def _decompiled(receipt: Receipt, options: RenderOptions) -> list[str]:
    """The files of decompiled code by compile; from `run --depyf`."""
    linked = {
        item.uri.rpartition("/")[2].removesuffix(".py"): item.uri
        for item in receipt.artifacts
        if item.role == "depyf"
    }
    lines: list[str] = []
    for event in receipt.compile.events:
        function = event.frame.function
        identity = event.compile_id.replace("/", "-").replace("!", "a")
        uri = linked.pop(f"{identity}-{_NOT_A_WORD.sub('_', function)[:60]}", None)
        if uri is not None:
            resumed = function.startswith("torch_dynamo_resume_in_")
            what = "what runs after the break" if resumed else "what runs"
            name = f"{options.text(event.compile_id, 40)} {options.text(function, 60)}"
            lines += options.wrap(f"{name}, {what}: {options.text(uri)}", "  ", "    ")
    return ["", *lines] if lines else []


def frame_row(item: FrameDetail, options: RenderOptions) -> tuple[str, ...]:
    """The cells of a frame, below `HEAD`."""
    where = options.place(item.frame.file, item.frame.line)
    room = item.headroom
    limit = "?" if room.limit is None else str(room.limit)
    micros = item.guard_eval_us
    return (
        f"{options.text(item.frame.function, 60)}  {where}",
        str(item.compiles),
        "?" if item.guards is None else str(item.guards),
        NOT_MEASURED if micros is None else f"{micros:.0f} us",
        f"{room.variants} of {limit}",
        "yes" if item.ran_eager else "no",
    )
