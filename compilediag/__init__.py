"""compilediag: why did torch.compile compile again, what did it cost, what do I change?

    import compilediag as cd

Every name below is loaded when it is first used; none imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilediag.watching import watch
    from compilediag_harness.ablations import Ablation, AblationInvalid, ablation, read_ablation
    from compilediag_harness.cadence import Cadence, cadence
    from compilediag_harness.drive import drive
    from compilediag_harness.pipeline import Pipeline, pipeline
    from compilediag_harness.shapes.fixed import FixedShape
    from compilediag_harness.spans import span
    from compilediag_harness.steps import step
    from compilediag_harness.tracker import Tracker, tracker

__version__ = "0.1.0"

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

_HOMES = {
    "Ablation": "compilediag_harness.ablations",
    "AblationInvalid": "compilediag_harness.ablations",
    "Cadence": "compilediag_harness.cadence",
    "FixedShape": "compilediag_harness.shapes.fixed",
    "Pipeline": "compilediag_harness.pipeline",
    "Tracker": "compilediag_harness.tracker",
    "ablation": "compilediag_harness.ablations",
    "cadence": "compilediag_harness.cadence",
    "drive": "compilediag_harness.drive",
    "pipeline": "compilediag_harness.pipeline",
    "read_ablation": "compilediag_harness.ablations",
    "span": "compilediag_harness.spans",
    "step": "compilediag_harness.steps",
    "tracker": "compilediag_harness.tracker",
    "watch": "compilediag.watching",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'compilediag' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
