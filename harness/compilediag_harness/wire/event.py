"""Base classes of events, and the encoding of an event as a line of JSON.

Text of the target that an event quotes has a bounded length. Secrets leave it where it is written
(`redaction/`); the outside half escapes it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

TEXT_LIMIT = 16_384
"""Longest text of the target stored in one field, in characters."""

LINES_LEFT_OUT = "    … {} lines left out"
"""Stands in torch_logs.txt for the lines in the middle of a long message."""

LOG_OVER_LIMIT = "    … the log of this process is over its limit"
"""The last line of a process in torch_logs.txt that had more to write."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code. `function` is the code object's name, as torch prints it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call in a file of the program's own, below which torch compiled or recorded something."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    """Source text of the call on one line; of the whole line where the call is not known, empty
    where there is no source."""
    arguments: tuple[tuple[str, str], ...] = ()
    """What the call passes, as far as that is certain: the parameter of the compiled function as
    its guards name it ("x", "args[0]"), and the expression."""
    defined_at: int = dataclasses.field(default=0, compare=False)
    """First line of `function`; 0 where it is not known, and in the rest of one after a break."""


KINDS: dict[str, type[Event]] = {}
"""Every event by its name, the `k` of its line."""

_OLD_KINDS = (
    *("CompileMemoryRead", "DeviceStepsTimed", "HooksFound", "InterruptLost", "ProfileEnded"),
    *("PrecompiledCalled", "PrecompiledLoaded"),
)
"""Kinds of older journals: read as no more than an `Event`, so that none counts as lost."""

_TEXT_LIMIT, _LIST_LIMIT = 512, 64
"""Characters of a text and items of a list in a shortened line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in one process."""

    t: float
    """In seconds since the process attached, on the monotonic clock."""
    process: int = dataclasses.field(default=0, kw_only=True, metadata={"written": False})
    """Index of the process among those of the run, set where their events are put together: a
    journal is of one process, so its lines do not have it."""


KINDS.update(dict.fromkeys(_OLD_KINDS, Event))


@dataclasses.dataclass(frozen=True, slots=True)
class StepEvent(Event):
    """Something that happened in a step."""

    step: int
    """The step in progress, 0 for the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptEvent(StepEvent):
    """Something about one attempt of torch to compile, or about what came of it."""

    compile_id: str
    """As torch prints it: "0/1", "0/0_1" for a restart, "!1/1/0" under compiled autograd."""
    epoch: int
    """Advanced by `torch._dynamo.reset()`, after which ids start again at 0/0."""


AnyEvent = TypeVar("AnyEvent", bound=Event)


def __dataclass_transform__(  # noqa: N807 - PEP 681's spelling for Pythons before 3.11
    *, frozen_default: bool, field_descriptors: tuple[Any, ...]
) -> Callable[[Any], Any]:
    """Type checkers read a class below the decorated decorator as a dataclass."""
    return lambda decorator: decorator


@__dataclass_transform__(frozen_default=True, field_descriptors=(dataclasses.field,))
def event(cls: type[AnyEvent]) -> type[AnyEvent]:
    """Register a kind of event, as a frozen dataclass with slots. Its fields are the keys of its
    line, in their order; a field that is added later has a default, for older journals."""
    kind = KINDS[cls.__name__] = dataclasses.dataclass(frozen=True, slots=True)(cls)
    return kind


@functools.cache
def _list_field_names(kind: type[Any]) -> tuple[str, ...]:
    written = (field for field in dataclasses.fields(kind) if field.metadata.get("written", True))
    return tuple(field.name for field in written)


def _convert_by_field(value: Any) -> Any:
    """Convert what has no type of JSON: a dataclass by field, anything else to its text."""
    if not dataclasses.is_dataclass(value):
        return str(value)
    return {name: getattr(value, name) for name in _list_field_names(type(value))}


# A float that is not finite is written as Python spells it, and read as null:
# `allow_nan=False` would lose the record.
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_convert_by_field)


def encode(
    event: Event,
    *,
    shortened: bool = False,
    convert: Callable[[Any], dict[str, Any]] = _convert_by_field,
) -> bytes:
    """Encode an event as one JSON object without a newline: `k` is the kind, the rest its fields,
    which `convert` may rewrite. `shortened`: with long texts and long lists cut."""
    record = {"k": type(event).__name__, **convert(event)}
    if shortened:
        record = make_jsonable(record, clip_to=_TEXT_LIMIT, list_limit=_LIST_LIMIT)
        if record.get("problem", "") is None:
            record["problem"] = "the record was over 1 MiB; its texts and lists were cut"
    return _encoder.encode(record).encode("utf-8", "backslashreplace")


def make_jsonable(value: Any, *, clip_to: int | None = None, list_limit: int | None = None) -> Any:
    """Make a value of the types of JSON, with text keys; optionally cut long texts and lists."""
    if isinstance(value, str):
        return value if clip_to is None else clip(value, clip_to)
    if value is None or isinstance(value, (int, float)):
        return value
    cut = functools.partial(make_jsonable, clip_to=clip_to, list_limit=list_limit)
    if isinstance(value, (tuple, list)):
        return [cut(element) for element in value[:list_limit]]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {str(key): cut(element) for key, element in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return cut(_convert_by_field(value))


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """Clip `text` to `limit` characters, with a note of how many are lost."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"


def clip_middle(text: str, limit: int) -> str:
    """Clip `text` to `limit` characters of its beginning and its end, with the same note."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}… [{len(text) - 2 * half} more characters] …{text[-half:]}"
