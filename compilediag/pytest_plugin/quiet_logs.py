"""Keeps out of pytest's captured logs what torch logs only because somebody listens.

pytest 9 puts its handlers on every logger that does not propagate. On torch's structured trace they
receive dozens of empty records a compile, which torch makes only because there is a handler. The
user's handlers stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

TRACE_LOGGER = "torch.__trace"


class QuietLogs:
    """Entered before a test is watched; torch's loggers are as before when it is left."""

    def __init__(self) -> None:
        self._guarded = False

    def __enter__(self) -> None:
        logger = logging.getLogger(TRACE_LOGGER)
        # A guarded logger belongs to another test that is still in force.
        if "addHandler" not in vars(logger):
            self._guard(logger)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._guarded:
            vars(logging.getLogger(TRACE_LOGGER)).pop("addHandler", None)
            self._guarded = False

    def _guard(self, logger: logging.Logger) -> None:
        """Treats pytest's handlers that are there, and those that come later (subtests)."""
        for handler in list(logger.handlers):
            if _is_of_pytest(handler):
                logger.removeHandler(handler)
        add: Callable[[logging.Handler], None] = logger.addHandler

        def add_guarded(hdlr: logging.Handler) -> None:
            if not _is_of_pytest(hdlr):
                add(hdlr)

        logger.addHandler = add_guarded
        self._guarded = True


def _is_of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith(("_pytest.", "pytest_subtests"))
