"""CPU seconds of compiling, children included; observed always, and in every second block with the
record of where compile seconds go: phases, caches, memory, the cost of guards.

Inductor's caches are on, and empty. Arguments: OUT BACKEND PAIRS FRAMES FOLDER.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

os.environ.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(sys.argv[5], "caches")

import torch
from compiles_in_turn import compiling
from in_turn import measure

from compilediag_harness.collectors import caches, compiles, warm_calls
from compilediag_harness.torch_internals import torch_compiles


@contextmanager
def without_record() -> Iterator[None]:
    """The hooks of the record are not installed."""

    def nothing(*_args: Any) -> Any:
        return ()

    def no_seconds(*_args: Any) -> float:
        return 0.0

    collector = caches.CacheCollector
    with ExitStack() as patched:
        for name in (each for each in vars(collector) if each.endswith("_imported")):
            patched.enter_context(mock.patch.object(collector, name, nothing))
        patched.enter_context(mock.patch.object(torch_compiles, "on_phases", nothing))
        patched.enter_context(mock.patch.object(warm_calls, "evaluate_guards", no_seconds))
        for name in ("began", "ended"):
            patched.enter_context(mock.patch.object(compiles.CompileMemory, name, nothing))
        yield


def main(out: str, backend: str, pairs: int, frames: int, folder: str) -> None:
    torch.set_num_threads(1)
    measure(lambda: compiling(backend, frames), pairs, folder, out, without_record)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
