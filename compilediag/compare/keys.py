"""Keys: the only definition of when causes, graph breaks, frames or configurations are the same.

Keys survive edits and other machines: they hold no line number, which moves with every edit above
it, no folder above an installed package, and no address of an object. A configuration is
compared field by field.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from compilediag.receipt.schema.compiles import EventCause, FrameName, GraphBreak
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

_RESUMED = "torch_dynamo_resume_in_"
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3(?:\.[0-9]{1,3}t?)?/", re.DOTALL)
_GENERATED = re.compile(r"<[^<>]{1,80}>")
#: Addresses and ids of objects, which differ in every run.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,16}\b|\b[0-9]{12,20}\b")
_FOLDERS_SHOWN = 2
"""Last parts shown of a file that lies neither below the working directory nor in a package."""


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
    """Build the key of one false guard. A mode of torch has no source: it is no line's, whichever
    frame met it first."""
    placed = bool(cause.source) or cause.rule != "CD111"
    return CauseKey(
        cause.rule or cause.family,
        _ADDRESS.sub("...", cause.variable),
        normalize_file(cause.file) if placed and cause.file is not None else None,
        normalize_function(cause.function) if placed and cause.function is not None else None,
    )


def build_break_key(site: GraphBreak) -> BreakKey:
    """Build the key of one graph-break site."""
    function, reason = normalize_function(site.function), _ADDRESS.sub("...", site.reason)
    return BreakKey(normalize_file(site.file), function, site.category, reason)


def build_frame_key(frame: FrameName) -> FrameKey:
    """Build the key of a frame."""
    return FrameKey(normalize_file(frame.file), normalize_function(frame.function))


def normalize_function(name: str) -> str:
    """Remove the line number: torch names what follows a graph break after its line."""
    if not name.startswith(_RESUMED):
        return name
    match = re.fullmatch(rf"(?:{_RESUMED})+(.+?)(?:_at_[0-9]+)+", name)
    return name if match is None else f"{match[1]} (resumed)"


def normalize_file(file: str) -> str:
    """Make a file the same everywhere: below the working directory as it is; packages by name."""
    file = file.replace("\\", "/")
    if (generated := _GENERATED.match(file)) is not None:
        return generated[0]
    for pattern, root in ((_INSTALLED, "site-packages/"), (_STANDARD_LIBRARY, "python/")):
        if (match := pattern.match(file)) is not None:
            return root + file[match.end() :]
    if not file.startswith(("/", "~")) and file[1:3] != ":/":
        return file
    return "/".join(["...", *file.split("/")[-_FOLDERS_SHOWN:]])


def list_configuration_fields(receipt: Receipt) -> dict[str, Any]:
    """List every field of the configuration by dotted path, `name` included; None: not known."""
    return dict(flatten(receipt.header.configuration))
