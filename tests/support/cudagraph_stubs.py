"""torch's own CUDA-graph trees with the CUDA parts replaced: which graph is replayed, recorded
again or given up is decided by torch's code, on a CPU."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo.mutation_guard import GenerationTracker
from torch._inductor import cudagraph_trees as trees
from torch._inductor.cudagraph_utils import PlaceholderInfo

NODE: Any = trees.CUDAGraphNode
USER = 'File "/home/user/model.py", line 7, in forward\n    return x @ self.w'


class Graph:
    """Stands for a recorded graph: it has the addresses that torch's own check compares."""

    def __init__(
        self, function: Any, number: Any, parent: Any, inputs: list[Any], *rest: Any
    ) -> None:
        self.wrapped_function, self.id, self.parent = function, number, parent
        self.children: Any = defaultdict(list)
        self.static_input_data_ptrs = [
            item.data_ptr() if isinstance(item, torch.Tensor) else None for item in inputs
        ]
        self.tensor_static_input_idxs = list(function.static_input_idxs)
        self.rerecord_if_static_inputs_change = True
        self.cudagraph_managed_idxs: list[int] = []
        self.expected_dead_indices_before_graph: list[Any] = []
        self.expected_dead_indices_after_graph: list[Any] = []
        self.path_weakrefs: list[Any] = []
        self.preserved_aliased_inputs: list[bool] = []
        self.outputs_weakrefs: list[Any] = []
        self.outputs = [item for item in inputs if isinstance(item, torch.Tensor)]
        self.alive = True
        with trees.dynamo_timed_cudagraph("CUDAGraphNode.record", rest[-1], rest[-2]):
            pass

    def check_invariants(self, inputs: list[Any]) -> Any:
        """torch's own, as it is now: whoever watches it is asked too."""
        return NODE.check_invariants(self, inputs)

    def num_descendants(self) -> int:
        return NODE.num_descendants(self)

    def _check_liveness(self, *_: Any) -> bool:
        return self.alive

    def run(self, _inputs: list[Any]) -> list[Any]:
        return self.outputs

    run_first_inputs = run

    def all_outputs_are_dead(self) -> bool:
        return True

    def path_live_weakrefs(self) -> list[Any]:
        return []

    def clear_path_state(self) -> None:
        """No memory is held."""

    remove_path_cached_tensors = remove_node_cached_tensors = clear_path_state

    def _is_cuda_graph_recorded_tensor(self, _: Any) -> bool:
        return False


class WarmUp(Graph):
    """Stands for a run without a graph."""

    def __init__(self, function: Any, parent: Any, *rest: Any) -> None:
        self.wrapped_function, self.parent, self.id = function, parent, rest[-1]
        self.outputs_weakrefs: list[Any] = []

    def run(self, inputs: list[Any]) -> list[Any]:
        return self.wrapped_function.model(inputs)


def same_addresses(tensors: list[Any], addresses: list[int], places: list[int]) -> bool:
    """What torch has in C++, and not in its wheels for CPUs."""
    return all(tensors[place].data_ptr() == addresses[place] for place in places)


@contextlib.contextmanager
def trees_without_cuda() -> Iterator[None]:
    """Inside, torch's trees can be used on a CPU."""
    nothing = mock.MagicMock()
    replaced: dict[Any, dict[str, Any]] = {
        torch.cuda: dict.fromkeys(
            ("synchronize", "Stream", "current_stream", "device", "CUDAGraph", "graph"), nothing
        )
        | {"graph_pool_handle": lambda: (0, 1)},
        trees: {"CUDAGraphNode": Graph, "CUDAWarmupNode": WarmUp},
        torch._C: {
            "_tensors_data_ptrs_at_indices_equal": same_addresses,
            "_set_cached_tensors_enabled": nothing,
        },
        trees.CUDAGraphTreeManager: {
            "dealloc_current_path_weakrefs": lambda _: None,
            "apply_checkpoint_execution_state_in_allocator": lambda _: None,
        },
    }
    with contextlib.ExitStack() as stack:
        for owner, names in replaced.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield
        trees.reset_cudagraph_trees()


class Model:
    """A compiled function as torch's trees see one: its parameters stand at fixed addresses."""

    def __init__(self, compile_id: str = "0/0", static: tuple[int, ...] = (0,)) -> None:
        self.compile_id = compile_id
        self._call: Callable[..., Any] = trees.cudagraphify_impl(
            lambda inputs: [item.clone() for item in inputs if isinstance(item, torch.Tensor)],
            [None] if static else [2, None],  # whole numbers are sizes
            static,
            device_index=0,
            is_backward=False,
            is_inference=True,
            placeholders=tuple(
                PlaceholderInfo(f"primals_{place}", USER, [], None) for place in range(4)
            ),
            compile_id=compile_id,
        )

    def __call__(self, *inputs: Any) -> Any:
        """One call from the program, in an iteration of its own."""
        GenerationTracker.generation += 1
        return self._call(list(inputs))
