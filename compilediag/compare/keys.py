"""Keys: the only definition of when causes, graph breaks, frames or configurations are the same.
They survive edits and other machines: they hold no line number, no folder above an installed
package, and no address of an object. A configuration is compared field by field."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import Struct, field

from compilediag.receipt.finding_keys import mask_addresses, normalize_file, normalize_function
from compilediag.receipt.schema.compiles import EventCause, FrameName, GraphBreak, Need
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten

CHANGED_BY_FIXES = frozenset(
    {
        "name",
        "precision",
        *(
            f"numerics_flags.{flag}"
            for flag in (
                *("dynamic", "matmul_precision", "allow_tf32_matmul", "deterministic"),
                *("default_dtype", "autocast_cpu", "autocast_cuda"),
            )
        ),
    }
)
"""Fields of the configuration that a fix may change: the script (a copy with the fix), `dynamic=`,
and the settings of CD111, which are set before the first compiled call or where autocast is
entered."""

COUNTS = (
    "frames",
    "compiles",
    "recompiles",
    "graphs",
    "graph_breaks",
    "eager_fallbacks",
    "recompile_limit_hits",
)
"""Fields of `receipt.compile` that are compared, in the order in which they are shown."""

NEEDS: tuple[str, ...] = get_args(Need)
"""Fields of it that divide the recompiles; a limit may be about them, no baseline holds them."""


class CauseKey(Struct, frozen=True, order=True):
    """Two causes of recompiles are the same if these are."""

    rule: str
    variable: str
    file: str | None = None
    function: str | None = None


class BreakKey(Struct, frozen=True, order=True):
    """Two graph-break sites are the same if these are."""

    file: str
    function: str
    category: str | None
    reason: str = field(name="title")  #: torch's; in a baseline "reason" is the user's.


class FrameKey(Struct, frozen=True, order=True):
    """A frame over all its compiles, epochs and processes."""

    file: str
    function: str


def build_cause_key(cause: EventCause) -> CauseKey:
    """Build the key of one false guard. A mode of torch has no source, so it is no line's."""
    placed = bool(cause.source) or cause.rule != "CD111"
    return CauseKey(
        cause.rule or cause.family,
        mask_addresses(cause.variable),
        normalize_file(cause.file) if placed and cause.file is not None else None,
        normalize_function(cause.function) if placed and cause.function is not None else None,
    )


def build_break_key(site: GraphBreak) -> BreakKey:
    """Build the key of one graph-break site."""
    function, reason = normalize_function(site.function), mask_addresses(site.reason)
    return BreakKey(normalize_file(site.file), function, site.category, reason)


def build_frame_key(frame: FrameName) -> FrameKey:
    """Build the key of a frame."""
    return FrameKey(normalize_file(frame.file), normalize_function(frame.function))


def list_configuration_fields(receipt: Receipt) -> dict[str, Any]:
    """List every field of the configuration by dotted path, `name` included; None: not known."""
    return dict(flatten(receipt.header.configuration))
