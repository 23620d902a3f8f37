"""`compilediag gate --ab`: two command lines measured in turns, and whether B is slower."""

from __future__ import annotations

import sys

from compilediag.commands.terminal import render_options, write_stderr
from compilediag.compare.gate.ab import SLOWER, ClockComparison, CommandRun, require_scipy, timings
from compilediag.runs.tools.ab import measure


def compared(a: str, b: str, rounds: int) -> tuple[ClockComparison, ...]:
    """Runs both and compares them; on a terminal each pair is shown as it is measured."""
    require_scipy()
    progress = _progress if sys.stderr.isatty() else None
    return timings(*measure(a, b, rounds, progress))


def report(a: str, b: str, rounds: int, found: tuple[ClockComparison, ...]) -> str:
    """What was measured, as text."""
    screen = render_options()
    slower = [item for item in found if item.slower]
    words = f"B is slower ({' and '.join(item.clock for item in slower)} time)"
    verdict = words if slower else "B is not slower" if found else "too short to be measured"
    sign = screen.sign("bad" if slower else "good" if found else "blind")
    lines = [
        f"{sign} {verdict}{screen.dot}{rounds} pairs, interleaved",
        f"  A: {screen.text(a)}",
        f"  B: {screen.text(b)}",
        *map(_line, found),
        f"  slower is said where the lower bound is above {SLOWER:+.0%}",
    ]
    return "\n".join(lines) + "\n"


def _line(item: ClockComparison) -> str:
    return (
        f"  {item.clock:<4} A {item.a_s:.3f} s, B {item.b_s:.3f} s: {item.change:+.1%} "
        f"[{item.low:+.1%}, {item.high:+.1%}]; a slowdown of {item.smallest:.1%} would have been "
        "found four times in five"
    )


def _progress(index: int, a: CommandRun, b: CommandRun) -> None:
    write_stderr(f"  pair {index}: A {a.wall_s:.3f} s, B {b.wall_s:.3f} s\n")
