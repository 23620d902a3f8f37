"""Keeps out of pytest's captured logs what torch logs only because somebody listens.

pytest 9 puts its handlers on every logger that does not propagate. On torch's structured trace they
receive dozens of empty records a compile, which torch makes only because there is a handler; on
the others they receive the artifacts that watching puts in force. The user's handlers stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from compilediag_harness.collectors.artifact_loggers import artifact_of
from compilediag_harness.collectors.logs import ARTIFACTS
from compilediag_harness.torch_internals.torch_logs import log_internals

TRACE_LOGGER = "torch.__trace"


class _OnlyEnabledByUser(logging.Filter):
    """Passes the artifacts that the user enabled."""

    def __init__(self, not_enabled: frozenset[str]) -> None:
        super().__init__()
        self._not_enabled = not_enabled

    def filter(self, record: logging.LogRecord) -> bool:
        return artifact_of(record.name) not in self._not_enabled


class QuietLogs:
    """Entered before a test is watched; torch's loggers are as before when it is left."""

    def __init__(self) -> None:
        self._guarded: list[logging.Logger] = []
        self._filtered: list[tuple[logging.Handler, _OnlyEnabledByUser]] = []

    def __enter__(self) -> None:
        only_enabled = _OnlyEnabledByUser(_not_enabled())
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if not isinstance(logger, logging.Logger) or name.partition(".")[0] != "torch":
                continue
            # A guarded logger belongs to another test that is still in force.
            if not logger.propagate and "addHandler" not in vars(logger):
                self._guard(logger, only_enabled)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for logger in self._guarded:
            vars(logger).pop("addHandler", None)
        for handler, only_enabled in self._filtered:
            handler.removeFilter(only_enabled)
        self._guarded, self._filtered = [], []

    def _guard(self, logger: logging.Logger, only_enabled: _OnlyEnabledByUser) -> None:
        """Treats pytest's handlers that are there, and those that come later (subtests)."""
        for handler in list(logger.handlers):
            if _is_of_pytest(handler) and not self._may_stay(logger, handler, only_enabled):
                logger.removeHandler(handler)
        add: Callable[[logging.Handler], None] = logger.addHandler

        def add_guarded(hdlr: logging.Handler) -> None:
            if not _is_of_pytest(hdlr) or self._may_stay(logger, hdlr, only_enabled):
                add(hdlr)

        logger.addHandler = add_guarded
        self._guarded.append(logger)

    def _may_stay(
        self, logger: logging.Logger, handler: logging.Handler, only_enabled: _OnlyEnabledByUser
    ) -> bool:
        if logger.name == TRACE_LOGGER:
            return False
        if only_enabled not in handler.filters:
            handler.addFilter(only_enabled)
            self._filtered.append((handler, only_enabled))
        return True


def _not_enabled() -> frozenset[str]:
    """The artifacts that are not in force yet, and that watching puts in force."""
    internals = log_internals()
    if internals is None:
        return frozenset(ARTIFACTS)
    _, state = internals
    return frozenset(name for name in ARTIFACTS if not state.is_artifact_enabled(name))


def _is_of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith(("_pytest.", "pytest_subtests"))
