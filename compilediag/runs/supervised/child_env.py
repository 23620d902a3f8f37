"""The environment of the child: how the inside half gets into it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import compilediag_harness

RUN_DIR_VARIABLE = "COMPILEDIAG_RUN_DIR"
STEPS_VARIABLE = "COMPILEDIAG_STEPS"
PROFILE_VARIABLE = "COMPILEDIAG_PROFILE_DIR"
EXPERIMENTS_VARIABLE = "COMPILEDIAG_EXPERIMENTS"
WITNESS_VARIABLE = "COMPILEDIAG_WITNESS"


def bootstrap_dir() -> str:
    """The folder with our `sitecustomize`."""
    return os.path.join(os.path.dirname(os.path.abspath(compilediag_harness.__file__)), "bootstrap")


def child_environment(
    base: Mapping[str, str],
    run_dir: str,
    *,
    steps: int | None = None,
    trace_dir: str | None = None,
    profile_dir: str | None = None,
    experiments_s: float | None = None,
    witness: str | None = None,
) -> dict[str, str]:
    """`base` with the variables that attach a Python child to the run.

    TORCH_LOGS stays as the user set it. TORCH_TRACE is set to `trace_dir` only where the user has
    none. A run inside a run attaches to the inner one only. `profile_dir`: where signals may put
    profiles; None: signals are the program's alone. `experiments_s`: seconds between updates of the
    experiment that the program has open; None: no updates. `witness`: what of the program is
    followed line by line, as JSON; None: nothing.
    """
    ours = bootstrap_dir()
    paths = base.get("PYTHONPATH", "")
    kept = [entry for entry in paths.split(os.pathsep) if entry != ours] if paths else []
    own = {
        STEPS_VARIABLE: None if steps is None else str(steps),
        PROFILE_VARIABLE: profile_dir,
        EXPERIMENTS_VARIABLE: None if experiments_s is None else repr(experiments_s),
        WITNESS_VARIABLE: witness,
    }
    child = {name: value for name, value in base.items() if name not in own}
    child.update({name: value for name, value in own.items() if value is not None})
    child["PYTHONPATH"] = os.pathsep.join([ours, *kept])
    child[RUN_DIR_VARIABLE] = run_dir
    if trace_dir is not None and not base.get("TORCH_TRACE"):
        child["TORCH_TRACE"] = trace_dir
    return child
