"""Keywords that every call of `torch.compile` gets, unless the program passes them itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any

from compilediag_harness.torch_internals.torch_names import Remover, replace_with
from compilediag_harness.trials.notes import Notes
from compilediag_harness.wire import CompileOption

PASSED = "the program passes it itself"


def install(torch: Any, options: Iterable[CompileOption], notes: Notes) -> Remover | None:
    """Wraps `torch.compile`, by which `torch.nn.Module.compile` and its use as a decorator go too.
    Returns what undoes it; None where this torch knows none of the options."""
    original = torch.compile
    parameters = inspect.signature(original).parameters
    known = [option for option in options if option.name in parameters]
    for option in options:
        if option not in known:
            notes.note(option.label, "torch.compile has no such argument in this torch")
    if not known:
        return None

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - as torch calls it
        for option in known:
            # As a decorator it comes here twice, the second time with what was added the first.
            given = kwargs.get(option.name)
            if given is None:
                kwargs[option.name] = option.value
            notes.note(option.label, None if given in (None, option.value) else PASSED)
        return original(*args, **kwargs)

    return replace_with(torch, "compile", compile)
