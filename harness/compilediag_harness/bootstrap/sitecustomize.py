"""Attaches this process to a `compilediag run`, then makes way for the sitecustomize it shadows.

The run puts this folder first on PYTHONPATH; Python's `site` then imports this file before the
program starts. Nothing of it stays visible: the folder leaves `sys.path`, and this module leaves
`sys.modules` before the shadowed `sitecustomize` is imported in its place, so that a missing or
failing one is reported by `site` exactly as without us. Only the environment variable stays, so
that the program's own children are attached too.
"""

import os
import sys


def _attach() -> None:
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    run_dir = os.environ.get("COMPILEDIAG_RUN_DIR")
    if not run_dir:
        return
    if sys.version_info < (3, 10):  # noqa: UP036 - the target's interpreter is any
        version = ".".join(str(part) for part in sys.version_info[:3])
        first = "is older than 3.10, which is the first that compilediag observes"
        _write_reason(run_dir, "Python " + version + " (" + sys.executable + ") " + first)
        return
    try:
        _start(run_dir, os.path.dirname(os.path.dirname(here)))
    except Exception as error:
        _write_reason(run_dir, type(error).__name__ + ": " + str(error))


def _start(run_dir: str, root: str) -> None:
    """Import the harness from `root` alone: no name beside it can be shadowed, none is needed."""
    from _frozen_importlib_external import PathFinder  # what importlib.machinery re-exports

    class HarnessFinder:
        @staticmethod
        def find_spec(name: str, *_: object) -> object:
            if name == "compilediag_harness":
                return PathFinder.find_spec(name, [root])
            return None

    finders: list[object] = sys.meta_path  # pyright: ignore[reportAssignmentType]
    finders.insert(0, HarnessFinder)
    try:
        from compilediag_harness import process
    finally:
        finders.remove(HarnessFinder)
        sys.path_importer_cache.pop(root, None)
    process.start(run_dir)


def _write_reason(run_dir: str, reason: str) -> None:
    """Write why nothing is observed to the run directory, never to the user's terminal."""
    try:
        path = os.path.join(run_dir, f"attach-fault-{os.getpid()}.txt")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(reason[:4095] + "\n")
    except OSError:
        pass


_attach()
del sys.modules[__name__]
__import__(__name__)
