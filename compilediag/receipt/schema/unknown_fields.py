"""Fields that this version does not know: set aside before the decoder sees them, then put back."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from compilediag.receipt.schema.record import LEAVES, UNKNOWN_FIELD, Record, attributes

Kind = TypeVar("Kind", bound=Record)


def convert_keeping(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """`raw` as a `kind`, with what it does not know in `unknown`, at every level.

    Raises:
        msgspec.ValidationError: a field is missing or has another type.
    """
    record = msgspec.convert(_known(kind, raw), kind)
    _put_back(record, raw)
    return record


def record_inside(hint: Any) -> tuple[type[Record] | None, str]:
    """The record inside a type, if any, and "[]" for a list or "{}" for a map."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            inner, mark = record_inside(argument)
            if inner is not None or mark:
                return inner, mark
        return None, ""
    if origin is tuple:
        return record_inside(arguments[0])[0], "[]"
    if origin is dict:
        return record_inside(arguments[1])[0], "{}"
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint, ""
    return None, ""


@cache
def _insides(kind: type[Record]) -> Mapping[str, tuple[type[Record] | None, str]]:
    """Key to what is inside of the field."""
    hints = typing.get_type_hints(kind)
    return {key: record_inside(hints[name]) for key, name in attributes(kind).items()}


def _known(kind: type[Record], raw: Any) -> Any:
    """`raw` without the keys that are not known; what has another shape is left as it is, for the
    decoder to refuse."""
    if not isinstance(raw, Mapping):
        return raw
    insides = _insides(kind)
    items = cast(Mapping[str, Any], raw).items()
    return {key: _known_inside(*insides[key], item) for key, item in items if key in insides}


def _known_inside(inner: type[Record] | None, mark: str, raw: Any) -> Any:
    if inner is None:
        return raw
    if mark == "[]" and isinstance(raw, (list, tuple)):
        return [_known(inner, item) for item in cast(list[Any], raw)]
    if mark == "{}" and isinstance(raw, Mapping):
        return {key: _known(inner, item) for key, item in cast(Mapping[str, Any], raw).items()}
    return raw if mark else _known(inner, raw)


def _put_back(value: Any, raw: Any) -> None:
    """Walks a converted value beside what it came from; `convert` keeps order and length."""
    if value is raw:
        return  # a record before, with all that it holds
    if isinstance(value, Record):
        known = attributes(type(value))
        unknown = {k: v for k, v in raw.items() if k not in known and k != UNKNOWN_FIELD}
        if unknown:
            # The record is frozen for its readers; it is not published before this line ran.
            msgspec.structs.force_setattr(value, "unknown", unknown)
        for key, name in known.items():
            if key in raw:
                _put_back(getattr(value, name), raw[key])
    elif isinstance(value, tuple):
        for item, source in zip(cast(tuple[Any, ...], value), raw, strict=True):
            if type(item) not in LEAVES:
                _put_back(item, source)
    elif isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            if isinstance(item, Record):
                _put_back(item, raw[key])
