"""Compiled functions that torch loads: no compile tells of them.

Two ways: `torch._dynamo.package` (`torch._dynamo.config.caching_precompile`) hangs entries with
guards to the code of the function, and `torch._dynamo.aot_compile` (`.aot_compile`,
`torch.compiler.load_compiled_function`) makes an object that is called. What a version does
not have is not watched; both are seen to work on 2.13 only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, cast

from compilediag_harness.torch_internals.dynamo_skip import out_of_tracebacks
from compilediag_harness.torch_internals.torch_names import Remover, loaded, lookup, replace_with

PACKAGE = "torch._dynamo.package"
AOT_COMPILE = "torch._dynamo.aot_compile"

Loaded = Callable[[CodeType, int], None]
"""Called with the function's code, and how many compiled entries it has."""

Called = Callable[[CodeType], None]
"""Called at the first call of compiled code of the function."""


def on_packages(was_loaded: Loaded, was_called: Called) -> Remover | None:
    """Watches what `CompilePackage.install` puts in place."""
    owner = lookup(loaded(PACKAGE), "CompilePackage")
    original = getattr(owner, "install", None)
    if original is None:
        return None

    @functools.wraps(original)
    def install(self: Any, backends: Any, *args: Any, **kwargs: Any) -> Any:
        entries: list[tuple[CodeType, Any]] = [
            (code, entry)
            for code, entry in getattr(self, "_codes", {}).items()
            if getattr(entry, "guarded_codes", ()) and not getattr(entry, "bypassed", False)
        ]
        owners = {each: code for code, entry in entries for each in entry.backend_ids}
        with out_of_tracebacks:
            found = original(self, _watched(backends, owners, was_called), *args, **kwargs)
        for code, entry in entries:
            was_loaded(code, len(entry.guarded_codes))
        return found

    return replace_with(owner, "install", install)


def _watched(
    backends: Mapping[Any, Any], owners: Mapping[Any, CodeType], was_called: Called
) -> dict[Any, Any]:
    """The graphs of a package, each of which is seen when it is first called."""
    return {
        name: _Watched(backend, functools.partial(was_called, owners[name]))
        if name in owners
        else backend
        for name, backend in backends.items()
    }


class _Watched:
    """A stored graph; `install` calls this one method of it."""

    def __init__(self, backend: Any, was_called: Callable[[], None]) -> None:
        self._backend = backend
        self._was_called = was_called

    def after_deserialization(self) -> Any:
        """The graph as a function."""
        return _first_call(self._backend.after_deserialization(), self._was_called)


def _first_call(graph: Any, was_called: Callable[[], None]) -> Any:
    seen = False

    @functools.wraps(graph, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        if not seen:
            seen = True
            was_called()
        return graph(*args, **kwargs)

    return run


def on_loaded_functions(was_loaded: Loaded, was_called: Called) -> Remover | None:
    """Watches functions that were compiled ahead of time and are read from a file."""
    owner = lookup(loaded(AOT_COMPILE), "AOTCompiledFunction")
    held: Any = vars(owner).get("deserialize") if isinstance(owner, type) else None
    if not isinstance(held, classmethod):
        return None
    original = cast("Any", held).__func__

    @functools.wraps(original)
    def deserialize(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with out_of_tracebacks:
            made = original(cls, *args, **kwargs)
        artifacts: Any = getattr(made, "_artifacts", None)
        code = getattr(artifacts, "original_code", None)
        if isinstance(code, CodeType) and callable(getattr(made, "fn", None)):
            was_loaded(code, 1)
            compiled = made.fn

            @functools.wraps(compiled, updated=())
            def run(*own: Any, **named: Any) -> Any:
                made.fn = compiled
                was_called(code)
                return compiled(*own, **named)

            made.fn = run
        return made

    wrapper = classmethod(deserialize)
    setattr(owner, "deserialize", wrapper)  # noqa: B010 - a method of torch's class

    def restore() -> None:
        if vars(owner).get("deserialize") is wrapper:
            setattr(owner, "deserialize", held)  # noqa: B010

    return restore
