"""The environment of the child: how the inside half gets into it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import compilediag_harness
from compilediag_harness.base.process_options import VARIABLE, ProcessOptions

RUN_DIR_VARIABLE = "COMPILEDIAG_RUN_DIR"


def bootstrap_dir() -> str:
    """The folder with our `sitecustomize`."""
    return os.path.join(os.path.dirname(os.path.abspath(compilediag_harness.__file__)), "bootstrap")


def child_environment(
    base: Mapping[str, str],
    run_dir: str,
    options: ProcessOptions | None = None,
    *,
    trace_dir: str | None = None,
) -> dict[str, str]:
    """`base` with the variables that attach a Python child to the run.

    TORCH_LOGS stays as the user set it. TORCH_TRACE is set to `trace_dir` only where the user has
    none. A run inside a run attaches to the inner one only, with its options (None: the defaults).
    """
    ours = bootstrap_dir()
    paths = base.get("PYTHONPATH", "")
    kept = [entry for entry in paths.split(os.pathsep) if entry != ours] if paths else []
    child = {name: value for name, value in base.items() if name != VARIABLE}
    if options is not None and (text := options.encode()):
        child[VARIABLE] = text
    child["PYTHONPATH"] = os.pathsep.join([ours, *kept])
    child[RUN_DIR_VARIABLE] = run_dir
    if trace_dir is not None and not base.get("TORCH_TRACE"):
        child["TORCH_TRACE"] = trace_dir
    return child
