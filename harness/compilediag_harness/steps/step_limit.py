"""Stops the program, as `sys.exit(0)` would, after the steps that `run --steps N` allows."""

from __future__ import annotations

import threading

from compilediag_harness.base.session import Session

limit: int | None = None
"""Steps of the first session after which the program stops; read it through this module."""


def read(session: Session) -> None:
    """Takes the limit from the options of the run."""
    global limit
    limit = session.options.steps


def own_the_loop() -> None:
    """Called by a loop that keeps to the number of steps by itself: nothing stops it from here."""
    global limit
    limit = None


def stop_if_done(step: int) -> None:
    """Ends the program from the main thread when it has done its steps.

    The exception passes through the training loop: `finally` blocks, context managers and
    `atexit` run, and a bare `except Exception` does not swallow it.

    Raises:
        SystemExit: `step` steps have ended, and no more are allowed.
    """
    if (
        limit is not None
        and step >= limit
        and threading.current_thread() is threading.main_thread()
    ):
        raise SystemExit(0)
