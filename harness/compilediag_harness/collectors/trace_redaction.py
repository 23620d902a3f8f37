"""torch's structured trace without secrets, where the run switched it on: before bytes reach the
disk. A trace that the user switched on is the user's, and stays as torch writes it.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.redaction import in_process
from compilediag_harness.redaction.recognise import is_certainly_secret_name
from compilediag_harness.redaction.walk import Walk
from compilediag_harness.torch_internals import torch_logs

FAULT = "trace redaction"
"""Where a fault occurred after which the trace has to be cleaned when the run has ended."""


class _TraceWalk(Walk):
    """Over torch's metadata, in which hashes, paths and passes over graphs have names too."""

    def text(self, text: str, key: str, *, secret: bool, all_of_it: bool) -> str:
        hidden = all_of_it and not text.startswith("<redacted:")
        return self.redactor.hidden(text) if hidden else self.redactor.text(text)

    def other(self, item: Any, key: str, *, secret: bool, all_of_it: bool) -> Any:
        return self.text(repr(item), key, secret=secret, all_of_it=all_of_it)


class RedactedTrace(logging.Formatter):
    """torch's formatter, on a copy of each record: other handlers get the record as it is."""

    def __init__(self, formatter: logging.Formatter, session: Session) -> None:
        super().__init__()
        self.formatter = formatter
        self._session = session

    def format(self, record: logging.LogRecord) -> str:
        """The line of metadata and the lines of the payload; empty where that fails."""
        try:
            return self.formatter.format(redacted(record))
        except Exception as error:  # it would reach the user's compile
            self._session.fault(FAULT, error)
            return ""


def redacted(record: logging.LogRecord) -> logging.LogRecord:
    """A record of torch's trace without secrets. Its payload's digest is that of what is written,
    by which readers find a damaged log."""
    metadata: Any = getattr(record, "metadata", None)
    if not isinstance(metadata, dict):
        return record
    changed = copy.copy(record)
    walk = _TraceWalk(in_process.redactor(), is_certainly_secret_name)
    found: dict[str, Any] = walk.value(metadata)
    payload: Any = getattr(record, "payload", None)
    if isinstance(payload, str):
        shown = in_process.text(payload)
        if shown != payload and "has_payload" in found:
            digest = hashlib.md5(shown.encode("utf-8", "replace"), usedforsecurity=False)
            found["has_payload"] = digest.hexdigest()
        payload = shown
    vars(changed).update(metadata=found, payload=payload)
    return changed


def install(session: Session) -> None:
    """Wraps the formatter of torch's trace, once; again after torch set its loggers up anew."""
    folder = session.trace_folder
    if folder is None:
        return
    handler = torch_logs.trace_handler(folder)
    if handler is None:
        if os.path.realpath(os.environ.get("TORCH_TRACE") or os.sep) == os.path.realpath(folder):
            session.fault(FAULT, RuntimeError("torch's trace has no handler that is known"))
    elif not isinstance(handler.formatter, RedactedTrace):
        handler.setFormatter(RedactedTrace(handler.formatter, session))


def uninstall(session: Session) -> None:
    """Puts torch's formatter back."""
    handler = torch_logs.trace_handler(session.trace_folder) if session.trace_folder else None
    if handler is not None and isinstance(handler.formatter, RedactedTrace):
        handler.setFormatter(handler.formatter.formatter)
