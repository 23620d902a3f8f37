"""`compilediag gate --update`: receipts recorded into the baseline; all lanes given, or none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from compilediag.commands.receipts import LaneReceipt, shown_path
from compilediag.commands.terminal import render_options, write
from compilediag.compare.gate.baseline import LOCK_NAME, Baseline
from compilediag.compare.gate.baseline_file import read_lock, write_lock
from compilediag.compare.gate.judge import Recorded, recorded
from compilediag.compare.gate.judgement import plural
from compilediag.errors import UsageError

_NAMED = 5


def update(
    lanes: Sequence[LaneReceipt],
    path: str | None,
    reason: str | None,
    reasons: Sequence[tuple[str, str]],
) -> None:
    """Writes the lanes into the baseline's file, which is made where there is none. `reason` says
    why what is new may be there; `reasons` have a part of an item's name, and the reason for it.

    Raises:
        UsageError: a receipt must not be recorded, or a reason is needed; nothing is written.
        BaselineUnreadable: the file is no baseline; it is left as it is.
    """
    file = path if path is not None else os.path.join(os.getcwd(), LOCK_NAME)
    name = shown_path(file)
    lock = read_lock(file) if os.path.lexists(file) else Baseline()
    made = [
        recorded(
            lane.receipt,
            lock.lane(lane.name),
            reason=reason,
            reasons=reasons,
            lane=lane.name,
            code=lane.code,
        )
        for lane in lanes
    ]
    _refuse(made, reasons, name)
    written = write_lock(file, lock.with_lanes(item.lane for item in made))
    lines = [f"Wrote {name}" if written else f"{name} holds this already"]
    for item in made:
        lane, silent = item.lane, len(item.without_reason)
        allowed = {
            "causes": len(lane.causes),
            "graph_breaks": len(lane.breaks),
            "eager_fallbacks": len(lane.fallbacks),
        }
        shown = f"{_some(lane.counts)}; allowed: {_some(allowed)}"
        doubtful = f" ({silent} without a reason)" if silent else ""
        lines.append(f"  lane {lane.name}: {shown}{doubtful}")
    named = "" if path is None else os.path.basename(path)
    option = "" if named in ("", LOCK_NAME) else f" --baseline {shlex.quote(name)}"
    following = f"  next: git add {shlex.quote(name)}, and in CI: compilediag gate{option}"
    screen = render_options()
    write("\n".join(screen.text(line, 1000) for line in (*lines, "", following)) + "\n")


def _refuse(made: Sequence[Recorded], reasons: Sequence[tuple[str, str]], name: str) -> None:
    for item in made:
        lane = item.lane.name
        if item.inconclusive:
            raise UsageError(
                f"the run of lane {lane!r} is not recorded, because {'; '.join(item.inconclusive)};"
                " run it again"
            )
        if item.unexplained:
            raise UsageError(
                f"{name} would newly allow in lane {lane!r}: {_names(item.unexplained)}; say why "
                'they are all right: --reason "TEXT" (nothing was written)'
            )
    used = {each for item in made for each in item.explained}
    for part, _ in reasons:
        if part not in used:
            raise UsageError(
                f"--reason-for {part!r} names nothing that the runs would allow; they allow: "
                f"{_names([each for item in made for each in item.allowed])} (nothing was written)"
            )


def _names(items: Sequence[str]) -> str:
    more = len(items) - _NAMED
    shown = ", ".join(items[:_NAMED]) or "nothing"
    return shown + (f" and {more} more" if more > 0 else "")


def _some(counts: Mapping[str, int]) -> str:
    """The counts that are not 0: "2 frames, 1 graph break"."""
    parts = [
        plural(count, name.removesuffix("s").replace("_", " "))
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts) or "nothing"
