"""What torch's CUDA-graph trees hold: why a graph is recorded, which inputs moved, of what sizes.

Nothing here changes a tree or an input. `torch_cudagraphs` calls it; names are those of torch 2.13.
"""

from __future__ import annotations

import itertools
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compilediag_harness.torch_internals.torch_names import loaded
from compilediag_harness.wire import Location

REASONS = {
    "StaticInputIdxMismatch": "static_address",
    "CudagraphManagedIdxMismatch": "graph_output_address",
    "ExpectedDeadIndicesBeforeGraphMismatch": "outputs_alive",
}
"""Members of torch's `CheckInvariantStatus`, and our reason for each."""

MAX_MOVED = 8
"""Moved inputs reported of one recording."""

MAX_SIZES = 16
"""Tensors of one recording whose sizes are reported."""

_STACK_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)')


class Recording(NamedTuple):
    """One CUDA graph that was recorded: fields of `CudagraphRecorded`, as that describes them."""

    compile_id: str
    mode: str
    reason: str
    tree: int
    function: int
    sizes: tuple[str, ...]
    moved: tuple[str, ...]
    moved_at: tuple[Location | None, ...]
    seconds: float


class Tree:
    """What we keep of one `CUDAGraphTreeManager`, as an attribute of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.recorded: set[int] = set()


managers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that have run and are in use."""

_indices = itertools.count()
_OURS = "_compilediag_tree"


def tree_of(manager: Any) -> Tree:
    """Ours of a manager; an attribute of it, so that no other one can be taken for it."""
    tree = manager.__dict__.get(_OURS)
    if tree is None:
        tree = manager.__dict__[_OURS] = Tree(next(_indices))
        managers.add(manager)
    return tree


def begun(
    manager: Any, inputs: Any, function_id: Any, failed: Sequence[tuple[Any, str]]
) -> Recording:
    """The recording that begins; its inputs are still as the program gave them.

    Args:
        manager: torch's, of one device and thread.
        inputs: of the function.
        function_id: torch's.
        failed: graphs that torch has just found not to fit, with torch's names for why.
    """
    function = manager.ids_to_funcs[function_id]
    tree = tree_of(manager)
    # The tree's edges are the order in which graphs were recorded: `current_node` ran last.
    above = manager.roots if manager.current_node is None else manager.current_node.children
    siblings = above.get(function_id) or ()
    newest = siblings[-1] if siblings else None
    if newest is None:
        reason = _new(manager, tree, function, function_id)
    else:
        # Of the graphs recorded here the newest decides: it is what the program did last.
        statuses = [status for node, status in failed if node is newest]
        reason = REASONS[statuses[-1]] if statuses else "unknown"
    mode = manager.id_to_mode.get(function_id)
    moved = _moved(newest, reason, inputs, function.placeholders)
    return Recording(
        compile_id=str(manager.id_to_compile_id.get(function_id) or ""),
        mode=str(getattr(mode, "name", "")).lower(),
        reason=reason,
        tree=tree.index,
        function=function_id.id,
        sizes=tuple(itertools.islice(_sizes(inputs, function.static_input_idxs), MAX_SIZES)),
        moved=tuple(placeholder.name for placeholder in moved),
        moved_at=tuple(_user_line(placeholder) for placeholder in moved),
        seconds=0.0,
    )


def _new(manager: Any, tree: Tree, function: Any, function_id: Any) -> str:
    """Why a function is recorded of which there is no graph at this node of the tree."""
    if function_id.id in tree.recorded:
        return "order"
    if _recorded_for(function.model, manager, tree):
        return "size"
    others = [item for item in tuple(managers) if item is not manager]
    if any(_recorded_for(function.model, item, tree_of(item)) for item in others):
        return "thread"
    return "first"


def _recorded_for(model: Any, manager: Any, tree: Tree) -> bool:
    """Whether a graph of the same compiled code was recorded, for another size, in a tree."""
    return any(
        item.model is model and key.id in tree.recorded
        for key, item in tuple(manager.ids_to_funcs.items())
    )


def _sizes(inputs: Iterable[Any], static: Iterable[int]) -> Iterator[str]:
    """Of the inputs that each replay copies; an integer among the inputs is a size too."""
    fixed = frozenset(static)
    for index, value in enumerate(inputs):
        if type(value) is int:
            yield f"[{value}]"
        elif index not in fixed and hasattr(value, "data_ptr"):
            yield str(list(value.shape))


def _moved(newest: Any, reason: str, inputs: Any, placeholders: Any) -> tuple[Any, ...]:
    """The placeholders of inputs that have another address than in the graph recorded before."""
    attribute = {
        "static_address": "tensor_static_input_idxs",
        "graph_output_address": "cudagraph_managed_idxs",
    }.get(reason)
    if newest is None or attribute is None:
        return ()
    before = newest.static_input_data_ptrs
    checked = getattr(newest, attribute, None) or getattr(newest, "static_input_idxs", ())
    found = (
        placeholders[index]
        for index in checked
        if index < len(placeholders)
        and hasattr(inputs[index], "data_ptr")
        and inputs[index].data_ptr() != before[index]
    )
    return tuple(itertools.islice(found, MAX_MOVED))


def _user_line(placeholder: Any) -> Location | None:
    """The innermost line of the program that uses an input, where torch knows it; a line of
    torch's own where there is no other."""
    torch_folder = os.path.join(os.path.dirname(getattr(loaded("torch"), "__file__", "")), "")
    stacks = [placeholder.stack_trace, *(user.stack_trace for user in placeholder.users or ())]
    for stack in stacks:
        lines = _STACK_LINE.findall(stack or "")
        if lines:
            own = [line for line in lines if not line[0].startswith(torch_folder)]
            file, line, function = (own or lines)[-1]
            return Location(file, int(line), function.strip())
    return None


def live_graphs() -> int:
    """Graphs that are recorded and not yet given up."""
    return sum(_below(manager.roots) for manager in tuple(managers))


def _below(recorded: Mapping[Any, Any] | None) -> int:
    """Graphs recorded after each other, by the function they are of; None after a reset."""
    nodes = [node for siblings in (recorded or {}).values() for node in siblings]
    return len(nodes) + sum(_below(node.children) for node in nodes)
