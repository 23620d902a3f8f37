"""The baseline's file: one text for one content, merged by git, refused where it is not ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compilediag.compare.gate.baseline import Baseline, read, text_of
from compilediag.compare.keys import COUNTS, BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
)

COUNTED = dict.fromkeys(COUNTS, 1)


def lane(name: str = "train", *variables: str) -> LaneBaseline:
    return LaneBaseline(
        name,
        {"precision": "fp32", "preset": None, "numerics_flags.backend": "eager"},
        COUNTED,
        causes=tuple(KnownCause(CauseKey("CD107", v, "app.py", "forward"), 1) for v in variables),
        breaks=(KnownBreak(BreakKey("app.py", "forward", "data", 'if "x"'), 2, "by design"),),
        frames=(KnownFrame(FrameKey("app.py", "forward"), 3, 2),),
        fallbacks=(KnownFallback(FrameKey("app.py", "helper")),),
        recordings=4,
        torch="2.13.0",
    )


def test_git_merges_two_branches(tmp_path: Path) -> None:
    """One branch allows a cause of one lane, the other one of another: no conflict."""
    base = Baseline((lane("a", "k", "z"), lane("b", "k", "z")))
    ours = base.with_lanes([lane("a", "k", "n", "z")])
    theirs = base.with_lanes([lane("b", "k", "m", "z")])
    files = [tmp_path / name for name in ("ours", "base", "theirs")]
    for file, lock in zip(files, (ours, base, theirs), strict=True):
        file.write_text(text_of(lock), encoding="utf-8")
    subprocess.run(["git", "merge-file", *map(str, files)], check=True)
    merged = read(files[0].read_text(encoding="utf-8"))
    assert merged == Baseline((lane("a", "k", "n", "z"), lane("b", "k", "m", "z")))
