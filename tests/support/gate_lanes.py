"""Lanes for the tests of the gate's lock."""

from compilediag.compare.keys import COUNTS, BreakKey, CauseKey, FrameKey
from compilediag.compare.run_baseline import (
    ConfigBaseline,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
)

COUNTED = dict.fromkeys(COUNTS, 1)


def lane(name: str = "train", *variables: str) -> ConfigBaseline:
    return ConfigBaseline(
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
