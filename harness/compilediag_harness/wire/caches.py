"""Events of torch's compile caches: outcomes of lookups, components of keys, entries, folders.

torch describes a lookup by the same dictionary in the process and in its trace: `Lookups` is the
one reader of it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from compilediag_harness.wire.event import Event, StepEvent, clip, event

FX_GRAPH, AOT_AUTOGRAD = "fx_graph", "aot_autograd"
"""Inductor's cache of compiled graphs, and AOTAutograd's of what leads to them."""

HIT, MISS, BYPASS, DISABLED, FAILED = "hit", "miss", "bypass", "disabled", "failed"

Component = tuple[str, str]
"""Name, and torch's digest of the value with the value in short: "3f9ab2c1 torch.float32". Equal
digests are equal values, whatever stands behind them."""

DIGEST_CHARS = 8
VALUE_CHARS = 120
REASON_CHARS = 600
MAX_COMPONENTS = 400
"""Most components of one key: each tensor that is passed is one."""

LOOKUPS_WITH_COMPONENTS = 200
"""The first lookups of a process, whose keys are recorded by component; of others only the key."""

_REPEATED_CHARS = 300
"""Lines up to this length are read once."""

_SETTING = re.compile(r"inductor_config\w*\[")
_LINE = re.compile(r"\[(\w{8,80})\] ([^:\n]{1,200}): ?(.*)", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SPACE = re.compile(r"\s+")


@event
class CacheLookedUp(StepEvent):
    """torch looked for something in one of its compile caches, or decided that it may not."""

    cache: str
    """"fx_graph", "aot_autograd", "autotune_choices", "pgo_local", "mega"…; a cache that torch only
    counts by the name of its class, as "RemoteFxGraphCache"."""
    outcome: str
    """"hit", "miss", "bypass" (not cached by torch), "disabled" (off), "failed" (it raised)."""
    compile_id: str
    """Empty outside a compile."""
    epoch: int
    key: str = ""
    status: str = ""
    """torch's word for a miss: "full_miss"; "guard_miss": an entry was there, for other sizes;
    "hit": the entry was there, and what it refers to was not."""
    reason: str = ""
    """Why torch does not cache it, in torch's words, without addresses of objects."""
    saved_s: float | None = None
    """What compiling took when the entry was made; None where torch did not tell."""
    within: str = ""
    """The cache whose entry referred to this one."""
    components: tuple[Component, ...] = ()
    """Of what the key is made, but for `settings`; empty where torch does not tell."""
    components_left_out: int = 0
    settings: str = ""
    """Digest of the compiler's settings in the key: of a `CacheSettingsRead`."""


@event
class CacheSettingsRead(Event):
    """The settings of the compiler that are part of keys; the same for most lookups of a run."""

    digest: str
    components: tuple[Component, ...]


@event
class CacheWritten(StepEvent):
    """torch wrote an entry into a cache of this machine, or could not."""

    cache: str
    compile_id: str
    epoch: int
    problem: str = ""
    """Why it could not; empty where it did."""


@event
class CacheFolderRead(Event):
    """The place of inductor's caches of this machine."""

    folder: str
    configured: bool
    """By `TORCHINDUCTOR_CACHE_DIR`; otherwise torch chose it, below the temporary folder."""
    temporary: bool
    """Below the system's temporary folder."""
    filesystem: str = ""
    """Of its mount: "tmpfs" (in memory), "overlay" (a container's own layer), "ext4"; empty where
    it is not known."""
    writable: bool = True


class Lookups:
    """The lookups of one process as torch describes them, of any version from 2.7."""

    def __init__(self) -> None:
        self._with_components = 0
        self._settings: set[str] = set()

    def describe(
        self, lookup: CacheLookedUp, info: Mapping[str, Any]
    ) -> tuple[CacheSettingsRead | None, CacheLookedUp]:
        """Describe a lookup with what torch's dictionary holds of it; with the settings in its key,
        the first time that they are met, else None. What is missing or of another type is empty.
        Addresses of objects are left out: they differ from run to run."""
        key = info.get("key")
        components = _parse_components(info.get("components"))
        own = tuple(component for component in components if not _SETTING.match(component[0]))
        self._with_components += bool(own)
        stored = own[:MAX_COMPONENTS] if self._with_components <= LOOKUPS_WITH_COMPONENTS else ()
        settings = tuple(component for component in components if _SETTING.match(component[0]))
        settings = settings[: 4 * MAX_COMPONENTS]
        text = "\n".join(f"{name} {value[:DIGEST_CHARS]}" for name, value in settings)
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if settings else ""
        lookup = dataclasses.replace(
            lookup,
            key=clip(key, 200) if isinstance(key, str) else "",
            status=clean_text(info.get("cache_status_detailed"), 40),
            reason=clean_text(info.get("cache_bypass_reason"), REASON_CHARS),
            saved_s=_read_saved_s(info),
            components=stored,
            components_left_out=len(own) - len(stored),
            settings=digest[:DIGEST_CHARS],
        )
        if not settings or lookup.settings in self._settings:
            return None, lookup
        self._settings.add(lookup.settings)
        return CacheSettingsRead(lookup.t, lookup.settings, settings), lookup


def clean_text(value: Any, limit: int) -> str:
    """Clean a text: on one line, without addresses of objects; empty where it is none."""
    if not isinstance(value, str):
        return ""
    text = _SPACE.sub(" ", _ADDRESS.sub("", value[: 4 * limit])).strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _parse_components(lines: Any) -> list[Component]:
    """Parse torch's lines: "[digest] name: value"."""
    components: dict[str, str] = {}
    for line in lines if isinstance(lines, (list, tuple)) else ():  # pyright: ignore[reportUnknownVariableType]
        if isinstance(line, str):
            pair = _parse_repeated_line(line) if len(line) <= _REPEATED_CHARS else _parse_line(line)
            if pair is not None:
                components[pair[0]] = pair[1]
    return list(components.items())


def _parse_line(line: str) -> Component | None:
    match = _LINE.match(line)
    if match is None:
        return None
    value = "".join(c if c.isprintable() else " " for c in match[3][: 4 * VALUE_CHARS])
    return match[2], f"{match[1][:DIGEST_CHARS]} {clean_text(value, VALUE_CHARS)}"


_parse_repeated_line = functools.lru_cache(maxsize=2048)(_parse_line)
"""Cached: the settings of a run are hundreds of lines, the same in most of its lookups."""


def _read_saved_s(info: Mapping[str, Any]) -> float | None:
    """Read the seconds saved: FX graphs have nanoseconds, AOTAutograd milliseconds."""
    for name, unit in (("time_saved_ns", 1e9), ("time_saved_ms", 1e3)):
        value = info.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return value / unit
    return None
