"""Safe reads of the program's objects, and facts about them for as long as they live.

No code of theirs runs: no property, no `__getattr__`, no `__eq__`."""

from __future__ import annotations

import functools
import struct
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, cast

# The same without types, which are not known of anything here. A value may say that `__class__` is
# another than its own.
is_a: Callable[[Any, Any], bool] = isinstance
get_class: Callable[[Any], Any] = type
get_dict: Callable[[Any], dict[str, Any]] = vars


class _Missing:
    def __repr__(self) -> str:
        return "absent"


MISSING = _Missing()
"""Read where there is nothing, or nothing that can be read safely."""

_dict: Any = dict
_sequences: tuple[Any, ...] = (list, tuple)
"""Called as functions of the builtin classes: a subclass may have its own."""
TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what it holds beside its attributes."""

_FUNCTION_ATTRIBUTES = frozenset({"__closure__", "__code__", "__defaults__", "__kwdefaults__"})
_METHOD_ATTRIBUTES = frozenset({"__func__", "__self__"})


def iterate_frames(
    frame: types.FrameType | None, most: int = sys.maxsize
) -> Iterator[types.FrameType]:
    """Iterate over the calls in progress from a frame outwards, at most so many."""
    for _ in range(most):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


class Hop(NamedTuple):
    """One step from a value to what it holds."""

    kind: Literal["attribute", "item", "nth", "type"]
    """"nth": the value of a dict's key by the key's position."""
    name: Any = None


def read(hop: Hop, value: Any) -> Any:
    """Read what one hop leads to; `MISSING` where that cannot be read safely."""
    if value is MISSING:
        return MISSING
    kind = get_class(value)
    try:
        if hop.kind == "attribute":
            return _read_attribute(value, hop.name)
        if hop.kind == "type":
            return kind
        if issubclass(kind, _dict):
            if hop.kind == "item":
                return _dict.get(value, hop.name, MISSING)
            values: Any = islice(_dict.values(value), hop.name, None)
            return next(values, MISSING)
        if kind is types.MappingProxyType:  # the names of a class
            return value.get(hop.name, MISSING)
        for base in _sequences:
            if issubclass(kind, base) and type(hop.name) is int:
                return base.__getitem__(value, hop.name)
    except Exception:
        return MISSING
    return MISSING


def _read_attribute(value: Any, name: str) -> Any:
    kind = get_class(value)
    if kind is types.CellType:
        return value.cell_contents if name == "cell_contents" else MISSING
    if kind is types.FunctionType and name in _FUNCTION_ATTRIBUTES:
        return getattr(value, name)
    if kind is types.MethodType and name in _METHOD_ATTRIBUTES:
        return getattr(value, name)
    if issubclass(kind, type):
        if name in ("__mro__", "__dict__"):
            return type.__dict__[name].__get__(value)
        return _read_from_class(value, name, None)
    if name == "__dict__":
        return get_attributes(value)
    member = get_plain_attribute(value, name)
    return _read_from_class(kind, name, value) if member is MISSING else member


def read_cell(cell: Any) -> Any:
    """Read a variable of a closure; `MISSING` where it is not filled."""
    return read(Hop("attribute", "cell_contents"), cell)


def iterate_reached(function: Any, code: Any) -> Iterator[Any]:
    """Iterate over the values of a function's names: captured variables and globals."""
    yield from map(read_cell, getattr(function, "__closure__", None) or ())
    yield from map(getattr(function, "__globals__", {}).get, code.co_names)


def get_attributes(value: Any) -> dict[str, Any]:
    """Get the `__dict__` of an object itself; one that is empty where it has slots alone."""
    try:
        own: Any = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return own if get_class(own) is _dict else {}


def get_plain_attribute(holder: Any, name: str) -> Any:
    """Get an attribute that an object or a module holds itself; `MISSING` where there is none."""
    own = get_attributes(holder)
    tables: list[Any] = [own, *map(own.get, TABLES)]
    for table in tables:
        if get_class(table) in (_dict, OrderedDict) and name in table:
            return table[name]
    return MISSING


def _read_from_class(kind: type, name: str, value: Any) -> Any:
    """Read a name of a class; for one with slots, what its instance `value` stores there."""
    # Through `type` itself: a metaclass of the program's may have names of its own for both.
    for base in type.__dict__["__mro__"].__get__(kind):
        member = type.__dict__["__dict__"].__get__(base).get(name, MISSING)
        if member is MISSING:
            continue
        if get_class(member) is types.MemberDescriptorType and value is not None:
            return member.__get__(value)
        # A property would run; functions and constants are what they are.
        is_function = get_class(member) is types.FunctionType
        plain = is_function or not hasattr(get_class(member), "__get__")
        return member if plain else MISSING
    return MISSING


def get_code(function: Any) -> types.CodeType | None:
    """Get the code behind a function, method, partial or callable object; None where it is in C."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    # The function behind the wrapper of `torch.compiler.disable`.
    behind = getattr(function, "_torchdynamo_orig_callable", function)
    code = getattr(behind, "__code__", None)
    if code is None:
        code = getattr(_read_from_class(get_class(behind), "__call__", None), "__code__", None)
    return code


def format_type_name(value: Any) -> str:
    """Format the type as guards print it: "int", "torch.Tensor", "app.Config"."""
    kind: type[object] = value.__class__
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# --- where instances of a class keep their state -----------------------------------------------


_POINTER = struct.calcsize("P")


def format_class_name(value: Any) -> str:
    """Format the full name of a value's class; `__class__` of the value is not read."""
    kind = get_class(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def describe_kind_and_size(value: Any) -> str:
    """Describe a value by its class and length."""
    return f"{format_class_name(value)} of {len(value)}"


def is_pure_python(kind: Any) -> bool:
    """True if instances hold nothing but attributes: no state of a class written in C."""
    slots = len(list_slots(kind)) + bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__)
    return kind.__basicsize__ <= object.__basicsize__ + slots * _POINTER and not kind.__itemsize__


def list_slots(kind: Any) -> list[tuple[str, Any]]:
    """List the `__slots__` of a class and its bases."""
    return [
        (name, member)
        for owner in kind.__mro__
        if "__slots__" in get_dict(owner)
        for name, member in get_dict(owner).items()
        if is_a(member, types.MemberDescriptorType)
    ]


def find_class_file(kind: Any) -> str:
    """Find the file of the module that defines a class; "" for what is built in."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "builtins":
        return ""
    return getattr(module, "__file__", None) or f"<{kind.__module__}>"


@functools.lru_cache(maxsize=4096)
def list_names(code: types.CodeType) -> frozenset[str]:
    """List the names that a code object and those inside it use."""
    inner = (list_names(constant) for constant in code.co_consts if is_a(constant, types.CodeType))
    return frozenset(code.co_names).union(*inner)


# --- containers and attributes that get back what they held ----------------------------------


class Holder(NamedTuple):
    """Something that holds other values, as it was."""

    put_back: Callable[[Any], None]
    """Makes it hold what is given."""
    now: Callable[[], Any]
    before: Any


def put_back(holders: Iterable[Holder]) -> None:
    """Make everything hold what it held."""
    for holder in holders:
        if not _has_same_content(holder.before, holder.now()):
            holder.put_back(holder.before)


def _has_same_content(one: Any, other: Any) -> bool:
    if is_a(one, dict) and is_a(other, dict):
        first, second = cast(dict[Any, Any], one), cast(dict[Any, Any], other)
        same_keys = [*map(id, first)] == [*map(id, second)]
        return same_keys and [*map(id, first.values())] == [*map(id, second.values())]
    if is_a(one, (list, set)) and type(one) is type(other):
        first, second = sorted(map(id, one)), sorted(map(id, other))
        return first == second if is_a(one, set) else [*map(id, one)] == [*map(id, other)]
    return one is other


def refill(kind: Any, value: Any, contents: Any) -> None:
    """Replace all contents of a container, also where a subclass has methods of its own."""
    kind.clear(value)
    (kind.update if hasattr(kind, "update") else kind.extend)(value, contents)


Key = TypeVar("Key")
Value = TypeVar("Value")
Rest = ParamSpec("Rest")
_CodeFunction = Callable[Concatenate[types.CodeType, Rest], Value]


class WeakByIdentity(Generic[Key, Value]):
    """A `weakref.WeakKeyDictionary` by identity: no key's `__hash__` or `__eq__` is called, since
    those are the program's own functions, and code with constants without a hash has none."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def get(self, key: Key) -> Value | None:
        """Get the value of an object; None where it has none."""
        entry = self._entries.get(id(key))
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._entries)

    def setdefault(self, key: Key, value: Value) -> Value:
        """The value of an object, this one unless it has another."""
        if id(key) not in self._entries:
            self[key] = value
        return self._entries[id(key)][1]

    def __setitem__(self, key: Key, value: Value) -> None:
        """Gives an object, which can be referred to weakly, a value."""
        # Invariant: no value refers to its key, which would then never go.
        # Called in C with the reference as the default: a function of ours would be a frame that
        # Dynamo is offered where the object goes in a compiled call.
        forget = functools.partial(self._entries.pop, id(key))
        self._entries[id(key)] = weakref.ref(key, forget), value

    def items(self) -> list[tuple[Key, Value]]:
        """List every object that is still alive with its value, in the order of insertion."""
        entries = [(reference(), value) for reference, value in list(self._entries.values())]
        return [(key, value) for key, value in entries if key is not None]


def cache_by_code(function: _CodeFunction[Rest, Value]) -> _CodeFunction[Rest, Value]:
    """Cache results as `functools.cache` does, for a function whose first argument is a code
    object, which stays collectable."""
    cache = WeakByIdentity[types.CodeType, dict[Any, Value]]()

    @functools.wraps(function)
    def get_cached(code: types.CodeType, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Value:
        results = cache.setdefault(code, {})
        rest = (args, *kwargs.items())
        if rest not in results:
            results[rest] = function(code, *args, **kwargs)
        return results[rest]

    return get_cached
