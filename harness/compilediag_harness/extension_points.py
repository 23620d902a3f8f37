"""Extension points of the harness: names of what extensions do inside the user's process.

No other module here knows an extension. A point names a module below
`compilediag_harness.extensions` and an attribute of it, "x:y". It is imported when it is used;
where the module is missing, what it would do is left out.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PACKAGE = "compilediag_harness.extensions"

# Invariant: modules and attributes by text; what is renamed there is renamed here.
API = {
    "Ablation": "tracker.ablations:Ablation",
    "AblationInvalid": "tracker.ablations:AblationInvalid",
    "Pipeline": "pipeline:Pipeline",
    "Tracker": "tracker.tracker:Tracker",
    "ablation": "tracker.ablations:ablation",
    "pipeline": "pipeline:pipeline",
    "read_ablation": "tracker.ablations:read_ablation",
    "tracker": "tracker.tracker:tracker",
}
"""What programs import from `compilediag`, by name."""

RECORDED = {
    "pipeline": "pipeline:sinks",
    "tracker": "tracker.tracked_run:sinks",
}
"""The `SessionSinks` of what programs record themselves, by the word for a fault of theirs."""

PACKING = "packing:PackingSample"
"""Keeps what a sampled step writes into buffers that it has filled before."""

KNEE = "knee:measure_knee"
"""Measures the calls of a `FixedShape` at each of its sizes."""


def load(point: str) -> Any:
    """Load what a point names; None where its module is missing."""
    module, _, attribute = point.partition(":")
    name = f"{PACKAGE}.{module}"
    try:
        return getattr(import_module(name), attribute)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):  # it, or a folder above it
            return None
        raise
