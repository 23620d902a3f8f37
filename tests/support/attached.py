"""The collectors of the harness, attached to this process for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compilediag_harness import attach
from compilediag_harness.base.session import Session


@contextmanager
def attached(session: Session) -> Iterator[None]:
    """Around a block; the session has all its events after it."""
    attach.install(session)
    try:
        yield
        attach.finish(session)
    finally:
        attach.uninstall(session)
