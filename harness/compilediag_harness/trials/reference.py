"""A call of a module in float64, on copies of the module and its arguments: the exact answer,
against which errors of rounding are measured."""

from __future__ import annotations

import copy
import sys
from typing import Any

from compilediag_harness.collectors.witness.paths import class_of
from compilediag_harness.torch_internals import torch_pytree
from compilediag_harness.torch_internals.torch_open_calls import CalledWith
from compilediag_harness.trials import randomness
from compilediag_harness.trials.answers import AnswerReader
from compilediag_harness.wire import Answer


def in_float64(torch: Any, reader: AnswerReader, call: CalledWith) -> tuple[Answer, ...]:
    """The answers of a call, made now; empty where it cannot be made in float64, or draws random
    numbers: in another type they are others. The generators stay where they are."""
    module: Any = getattr(call.function, "__self__", None)
    if not isinstance(module, torch.nn.Module):
        return ()
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    states = python and python.getstate(), numpy and numpy.get_state()
    try:
        with torch.random.fork_rng(), torch.no_grad():
            before = randomness.digests(torch)
            value = _call(torch, module, call)
            drawn = randomness.digests(torch) != before
        found, complete = reader.read(value)
        return () if drawn or not complete else found
    except Exception:  # of the program, whose own call follows
        return ()
    finally:
        if python is not None:
            python.setstate(states[0])
        if numpy is not None:
            numpy.set_state(states[1])


def _call(torch: Any, module: Any, call: CalledWith) -> Any:
    def precise(leaf: Any) -> Any:
        if not issubclass(class_of(leaf), torch.Tensor):
            return leaf
        copied = leaf.detach().clone()
        return copied.double() if copied.is_floating_point() else copied

    args, kwargs = torch_pytree.mapped(precise, (call.args, call.kwargs))
    return copy.deepcopy(module).double()(*args, **kwargs)
