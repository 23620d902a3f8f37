"""What torch's CUDA-graph trees hold: why a graph is recorded, which inputs moved, of what sizes.

Nothing here changes a tree or an input. The names are torch's own; `torch_cudagraphs` asks.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compilediag_harness.wire import Location

REASONS = {
    "StaticInputIdxMismatch": "static_address",
    "CudagraphManagedIdxMismatch": "graph_output_address",
    "ExpectedDeadIndicesBeforeGraphMismatch": "outputs_alive",
}
"""torch's name of what did not fit, and ours."""

MOST_MOVED = 8
"""Inputs told of one recording."""

MOST_SIZES = 16
"""Tensors of one recording whose sizes are told."""

_PLACE = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)')


class Moved(NamedTuple):
    """An input that has another address than in the graph recorded before."""

    name: str
    """As in the compiled graph: "primals_1"."""
    user: Location | None
    """The line that uses it."""


class Recording(NamedTuple):
    """One CUDA graph that was recorded."""

    compile_id: str
    mode: str
    """"forward", "backward" or "inference"."""
    tree: int
    """Number of the tree: one a device and thread."""
    function: int
    """Number of the compiled function in its tree: each dynamic size is one."""
    reason: str
    sizes: tuple[tuple[int, ...], ...]
    """Of the inputs that each replay copies; a whole number among the inputs is a size too."""
    moved: tuple[Moved, ...]
    seconds: float


class Tree:
    """What we remember of one manager, kept by it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.recorded: set[int] = set()


managers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that were met and are in use."""

_numbers = itertools.count()
_OURS = "_compilediag_tree"


def tree_of(manager: Any) -> Tree:
    """What we remember of a manager; kept by it, so that no other one can be taken for it."""
    tree = manager.__dict__.get(_OURS)
    if tree is None:
        tree = manager.__dict__[_OURS] = Tree(next(_numbers))
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
    above = manager.roots if manager.current_node is None else manager.current_node.children
    siblings = above.get(function_id) or ()
    newest = siblings[-1] if siblings else None
    if newest is None:
        reason = _new(manager, tree, function, function_id)
    else:
        # Of the graphs recorded here the newest decides: it is what the program did last.
        said = [status for node, status in failed if node is newest]
        reason = REASONS[said[-1]] if said else "unknown"
    mode = manager.id_to_mode.get(function_id)
    return Recording(
        compile_id=str(manager.id_to_compile_id.get(function_id) or ""),
        mode=str(getattr(mode, "name", "")).lower(),
        tree=tree.number,
        function=function_id.id,
        reason=reason,
        sizes=tuple(itertools.islice(_sizes(inputs, function.static_input_idxs), MOST_SIZES)),
        moved=_moved(newest, reason, inputs, function.placeholders),
        seconds=0.0,
    )


def _new(manager: Any, tree: Tree, function: Any, function_id: Any) -> str:
    """Why a function is recorded of which there is no graph in this place of the tree."""
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


def _sizes(inputs: Iterable[Any], static: Iterable[int]) -> Iterator[tuple[int, ...]]:
    fixed = frozenset(static)
    for place, value in enumerate(inputs):
        if type(value) is int:
            yield (value,)
        elif place not in fixed and hasattr(value, "data_ptr"):
            yield tuple(value.shape)


def _moved(newest: Any, reason: str, inputs: Any, placeholders: Any) -> tuple[Moved, ...]:
    attribute = {
        "static_address": "tensor_static_input_idxs",
        "graph_output_address": "cudagraph_managed_idxs",
    }.get(reason)
    if newest is None or attribute is None:
        return ()
    before = newest.static_input_data_ptrs
    places = getattr(newest, attribute, None) or getattr(newest, "static_input_idxs", ())
    found = (
        place
        for place in places
        if hasattr(inputs[place], "data_ptr") and inputs[place].data_ptr() != before[place]
    )
    named = (place for place in found if place < len(placeholders))
    return tuple(_named(placeholders[place]) for place in itertools.islice(named, MOST_MOVED))


def _named(placeholder: Any) -> Moved:
    """An input with the innermost line of the program that uses it, where torch knows it; a line of
    torch's own where there is no other."""
    stacks = [placeholder.stack_trace, *(user.stack_trace for user in placeholder.users or ())]
    for stack in stacks:
        places = _PLACE.findall(stack or "")
        if places:
            own = [place for place in places if not place[0].startswith(_folder_of_torch())]
            file, line, function = (own or places)[-1]
            return Moved(placeholder.name, Location(file, int(line), function.strip()))
    return Moved(placeholder.name, None)


def _folder_of_torch() -> str:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.join(os.path.dirname(file or __file__), "")


def live_graphs() -> int:
    """Graphs that are recorded and not yet given up."""
    return sum(_below(manager.roots) for manager in tuple(managers))


def _below(recorded: Mapping[Any, Any] | None) -> int:
    """Graphs recorded after each other, by the function they are of; None after a reset."""
    nodes = [node for siblings in (recorded or {}).values() for node in siblings]
    return len(nodes) + sum(_below(node.children) for node in nodes)
