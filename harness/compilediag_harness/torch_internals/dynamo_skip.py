"""Keeps our own functions that run in the user's step out of Dynamo, and out of tracebacks.

Code below a compiled call is offered to Dynamo frame by frame, also ours: a compiled frame of ours
would be counted, and guarded on our changing state. So no function of this package is ever compiled
as a frame of its own (`keep_out_of_dynamo`), and what a program calls inside of compiled code
returns at once while Dynamo traces it (`is_compiling`).
"""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from compilediag_harness.base.post_import import is_initialising


def _return_false() -> bool:
    return False


is_compiling: Callable[[], bool] = _return_false
"""`torch.compiler.is_compiling` once torch is imported; Dynamo takes a call of it for True. Read it
through this module: it is bound late."""

is_traced: Callable[[], bool] = _return_false
"""`torch.compiler.is_dynamo_compiling`: the same for code that Dynamo traces, and a fifth of the
price, for hooks that only ever run there or as they are."""


def bind(torch_module: Any) -> None:
    """Takes torch's `is_compiling`. Never undone: code compiled meanwhile is guarded on it."""
    global is_compiling, is_traced
    is_compiling = torch_module.compiler.is_compiling
    is_traced = torch_module.compiler.is_dynamo_compiling


def bind_if_imported(executed: types.ModuleType | None = None) -> None:
    """Takes `is_compiling` where the program has imported torch, session or not: the frames of a
    program are the same with a session and without. `executed`: a module of ours just imported."""
    torch_module = sys.modules.get("torch")
    if hasattr(torch_module, "compiler"):  # absent while torch is being imported
        bind(torch_module)
        keep_out_of_dynamo(torch_module, executed)


_PACKAGE = __name__.partition(".")[0]
_skipped_modules: set[str] = set()


def keep_out_of_dynamo(torch_module: Any, executed: types.ModuleType | None = None) -> bool:
    """Make Dynamo run every function of this package uncompiled where it meets it as a frame of its
    own; what our collectors call as well, while what the program's own code below us does may be
    compiled as ever. To be called again when more of the package may have been imported. False
    where this torch cannot do it.

    Being traced into is not affected: what Dynamo may inline must not be replaced by ours.
    """
    strategies = _get_strategies(torch_module)
    if strategies is None:
        return False
    mark, alone, with_callees = strategies
    names = {name for name in list(sys.modules) if name.startswith(_PACKAGE)}
    for name in names - _skipped_modules:
        # One that is being imported has not all of its functions yet: it comes again.
        if sys.modules[name] is not executed and is_initialising(sys.modules[name]):
            continue
        _skipped_modules.add(name)
        only_watches = _ONLY_WATCH.match(name) is not None
        for code in iterate_codes(sys.modules[name]):
            # Invariant: a function of ours in place of one of torch's or the program's closes over
            # that one under these names (renaming the variable there changes what Dynamo compiles);
            # in the room of torch's internals, where most are closures, under any name.
            closed_over = {*code.co_freevars}
            if "torch_internals" not in name:
                closed_over &= {"original", "function"}
            watches = only_watches and not closed_over
            mark(code, with_callees if watches else alone)
    return True


def _get_strategies(torch_module: Any) -> tuple[Any, Any, Any] | None:
    """Get what marks a code object, the mark for it alone, and the mark for it with what it calls;
    None where this torch has no such marks."""
    # Not `torch.compiler.disable`, which imports `torch._dynamo` and wraps: the strategy is stored
    # by Dynamo's C frame evaluation, by code object (`set_code_exec_strategy`, torch 2.7 to 2.15).
    try:
        native: Any = torch_module._C._dynamo.eval_frame
        skip, default = native._FrameAction.SKIP, native._FrameAction.DEFAULT
        alone, with_callees = (native._FrameExecStrategy(skip, it) for it in (default, skip))
        # The first action is for the frame, the second for the frames below it (eval_frame.pyi).
        return native.set_code_exec_strategy, alone, with_callees
    except AttributeError:
        return None


_ONLY_WATCH = re.compile(
    r"\w+\.(?:attach$|collectors|redaction|wire|base\.(?!post_import)|steps\.(?!steps$)"
    r"|user_api\.spans$|torch_internals)"
)
"""Modules that call nothing of the program's, but what a function of theirs stands in for.
Invariant: module names by text; a module that is renamed is renamed here."""


def iterate_codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    """Iterate over the code of every function that a module defines: methods, properties, and
    functions within functions included."""
    # Invariant: no table or class of a module leads back to itself: what was seen is not noted, and
    # this would not end. Tables that hold code of the program later must be empty here.
    own, members = module.__name__, vars(module).values()
    pending: list[Any] = [value for value in members if getattr(value, "__module__", own) == own]
    while pending:
        member: Any = pending.pop()
        if isinstance(member, types.CodeType):
            # Of a named tuple or a data class some code is shared with those of the program.
            if member.co_filename in (module.__file__, "<string>"):
                yield member
                pending += [part for part in member.co_consts if isinstance(part, types.CodeType)]
        elif isinstance(member, type):
            pending += vars(member).values() if member.__module__ == module.__name__ else ()
        elif isinstance(member, (tuple, list)):
            pending += cast(list[Any], member)
        elif isinstance(member, dict):
            pending += cast(dict[Any, Any], member).values() if member is not vars(module) else ()
        elif not isinstance(member, types.ModuleType):
            parts = ("__func__", "fget", "fset", "fdel", "func", "__wrapped__", "__code__")
            parts += ("__defaults__", "__kwdefaults__")
            pending += [getattr(member, name) for name in parts if hasattr(member, name)]


def make_stand_in(original: Any, ours: Any, torch_module: Any) -> Any:
    """Make a function of ours pass for the one of torch that it calls, and run uncompiled."""
    functools.update_wrapper(ours, original)
    code = getattr(original, "__code__", None)
    if code is not None:
        # Dynamo goes by the file that a function is from. It skips those of all that we replace;
        # a function from a file of ours it would trace, and guard on what it reads.
        ours.__code__ = ours.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
        )
        # After the replacement, which makes another code object.
        mark_stand_in(ours, torch_module)
    return ours


def mark_stand_in(ours: types.FunctionType, torch_module: Any) -> None:
    """Make Dynamo run a function uncompiled whose code has the file name of another module:
    `iterate_codes` passes over it."""
    if (strategies := _get_strategies(torch_module)) is not None:
        mark, alone, _ = strategies
        mark(ours.__code__, alone)
