"""Entry points of extensions, by name: the only module of the core that knows an extension.

A point names a module below `compilediag.extensions` and an attribute of it, "fleet.x:y". It is
imported when it is used, and the core works where the folder of an extension is missing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from compilediag.errors import ExtensionMissing

PACKAGE = "compilediag.extensions"

COMMANDS = {
    "mcp": "mcp.command:command",
    "measure periodic": "cadence.command:command",
    "repro": "repro.command:command",
    "history stats": "fleet.stats_command:command",
    "history trend": "fleet.trend_command:command",
}
"""Subcommands as they are typed; their lines in the help are in `cli.COMMANDS`."""

TRAIN_LOG_READER = "train_logs.read:make_reader"
"""Makes the `TrainLogReader` of the trainers that are known, and of those in a pattern file."""

TRAIN_LOG_STEPS = "train_logs.receipt_parts:build_steps"
TRAIN_LOG_THROUGHPUT = "train_logs.receipt_parts:complete_throughput"
"""What a receipt says of such an output."""

CADENCE_RULES = "cadence.rules:RULES"
"""Rules about periodic work."""
CADENCE_VIEW = "cadence.view:render_cadence"
CADENCE_SECTION = "cadence.view:build_section"
"""What a probe found, as text and in the HTML report."""

SMALL_PROGRAM = "repro.command:build_program"
"""Makes a small program for finding N of a receipt."""

KNEE_RULES = "knee:RULES"
"""Rules about sizes that bring no more throughput."""

PACKING_RULES = "packing:RULES"
"""Rules about buffers that are filled in vain."""

PIPELINE_RULES = "pipeline:RULES"
PIPELINE_SECTION = "pipeline:build_pipeline_section"
"""Which side of a producer-consumer loop is the bottleneck, as findings and in the receipt."""

PRICES = "prices:read_prices"
"""Reads the price table of a user, which estimates what a run cost."""

TELEMETRY_SETTINGS = "telemetry.settings:make_settings"
"""Makes the `TelemetrySettings` of a run from the options of the command line."""
TELEMETRY_EXPORT = "telemetry.exporter:begin"
"""Begins to send what a run does; gives what ends that, in a bounded time, by `TelemetryReport`."""


def load(point: str, needed_by: str) -> Any:
    """Import what a point names.

    Raises:
        ExtensionMissing: its extension is not installed; `needed_by` begins the sentence.
    """
    if not is_installed(point):
        name = _get_extension_name(point)
        raise ExtensionMissing(
            f"{needed_by} needs the extension {name}, and compilediag/extensions/{name} is not "
            "installed: install compilediag again"
        )
    module, _, attribute = point.partition(":")
    return getattr(import_module(f"{PACKAGE}.{module}"), attribute)


def is_installed(point: str) -> bool:
    """True where the extension of a point is installed; imports nothing of it."""
    try:
        spec = find_spec(f"{PACKAGE}.{_get_extension_name(point)}")
    except ModuleNotFoundError:  # the folder of all extensions is missing
        return False
    return spec is not None and spec.origin is not None  # None: a folder without modules is left


def _get_extension_name(point: str) -> str:
    return point.partition(":")[0].partition(".")[0]
