"""Runs programs made for a CUDA device on a CPU: torch's own CUDA-graph trees decide, with CUDA
and the graphs themselves replaced (`cudagraph_stubs`).

python tests/support/cudagraph_programs.py REPORT.json PROGRAM... writes the receipt of each
program. The program gets its device, "cpu", as argument. torch's compiler front end and its
decision what is static, mutated and recorded are real; the kernels are not: the graph is
interpreted, and a replay interprets it again. Whether memory of a graph was overwritten is decided
in C++ that wheels for CPUs do not have: nothing can be said of it here.
"""

import contextlib
import io
import json
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from cudagraph_stubs import Graph, trees, trees_without_cuda
from torch._dynamo.backends.cudagraphs import find_input_mutations
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._inductor import compile_fx, cudagraph_utils

from compilediag.receipt.file import encode_receipt
from compilediag.runs.watch import watch
from compilediag_harness.torch_internals import environment

A_DEVICE = [{"index": None, "name": "stand-in"}]
WITHOUT_CACHES = {"fx_graph_cache": False, "fx_graph_remote_cache": False}


class Interpreted(Graph):
    """A graph whose replay gives what the program needs to go on."""

    def run(self, inputs: list[Any]) -> list[Any]:
        return self.wrapped_function.model(list(inputs))

    run_first_inputs = run


def interpreted(graph: Any, inputs: Sequence[Any], **settings: Any) -> Any:
    """What inductor makes of a graph, without code of its own: CUDA graphs as torch wraps them."""
    run = boxed_nop(graph, inputs)
    if not settings.get("cudagraphs"):
        return run
    wrapped: Any = compile_fx.cudagraphify(
        run,
        static_input_idxs=settings.get("static_input_idxs") or (),
        device_index=0,
        stack_traces=[None] * len(graph.graph.output_node().args[0]),
        is_backward=settings.get("is_backward", False),
        is_inference=settings.get("is_inference", False),
        placeholders=tuple(cudagraph_utils.get_placeholder_info(graph.graph)),
        mutated_input_idxs=tuple(sorted(find_input_mutations(graph.graph))),
    )
    wrapped._boxed_call = True
    return wrapped


@contextlib.contextmanager
def a_device() -> Iterator[None]:
    """Inside, `mode="reduce-overhead"` records, on a machine that is said to have a device."""
    compile_all = compile_fx.compile_fx
    # Dynamo looks at each function of torch.cuda once: as they are, not as they are replaced.
    TorchInGraphFunctionVariable._get_handlers()

    def compile_interpreted(*args: Any, **settings: Any) -> Any:
        settings.setdefault("inner_compile", interpreted)
        return compile_all(*args, **settings)

    with (
        trees_without_cuda(),
        mock.patch.object(trees, "CUDAGraphNode", Interpreted),
        mock.patch.object(compile_fx, "compile_fx", compile_interpreted),
        mock.patch.object(environment, "_list_gpus", return_value=A_DEVICE),
        torch._functorch.config.patch(enable_autograd_cache=False),
        torch._inductor.config.patch(WITHOUT_CACHES),
    ):
        yield


def receipt_of(program: Path) -> dict[str, Any]:
    """What compilediag says of one program; its failure is part of it."""
    torch._dynamo.reset()
    sys.argv = [str(program), "cpu"]
    printed = io.StringIO()
    with a_device(), contextlib.redirect_stdout(printed), contextlib.suppress(RuntimeError):
        with watch(user_roots=[str(program.parent)]) as seen:
            runpy.run_path(str(program), run_name="__main__")
    return {"printed": printed.getvalue(), **json.loads(encode_receipt(seen.receipt))}


if __name__ == "__main__":
    output, *programs = sys.argv[1:]
    receipts = {program: receipt_of(Path(program)) for program in programs}
    Path(output).write_text(json.dumps(receipts), encoding="utf-8")
