"""compilediag: why did torch.compile compile again, what did it cost, what do I change?

    import compilediag as cd

Every name below is loaded when it is first used; none imports torch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036 - an old Python that finds this on its path reads it
    _TOO_OLD = f"compilediag needs Python 3.10 or newer, and this is {sys.version.split()[0]}"
    # For `python -m compilediag`, whose arguments are not set yet, a sentence without a traceback.
    raise SystemExit(_TOO_OLD) if sys.argv[:1] == ["-m"] else ImportError(_TOO_OLD)

from compilediag._version import __version__

if TYPE_CHECKING:
    from compilediag.runs.watch import watch
    from compilediag_harness.extensions.pipeline import Pipeline, pipeline
    from compilediag_harness.extensions.tracker.ablations import (
        Ablation,
        AblationInvalid,
        ablation,
        read_ablation,
    )
    from compilediag_harness.extensions.tracker.tracker import Tracker, tracker
    from compilediag_harness.shapes.fixed_shape import FixedShape
    from compilediag_harness.steps.steps import drive, step
    from compilediag_harness.user_api.cadence import Cadence, cadence
    from compilediag_harness.user_api.spans import span


__all__ = [
    "Ablation",
    "AblationInvalid",
    "Cadence",
    "FixedShape",
    "Pipeline",
    "Tracker",
    "__version__",
    "ablation",
    "cadence",
    "drive",
    "pipeline",
    "read_ablation",
    "span",
    "step",
    "tracker",
    "watch",
]

_EXTENSIONS = "compilediag_harness.extension_points"
"""The module whose table has what an extension gives: the names of `__all__` without a home."""

_HOMES = {
    "Cadence": "compilediag_harness.user_api.cadence",
    "FixedShape": "compilediag_harness.shapes.fixed_shape",
    "cadence": "compilediag_harness.user_api.cadence",
    "load_ipython_extension": "compilediag.notebook",
    "unload_ipython_extension": "compilediag.notebook",
    "drive": "compilediag_harness.steps.steps",
    "span": "compilediag_harness.user_api.spans",
    "step": "compilediag_harness.steps.steps",
    "watch": "compilediag.runs.watch",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or (_EXTENSIONS if name in __all__ else None)
    if home is None:
        raise AttributeError(f"module 'compilediag' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value = module.load(module.API[name]) if home == _EXTENSIONS else getattr(module, name)
    if value is None:
        raise AttributeError(f"compilediag.{name} needs an extension that is not installed")
    globals()[name] = value
    if home.startswith("compilediag_harness."):
        # Compiled code that calls it is then the same in a run that nothing observes.
        import_module("compilediag_harness.torch_internals.dynamo_skip").bind_if_imported()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
