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
class_of: Callable[[Any], Any] = type
dict_of: Callable[[Any], dict[str, Any]] = vars

MISSING = object()
"""Read where there is nothing, or nothing that can be read safely."""

_dict: Any = dict
_sequences: tuple[Any, ...] = (list, tuple)
"""Called as functions of the builtin classes: a subclass may have its own."""
TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what it holds beside its attributes."""

_OF_FUNCTIONS = frozenset({"__closure__", "__code__", "__defaults__", "__kwdefaults__"})
_OF_METHODS = frozenset({"__func__", "__self__"})


def frames_from(
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
    kind = class_of(value)
    try:
        if hop.kind == "attribute":
            return _attribute(value, hop.name)
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


def _attribute(value: Any, name: str) -> Any:
    kind = class_of(value)
    if kind is types.CellType:
        return value.cell_contents if name == "cell_contents" else MISSING
    if kind is types.FunctionType and name in _OF_FUNCTIONS:
        return getattr(value, name)
    if kind is types.MethodType and name in _OF_METHODS:
        return getattr(value, name)
    if issubclass(kind, type):
        if name in ("__mro__", "__dict__"):
            return type.__dict__[name].__get__(value)
        return _of_class(value, name, None)
    if name == "__dict__":
        return attributes_of(value)
    found = plain_attribute(value, name)
    return _of_class(kind, name, value) if found is MISSING else found


def attributes_of(value: Any) -> dict[str, Any]:
    """Get the `__dict__` of an object itself; one that is empty where it has slots alone."""
    try:
        own: Any = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return own if class_of(own) is _dict else {}


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """List what an object holds itself by name; of a module its tensors and submodules too."""
    own = dict(attributes_of(value))
    tables: list[Any] = [own.pop(table, None) or {} for table in TABLES]
    return [*own.items(), *(part for table in tables for part in table.items())]


def plain_attribute(holder: Any, name: str) -> Any:
    """Get an attribute that an object or a module holds itself; `MISSING` where there is none."""
    own = attributes_of(holder)
    tables: list[Any] = [own, *map(own.get, TABLES)]
    for table in tables:
        if class_of(table) in (_dict, OrderedDict) and name in table:
            return table[name]
    return MISSING


def _of_class(kind: type, name: str, value: Any) -> Any:
    """Read a name of a class; for one with slots, what its instance `value` stores there."""
    for base in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(base).get(name, MISSING)
        if found is MISSING:
            continue
        if class_of(found) is types.MemberDescriptorType and value is not None:
            return found.__get__(value)
        # A property would run; functions and constants are what they are.
        is_function = class_of(found) is types.FunctionType
        plain = is_function or not hasattr(class_of(found), "__get__")
        return found if plain else MISSING
    return MISSING


def type_name(value: Any) -> str:
    """Format the type as guards print it: "int", "torch.Tensor", "app.Config"."""
    kind: type[object] = value.__class__
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# --- where instances of a class keep their state -----------------------------------------------


_POINTER = struct.calcsize("P")


def kind_name(value: Any) -> str:
    """Format the full name of a value's class; `__class__` of the value is not read."""
    kind = class_of(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def kind_and_size(value: Any) -> str:
    """Describe a value by its class and length."""
    return f"{kind_name(value)} of {len(value)}"


def is_of_python(kind: Any) -> bool:
    """Whether instances hold nothing but attributes: no state of a class written in C."""
    pointers = len(slots_of(kind)) + bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__)
    return (
        kind.__basicsize__ <= object.__basicsize__ + pointers * _POINTER and not kind.__itemsize__
    )


def slots_of(kind: Any) -> list[tuple[str, Any]]:
    """List the `__slots__` of a class and its bases."""
    return [
        (name, member)
        for owner in kind.__mro__
        if "__slots__" in dict_of(owner)
        for name, member in dict_of(owner).items()
        if is_a(member, types.MemberDescriptorType)
    ]


def file_of(kind: Any) -> str:
    """Find the file of the module that defines a class; "" for what is built in."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "builtins":
        return ""
    return getattr(module, "__file__", None) or f"<{kind.__module__}>"


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """List the names that a code object and those inside it use."""
    inner = (names_in(item) for item in code.co_consts if is_a(item, types.CodeType))
    return frozenset(code.co_names).union(*inner)


# --- containers and attributes that get back what they held ----------------------------------


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""In place of a value where there is none."""


class Holder(NamedTuple):
    """Something that holds other values, as it was."""

    put_back: Callable[[Any], None]
    """Makes it hold what is given."""
    now: Callable[[], Any]
    before: Any


def put_back(holders: Iterable[Holder]) -> None:
    """Make everything hold what it held."""
    for holder in holders:
        if not _same_content(holder.before, holder.now()):
            holder.put_back(holder.before)


def _same_content(one: Any, other: Any) -> bool:
    if is_a(one, dict) and is_a(other, dict):
        first, second = cast(dict[Any, Any], one), cast(dict[Any, Any], other)
        return [*map(id, first), *map(id, first.values())] == [
            *map(id, second),
            *map(id, second.values()),
        ]
    if is_a(one, (list, set)) and type(one) is type(other):
        first, second = sorted(map(id, one)), sorted(map(id, other))
        return first == second if is_a(one, set) else [*map(id, one)] == [*map(id, other)]
    return one is other


def refill(of: Any, value: Any, items: Any) -> None:
    """Replace all contents of a container, also where a subclass has methods of its own."""
    of.clear(value)
    (of.update if hasattr(of, "update") else of.extend)(value, items)


Key = TypeVar("Key")
Value = TypeVar("Value")
Rest = ParamSpec("Rest")
_OfCode = Callable[Concatenate[types.CodeType, Rest], Value]


class WeakByIdentity(Generic[Key, Value]):
    """A `weakref.WeakKeyDictionary` by identity: no key's `__hash__` or `__eq__` is called, since
    those are the program's own functions, and code with constants without a hash has none."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def get(self, key: Key) -> Value | None:
        """Get the value of an object; None where it has none."""
        kept = self._kept.get(id(key))
        return None if kept is None else kept[1]

    def __len__(self) -> int:
        return len(self._kept)

    def setdefault(self, key: Key, value: Value) -> Value:
        """The value of an object, this one unless it has another."""
        if id(key) not in self._kept:
            self[key] = value
        return self._kept[id(key)][1]

    def __setitem__(self, key: Key, value: Value) -> None:
        """Gives an object, which can be referred to weakly, a value."""
        # Called in C with the reference as the default: a function of ours would be a frame that
        # Dynamo is offered where the object goes in a compiled call.
        forget = functools.partial(self._kept.pop, id(key))
        self._kept[id(key)] = weakref.ref(key, forget), value

    def items(self) -> list[tuple[Key, Value]]:
        """List every object that is still alive with its value, in the order of insertion."""
        found = [(kept(), value) for kept, value in list(self._kept.values())]
        return [(key, value) for key, value in found if key is not None]


def cached_by_code(function: _OfCode[Rest, Value]) -> _OfCode[Rest, Value]:
    """Cache results as `functools.cache` does, for a function whose first argument is a code
    object, which stays collectable."""
    kept = WeakByIdentity[types.CodeType, dict[Any, Value]]()

    @functools.wraps(function)
    def answer(code: types.CodeType, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Value:
        answers = kept.setdefault(code, {})
        rest = (args, *kwargs.items())
        if rest not in answers:
            answers[rest] = function(code, *args, **kwargs)
        return answers[rest]

    return answer
