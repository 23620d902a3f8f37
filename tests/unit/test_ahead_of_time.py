"""Rows of torch's metrics that belong to no frame: exports and AOTInductor are in no count."""

from dataclasses import replace

import pytest
from built_receipt import compiled, ended, started

from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.wire import Compiled, Event, Location, Recompiled, TorchSeen

FRAME = Location("/home/user/app.py", 3, "forward")
NOWHERE = Location("", 0, "")
ROW = compiled("0/0", 1.0, 0, 0.5, frame=FRAME)
STRICT = replace(ROW, compile_id="", frame=NOWHERE, guarded=False, graph_ops=None)
"""torch 2.13 records of `torch.export.export(strict=True)` no id, no code and no outcome."""
AOTI = replace(STRICT, compile_id="0/0")
LIMIT = replace(STRICT, compile_id="0/1", fail_type="Unsupported", fail_reason="x")


def folded(*rows: Event) -> Timeline:
    """A process with these rows, all of which arrived."""
    count = sum(isinstance(row, Compiled) for row in rows)
    seen = TorchSeen(0.1, "2.13.0", None, {}, {})
    return fold([(started(), seen, *rows, ended(counters={"metrics_rows": count}))])


def test_an_export_beside_a_compiled_frame() -> None:
    """AOTInductor's row bears the id of the next frame, which keeps its own figures."""
    run = folded(AOTI, STRICT, ROW)
    assert (run.counts.frames, run.counts.compiles, len(run.ahead_of_time)) == (1, 1, 2)
    assert (run.frames[0].where, run.frames[0].guards) == (FRAME, ROW.guards)
    assert diagnose(run).verdict == "clean"


@pytest.mark.parametrize("asked", [True, False])
def test_the_attempt_at_the_limit_has_no_code_either(*, asked: bool) -> None:
    """torch asked why it recompiles, or the frame is known and the attempt failed: it is one."""
    question = Recompiled(1.5, 0, "0/1", 0, FRAME, ("0/0: n == 2",), (), 0.0)
    run = folded(ROW, *([question] if asked else []), replace(LIMIT, t=2.0))
    assert (len(run.compiles), len(run.ahead_of_time)) == (2, 0)


def test_a_limit_that_says_so() -> None:
    """A first attempt may hit the accumulated limit of its code."""
    run = folded(
        replace(LIMIT, compile_id="4/0", fail_reason="accumulated_recompile_limit reached")
    )
    assert (run.compiles[0].kind, len(run.ahead_of_time)) == ("limit", 0)
