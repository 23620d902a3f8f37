"""Keeps our own functions that run in the user's step out of Dynamo, and out of tracebacks.

Code below a compiled call is offered to Dynamo frame by frame, also ours: a compiled frame of ours
would be counted, and guarded on our changing state. So our entry points return at once while Dynamo
traces them (`is_compiling`), and are never compiled as frames of their own (`skip_in_dynamo`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any


def _never() -> bool:
    return False


is_compiling: Callable[[], bool] = _never
"""`torch.compiler.is_compiling` once torch is imported; Dynamo takes a call of it for True. Read it
through this module: it is bound late."""

is_traced: Callable[[], bool] = _never
"""`torch.compiler.is_dynamo_compiling`: the same for code that Dynamo traces, and a fifth of the
price, for hooks that only ever run there or as they are."""


def bind(torch_module: Any) -> None:
    """Takes torch's `is_compiling`. Never undone: code compiled meanwhile is guarded on it."""
    global is_compiling, is_traced
    is_compiling = torch_module.compiler.is_compiling
    is_traced = torch_module.compiler.is_dynamo_compiling


def bind_if_imported() -> None:
    """Takes `is_compiling` where the program has imported torch, session or not."""
    torch_module = sys.modules.get("torch")
    if hasattr(torch_module, "compiler"):  # absent while torch is being imported
        bind(torch_module)


def skip_in_dynamo(torch_module: Any, *functions: Any, callees: bool = False) -> bool:
    """Makes Dynamo run these functions as they are where it meets them as frames of their own,
    and what they call too unless `callees` (of the user's) may be compiled. Being traced into is
    not affected. What is no Python function is left out. False where this torch cannot do it.
    """
    # Not `torch.compiler.disable`, which imports `torch._dynamo` and wraps: the strategy is kept by
    # Dynamo's C frame evaluation, by code object (`set_code_exec_strategy`, torch 2.7 to 2.15).
    try:
        native: Any = torch_module._C._dynamo.eval_frame
        skip, default = native._FrameAction.SKIP, native._FrameAction.DEFAULT
        strategy = native._FrameExecStrategy(skip, default if callees else skip)
        mark = native.set_code_exec_strategy
    except AttributeError:
        return False
    for function in functions:
        if isinstance(function, FunctionType):
            mark(function.__code__, strategy)
    return True


def leave_out_this_frame(error: BaseException) -> None:
    """Takes the frame that caught `error` out of its traceback, which then reads as in a plain run;
    a bare `raise` must follow, which does not put it back (CPython 3.11 and later; on 3.10 the
    frame stays)."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is not None:
        error.__traceback__ = traceback.tb_next
