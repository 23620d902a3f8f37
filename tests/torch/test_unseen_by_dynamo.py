"""What finds the steps is below Dynamo: what torch makes of a program is what it makes of it when
nothing observes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "support" / "compiled_around_hooks.py"


def told(mode: str) -> dict[str, Any]:
    """What torch made of each program, in a process of its own: hooks stay for ever."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS), mode],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    pytest.importorskip("torch")
    return told("plain")


@pytest.mark.parametrize("mode", ["observed", "late"])
def test_counters_and_metrics_are_those_of_a_plain_run(mode: str, plain: dict[str, Any]) -> None:
    """All of torch's counters, guards and names of compiled frames included; also where we come
    when a step has been compiled already: nothing compiles again."""
    seen = told(mode)
    for name, expected in plain.items():
        assert expected["error"] is None
        assert expected["rows"]
        assert seen[name] == expected, name


def test_a_hook_of_an_optimizer_is_seen(plain: dict[str, Any]) -> None:
    """The comparison can fail: Dynamo traces such a hook, and is guarded on the table it is in."""
    seen = told("planted")
    assert {name for name in plain if seen[name] != plain[name]} >= {
        "compiled_step",
        "step_in_a_compiled_function",
    }
