"""Import hooks: code that runs right after the target has imported a module, never earlier."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from compilediag_harness.base.hidden_frame import hide_own_frame

Action = Callable[[types.ModuleType], None]


class PostImport(importlib.abc.MetaPathFinder):
    """A meta-path finder that finds nothing itself: it lets the others find a wanted module and
    adds an action to the end of its execution."""

    def __init__(self) -> None:
        self._wanted: dict[str, list[Action]] = {}
        self._packages: dict[str, Action] = {}

    def run_after_import(self, name: str, action: Action) -> None:
        """Run `action` after `name` was imported; at once if it is imported already."""
        # Invariant: not called for a module from an action of that same module, nor while another
        # thread imports it: its loader has been given by then, and the action would never run.
        module = sys.modules.get(name)
        if module is not None and not is_initialising(module):
            action(module)
            return
        self._wanted.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def run_after_package(self, package: str, action: Action) -> None:
        """Run `action` after each module of a package that is imported from now on."""
        self._packages[package] = action
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def withdraw(self) -> None:
        """Withdraw from the import system."""
        self._wanted.clear()
        self._packages.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the spec that another finder gives, with the actions behind its loader."""
        if fullname not in self._wanted and fullname.partition(".")[0] not in self._packages:
            return None
        finders = list(sys.meta_path)
        # Those before have searched, or are searching: another session's finder among them.
        later = finders[finders.index(self) + 1 :] if self in finders else finders
        for finder in later:
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._append_actions(fullname, spec)
                return spec
        return None

    def _append_actions(self, name: str, spec: importlib.machinery.ModuleSpec) -> None:
        loader: Any = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            # The loader is as it was before the module's own code can look at it; another session
            # that waits for the module may have put it back already.
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            with hide_own_frame:  # that of an import that fails
                run(module)
            # Invariant: an action does not raise: that would end the program's import.
            for action in self._wanted.pop(name, []):
                action(module)
            if (package_action := self._packages.get(name.partition(".")[0])) is not None:
                package_action(module)

        loader.exec_module = exec_module


def is_initialising(module: types.ModuleType | None) -> bool:
    """True if a module's own code is running: it is being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
