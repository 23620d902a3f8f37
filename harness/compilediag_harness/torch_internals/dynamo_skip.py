"""Keeps Dynamo away from our own functions that run in the user's step.

Code below a compiled call is offered to Dynamo frame by frame, also ours: a compiled frame of ours
would be counted, and guarded on our changing state. So our entry points return at once while Dynamo
traces them (`is_compiling`), and are never compiled as frames of their own (`never_compiled`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from compilediag_harness.torch_internals import torch_api


def _never() -> bool:
    return False


is_compiling: Callable[[], bool] = _never
"""`torch.compiler.is_compiling` once torch is there; Dynamo takes a call of it for True. Read it
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
    not affected. False where this torch cannot do it.

    Needs no import of `torch._dynamo`: the mark is kept in the interpreter, by code object.
    """
    codes = (item.__code__ for item in functions if isinstance(item, FunctionType))
    return torch_api.never_compile(torch_module, *codes, callees=callees)
