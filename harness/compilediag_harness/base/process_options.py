"""Options of a run that its processes need, passed to them as one JSON environment variable.

`compilediag run` writes the variable, and every process of the program inherits it. It is absent
where no option differs from its default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass

VARIABLE = "COMPILEDIAG_OPTIONS"


@dataclass(frozen=True, slots=True)
class WriteTracingPlan:
    """Steps and guards of a run for which write tracing follows who changes a guarded value."""

    steps: frozenset[int] = frozenset()
    """Steps an earlier run recompiled in: only they and those before are followed. Empty: all."""
    sources: frozenset[str] = frozenset()
    """Guards that were false in it. Empty: every guarded value is watched."""

    def should_follow(self, step: int) -> bool:
        """True if what comes after a compiled call in a step may change what a recompile is for."""
        return not self.steps or step in self.steps or step + 1 in self.steps


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of one attached process beside recording; the defaults are those of a plain run."""

    steps: int | None = None
    """The program stops, with exit code 0, after this many steps."""
    experiments_s: float | None = None
    """Seconds between updates of the experiment that the program has open; None: no updates."""
    sync_steps: tuple[int, int] | None = None
    """Period and first step of the work that a probe moves: synchronisations are sampled there."""
    write_tracing: WriteTracingPlan | None = None
    """Steps and guards whose writes are traced; None: no write tracing."""
    past_limit: bool | None = None
    """True: torch compiles on where a frame is over the recompile limit."""

    def encode(self) -> str:
        """Encode the value of the variable; "" where every option has its default."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(given, default=sorted) if given else ""


def read(fault: Callable[[str, Exception], None] = lambda where, error: None) -> ProcessOptions:
    """Read the options in the environment of this process; the defaults where they cannot be read.
    Then `fault(name of the variable, error)` is called; nothing is raised."""
    text = os.environ.get(VARIABLE)
    if not text:
        return ProcessOptions()
    try:
        given = json.loads(text)
        steps, sync, plan = given.get("steps"), given.get("sync_steps"), given.get("write_tracing")
        experiments_s = given.get("experiments_s")
        if sync is not None and int(sync[0]) < 1:
            raise ValueError(f"the period of sync_steps must be 1 or more, not {sync[0]}")
        tracing_plan = None
        if plan is not None:
            sources = frozenset(map(str, plan["sources"]))
            tracing_plan = WriteTracingPlan(frozenset(map(int, plan["steps"])), sources)
        return ProcessOptions(
            steps=None if steps is None else max(int(steps), 1),
            experiments_s=None if experiments_s is None else float(experiments_s),
            sync_steps=None if sync is None else (int(sync[0]), int(sync[1])),
            write_tracing=tracing_plan,
            past_limit=True if given.get("past_limit") else None,
        )
    except Exception as error:  # set by hand: the program runs on as if it were not there
        fault(VARIABLE, error)
        return ProcessOptions()
