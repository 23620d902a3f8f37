"""`compilediag gate --update`: receipts recorded into the baseline; all lanes given, or none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compilediag.commands.receipts import LaneReceipt, shown_path
from compilediag.commands.terminal import render_options, write
from compilediag.compare.gate.baseline import LOCK_NAME, Baseline
from compilediag.compare.gate.baseline_file import read_lock, write_lock
from compilediag.compare.gate.entries import plural
from compilediag.compare.gate.update import Recorded, recorded
from compilediag.errors import UsageError

_NAMED = 5


class Reasons(NamedTuple):
    """Why what is new may be there."""

    of_all: str | None = None
    of_items: Sequence[tuple[str, str]] = ()
    """A part of an item's name, and the reason for that item."""


def update(lanes: Sequence[LaneReceipt], path: str | None, reasons: Reasons) -> None:
    """Writes the lanes into the baseline's file, which is made where there is none.

    Raises:
        UsageError: a receipt must not be recorded, or a reason is needed; nothing is written.
        BaselineUnreadable: the file is no baseline; it is left as it is.
    """
    file = path if path is not None else os.path.join(os.getcwd(), LOCK_NAME)
    lock = read_lock(file) if os.path.lexists(file) else Baseline()
    made = [
        recorded(
            lane.receipt,
            lock.lane(lane.name),
            reason=reasons.of_all,
            reasons=reasons.of_items,
            lane=lane.name,
            code=lane.code,
        )
        for lane in lanes
    ]
    for item in made:
        _refuse(item, file)
    used = {name for item in made for name in item.explained}
    for name, _ in reasons.of_items:
        if name not in used:
            raise UsageError(
                f"--reason-for {name!r} names nothing that the runs would allow; they allow: "
                f"{_names([each for item in made for each in item.allowed])} (nothing was written)"
            )
    written = write_lock(file, lock.with_lanes(item.lane for item in made))
    lines = [_sentence(item) for item in made]
    name = shown_path(file)
    head = f"Wrote {name}" if written else f"{name} holds this already"
    option = (
        ""
        if path is None or os.path.basename(path) == LOCK_NAME
        else f" --baseline {shlex.quote(name)}"
    )
    screen = render_options()
    following = f"  next: git add {shlex.quote(name)}, and in CI: compilediag gate{option}"
    write("\n".join(screen.text(line, 1000) for line in (head, *lines, "", following)) + "\n")


def _names(items: Sequence[str]) -> str:
    more = len(items) - _NAMED
    shown = ", ".join(items[:_NAMED]) or "nothing"
    return shown + (f" and {more} more" if more > 0 else "")


def _refuse(made: Recorded, file: str) -> None:
    lane = made.lane.name
    if made.inconclusive:
        raise UsageError(
            f"the run of lane {lane!r} is not recorded, because {'; '.join(made.inconclusive)}; "
            "run it again"
        )
    if made.unexplained:
        raise UsageError(
            f"{shown_path(file)} would newly allow in lane {lane!r}: {_names(made.unexplained)}; "
            'say why they are all right: --reason "TEXT" (nothing was written)'
        )


def _sentence(made: Recorded) -> str:
    lane = made.lane
    allowed = {
        "causes": len(lane.causes),
        "graph_breaks": len(lane.breaks),
        "eager_fallbacks": len(lane.fallbacks),
    }
    silent = len(made.without_reason)
    doubtful = f" ({silent} without a reason)" if silent else ""
    return f"  lane {lane.name}: {_some(lane.counts)}; allowed: {_some(allowed)}{doubtful}"


def _some(counts: Mapping[str, int]) -> str:
    """The counts that are not 0: "2 frames, 1 graph break"."""
    parts = [
        plural(count, name.removesuffix("s").replace("_", " "))
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts) or "nothing"
