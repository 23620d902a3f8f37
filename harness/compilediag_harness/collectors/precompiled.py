"""Functions whose compiled code was loaded, and that they ran it."""

from __future__ import annotations

from types import CodeType

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_precompiled
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.wire import Location, PrecompiledCalled, PrecompiledLoaded

MOST = 1000
"""Functions recorded of one process."""


class PrecompiledCollector:
    """Watches what torch loads in place of compiling."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = 2 * MOST

    def packages_imported(self) -> tuple[Remover, ...]:
        """Watches packages of precompiled functions."""
        remover = torch_precompiled.on_packages(self._loaded, self._called)
        return () if remover is None else (remover,)

    def aot_imported(self) -> tuple[Remover, ...]:
        """Watches functions that were compiled ahead of time."""
        remover = torch_precompiled.on_loaded_functions(self._loaded, self._called)
        return () if remover is None else (remover,)

    def _loaded(self, code: CodeType, entries: int) -> None:
        session = self._session
        self._emit(PrecompiledLoaded(session.now(), session.step, _place(code), entries))

    def _called(self, code: CodeType) -> None:
        session = self._session
        self._emit(PrecompiledCalled(session.now(), session.step, _place(code)))

    def _emit(self, event: PrecompiledLoaded | PrecompiledCalled) -> None:
        try:
            if self._left > 0:
                self._left -= 1
                self._session.emit(event)
        except Exception as error:
            self._session.fault("precompiled", error)


def _place(code: CodeType) -> Location:
    return Location(
        code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name)
    )
