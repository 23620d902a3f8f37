"""Which compiled code a call behind `torch.compiler.disable` runs the graph of."""

from __future__ import annotations

import types
from typing import Any

_GRAPH = "__compiled_fn"
"""The code that Dynamo makes of a frame calls its graph by a global of such a name."""


def graph_of(wrapper: types.FrameType, function: Any) -> types.CodeType | None:
    """The compiled code that calls `function` as its graph, through the call `wrapper` of torch's;
    None where it calls something else."""
    caller = wrapper.f_back
    if caller is None:
        return None
    for name in caller.f_code.co_names:
        if name.startswith(_GRAPH):
            graph = caller.f_globals.get(name)
            if getattr(graph, "_torchdynamo_orig_callable", None) is function:
                return caller.f_code
    return None
