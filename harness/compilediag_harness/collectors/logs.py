"""torch's compile logs: kept for the record, read for graph breaks, warnings and skipped frames.

`TORCH_LOGS=recompiles,graph_breaks` is put in force inside the process, after `import torch`, so
that the user's environment and later calls of `torch._logging.set_logs` behave as in a plain run.
What the user did not enable goes to torch_logs.txt and never to the terminal.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable

from compilediag_harness.base.session import Session
from compilediag_harness.collectors.artifact_loggers import (
    ArtifactLoggers,
    artifact_of,
    is_silent,
    silenced,
)
from compilediag_harness.collectors.entering import entered
from compilediag_harness.collectors.skipped_frames import SkippedFrameFilter, parse_skipped_frame
from compilediag_harness.collectors.text_log import TextLogFile
from compilediag_harness.torch_internals import torch_compiles, torch_logs, torch_names
from compilediag_harness.wire import (
    EvidenceLost,
    FrameSkipped,
    GraphBroke,
    Location,
    WarningSeen,
    clip,
)

ARTIFACTS = ("recompiles", "graph_breaks")
_BREAK = re.compile(r"^Graph break\b")
_REPEATED_CHARS = 1024
"""Kept of a break that was reported before: its first line has the place."""
_REPEATED = "user stack suppressed due to duplicate graph break"

OnRecord = Callable[[logging.LogRecord], None]
OnFault = Callable[[str, BaseException], None]


class _Copy(logging.Handler):
    """Receives every record that reaches torch's loggers."""

    def __init__(self, received: OnRecord, fault: OnFault) -> None:
        super().__init__(logging.DEBUG)
        self._received = received
        self._fault = fault

    def emit(self, record: logging.LogRecord) -> None:
        # An exception here would reach the user's compile.
        try:
            self._received(record)
        except Exception as error:
            self._fault("torch's log", error)


class _OnlyForUs(logging.Filter):
    """On the loggers of the artifacts that only we enabled: their records reach our handlers, and
    no other one, wherever the program or pytest has put it."""

    def __init__(self) -> None:
        super().__init__()
        self.artifacts: frozenset[str] = frozenset()

    def filter(self, record: logging.LogRecord) -> bool:
        if artifact_of(record.name) not in self.artifacts:
            return True
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            for handler in logger.handlers:
                if isinstance(handler, _Copy):  # of every session: a test may be watched in a run
                    handler.handle(record)
            logger = logger.parent if logger.propagate else None
        return False


def _nothing(record: logging.LogRecord) -> bool:
    return False


class LogCollector:
    """Routes torch's logs of one process."""

    def __init__(self, session: Session, text_file: str | None) -> None:
        self._session = session
        self._handler = _Copy(self._received, session.fault)
        self._file = TextLogFile(text_file) if text_file else None
        self._watched: list[logging.Logger] = []
        self._only_for_us = _OnlyForUs()
        self._artifacts = ArtifactLoggers()
        self._lost: set[str] = set()
        self._skipped_frames = self._follows_new_loggers = False
        self._undo = contextlib.ExitStack()
        self.break_records = 0

    def arm(self) -> None:
        """Puts the artifacts in force and the handlers in place; again after torch re-initialised
        its loggers. Whatever the user enabled stays on the user's terminal."""
        internals = torch_logs.log_internals()
        if internals is None:
            self._lose("text_log", "this torch has no log registry we know")
            return
        registry, state = internals
        ours = frozenset(name for name in ARTIFACTS if not state.is_artifact_enabled(name))
        for name in ours:
            state.enable_artifact(name)
            self._undo.callback(self._disable, name)
        self._only_for_us.artifacts = ours
        for qualified in registry.get_log_qnames():
            self._watch(logging.getLogger(qualified))
        # A logger's level follows torch's log state only when torch configures it.
        for qualified in registry.get_artifact_log_qnames():
            logger = logging.getLogger(qualified)
            torch_logs.configure_artifact(logger)
            self._divert(logger)
        if not self._follows_new_loggers:
            self._follows_new_loggers = True
            self._undo.callback(torch_logs.on_artifact_logger(self._divert))
        if torch_logs.guard_lines_need_logger():
            self._collect_guard_lines()
        self._watch_skipped_frames()

    def _disable(self, artifact: str) -> None:
        torch_logs.disable_artifact(artifact)
        for logger in self._artifacts.of(artifact):
            logger.setLevel(logging.NOTSET)
            torch_logs.configure_artifact(logger)

    def _collect_guard_lines(self) -> None:
        """2.7 and 2.8 remember the user's line of a guard only while the `guards` artifact is
        logged; unless the user logs it, it is logged to nowhere."""
        logger = logging.getLogger(torch_names.GUARDS_LOG)
        if logger.isEnabledFor(logging.DEBUG):
            return
        self._undo.callback(logger.setLevel, logger.level)
        self._undo.callback(logger.removeFilter, _nothing)
        logger.addFilter(_nothing)
        logger.setLevel(logging.DEBUG)

    def disarm(self) -> None:
        """Takes our handlers, filters and artifacts away."""
        self._undo.close()
        self._watched, self._skipped_frames, self._follows_new_loggers = [], False, False
        if self._file is not None:
            self._file.close()

    def check(self) -> None:
        """Notices loggers that were silenced (`logging.config.dictConfig` disables the existing
        ones by default) or stripped of our handler. Called now and then, and at the end."""
        if logging.root.manager.disable >= logging.DEBUG:
            self._lose("text_log", "logging.disable() silenced torch's compile logs")
        stripped = [
            logger.name
            for logger in self._watched
            if logger.disabled or self._handler not in logger.handlers
        ]
        if stripped:
            self._lose("text_log", silenced(sorted(stripped)))
        for artifact in ARTIFACTS:
            silent = [item.name for item in self._artifacts.of(artifact) if is_silent(item)]
            if silent:
                self._lose(artifact, silenced(silent))

    def _divert(self, logger: logging.Logger) -> None:
        if artifact_of(logger.name) in ARTIFACTS and self._only_for_us not in logger.filters:
            logger.addFilter(self._only_for_us)
            self._undo.callback(logger.removeFilter, self._only_for_us)

    def _watch(self, logger: logging.Logger) -> None:
        if self._handler not in logger.handlers:
            logger.addHandler(self._handler)
            self._undo.callback(logger.removeHandler, self._handler)
        if logger not in self._watched:
            self._watched.append(logger)

    def _watch_skipped_frames(self) -> None:
        """Frames that Dynamo skips are logged at INFO and DEBUG by one module's logger; a filter on
        that logger reads the records and keeps them from going further."""
        if self._skipped_frames:
            return
        self._skipped_frames = True
        logger = logging.getLogger(torch_names.CONVERT_FRAME)
        level = logger.getEffectiveLevel()
        own = SkippedFrameFilter(level, self._frame_skipped, self._session.fault)
        self._undo.callback(logger.setLevel, logger.level)
        self._undo.callback(logger.removeFilter, own)
        logger.addFilter(own)
        # Artifacts below it would inherit DEBUG: torch would format the bytecode of every frame.
        for artifact in self._artifacts.below(logger):
            if not artifact.level:
                self._undo.callback(artifact.setLevel, logging.NOTSET)
                artifact.setLevel(level)
        logger.setLevel(logging.DEBUG)

    def _lose(self, source: str, reason: str) -> None:
        """Each source is lost once, whatever else is found silenced later."""
        if source not in self._lost:
            self._lost.add(source)
            session = self._session
            session.emit(EvidenceLost(session.now(), session.step, source, reason))

    def _received(self, record: logging.LogRecord) -> None:
        # The module whose level we lowered: of it only what a plain run would log is kept.
        is_warning = record.levelno >= logging.WARNING
        if self._file is not None and (is_warning or record.name != torch_names.CONVERT_FRAME):
            self._file.write(record, torch_logs.torch_formatter() or logging.Formatter())
        message, session = record.getMessage(), self._session
        now, step, compile_id = session.now(), session.step, torch_compiles.current_compile_id()
        if artifact_of(record.name) == "graph_breaks" and _BREAK.match(message):
            self.break_records += 1
            repeated = _REPEATED in message
            text = clip(message, _REPEATED_CHARS) if repeated else clip(message)
            session.emit(GraphBroke(now, step, compile_id, session.epoch, text, repeated=repeated))
        elif is_warning:
            session.emit(WarningSeen(now, step, compile_id, record.name, clip(message, 4096)))

    def _frame_skipped(self, message: str) -> None:
        found = parse_skipped_frame(message)
        if found is None:
            return
        line = found.line
        if line is None:
            line = torch_logs.first_line_of_skipped_frame(found.function)
        session, where = self._session, Location(found.file, line, found.function)
        reason = clip(found.reason, 2048)
        session.emit(FrameSkipped(session.now(), session.step, where, reason, *entered(session)))
