"""Facts about objects, told apart by identity, for as long as they live."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Rest = ParamSpec("Rest")
_OfCode = Callable[Concatenate[types.CodeType, Rest], Value]


class WeakByIdentity(Generic[Key, Value]):
    """As `weakref.WeakKeyDictionary`, but it asks no key for its hash or whether it equals another:
    those are the program's own functions, and code with constants without a hash has none."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def get(self, key: Key) -> Value | None:
        """The value of an object; None where it has none."""
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
        """Every object that is still alive, with its value, in the order they were given one."""
        found = [(kept(), value) for kept, value in list(self._kept.values())]
        return [(key, value) for key, value in found if key is not None]


def cached_by_code(function: _OfCode[Rest, Value]) -> _OfCode[Rest, Value]:
    """As `functools.cache`, for a function whose first argument is a code object, which is not kept
    alive."""
    kept = WeakByIdentity[types.CodeType, dict[Any, Value]]()

    @functools.wraps(function)
    def answer(code: types.CodeType, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Value:
        answers = kept.setdefault(code, {})
        rest = (args, *kwargs.items())
        if rest not in answers:
            answers[rest] = function(code, *args, **kwargs)
        return answers[rest]

    return answer
