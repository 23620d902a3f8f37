"""Sees the program read tensors, without a frame of ours on the stack while it does.

`torch.Tensor` gets, for a moment, a descriptor of its own in front of each method of its C base
class that hands tensor data to Python. Python asks the descriptor for the method, the descriptor
notes who asks, and what is then called is torch's own method, by the program itself: warnings name
the program's line, tracebacks have no frame of ours, `torch.Tensor.item` read off the class is
torch's. `bool(t)`, `if t:`, `float(t)` and `int(t)` pass through the type's slots and are seen too.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from typing import Any

Listener = Callable[[str, Any, types.FrameType], None]
"""Called with the kind of read ("item", "bool"...), the tensor, and the frame that reads."""

_METHODS = ("item", "tolist", "cpu", "nonzero")
_SLOTS = {"__bool__": "bool", "__float__": "float", "__int__": "int", "__index__": "index"}

_listeners: tuple[Listener, ...] = ()
_faults: list[Exception] = []

_KINDS_KEPT = 4096
_kinds: dict[tuple[int, int], tuple[types.CodeType, str]] = {}
"""What was found out about instructions, by the code's id: equal code may stand in two files."""


class _Reading:
    """Stands in front of one method; what it answers is what the class would have answered."""

    __slots__ = ("_kind", "_name", "_original")

    def __init__(self, name: str, original: Any) -> None:
        self._name = name
        self._original = original
        self._kind = _SLOTS.get(name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None and _listeners:
            try:
                frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
                kind = self._kind or _kind_at(self._name, frame.f_code, frame.f_lasti)
                if kind:
                    for listener in _listeners:
                        listener(kind, instance, frame)
            except Exception as error:  # nothing of ours may reach the program
                _faults[:] = [error]
        return self._original.__get__(instance, owner)


def _kind_at(name: str, code: types.CodeType, at: int) -> str:
    known = _kinds.get((id(code), at))
    if known is None:
        if len(_kinds) >= _KINDS_KEPT:
            _kinds.clear()
        known = _kinds[id(code), at] = (code, kind_of_call(name, code, at))
    return known[1]


def kind_of_call(name: str, code: types.CodeType, at: int) -> str:
    """The kind of read when the instruction at `at` looks up the method `name` in order to call it;
    "" when it only asks for it (`hasattr`), or moves a tensor to another place than the host."""
    found = _instruction(code, at)
    if found is None or not _looks_up_a_method(found[0]):
        return ""
    if name != "to":
        return name
    following = found[1]
    return "to_cpu" if following is not None and following.argval == "cpu" else ""


def _instruction(
    code: types.CodeType, at: int
) -> tuple[dis.Instruction, dis.Instruction | None] | None:
    """The instruction at a byte offset and the one after it."""
    instructions = iter(dis.get_instructions(code))
    for instruction in instructions:
        if instruction.offset == at:
            return instruction, next(instructions, None)
    return None


def _looks_up_a_method(instruction: dis.Instruction) -> bool:
    """From Python 3.12 on a method is looked up by LOAD_ATTR with its lowest bit set."""
    if instruction.opname == "LOAD_METHOD":
        return True
    is_method = sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
    return instruction.opname == "LOAD_ATTR" and is_method


def put(tensor_type: Any, listener: Listener) -> None:
    """Tells `listener` of every read until `take_away`. Nothing may be compiled, and no guard may
    be evaluated, in between. Methods that the program has replaced itself are left alone."""
    global _listeners
    _listeners = (*_listeners, listener)
    for name in (*_METHODS, "to", *_SLOTS):
        original = _inherited(tensor_type, name)
        if original is not None and name not in vars(tensor_type):
            setattr(tensor_type, name, _Reading(name, original))


def take_fault() -> Exception | None:
    """The last fault of a listener since this was asked, if there was one: that read is missing."""
    return _faults.pop() if _faults else None


def take_away(tensor_type: Any, listener: Listener) -> None:
    """Tells `listener` nothing more; without another one the class is as it was."""
    global _listeners
    _listeners = tuple(one for one in _listeners if one != listener)
    if not _listeners:
        for name in names_of(tensor_type):
            delattr(tensor_type, name)


def names_of(tensor_type: Any) -> list[str]:
    """The methods that a descriptor of ours stands in front of now."""
    own: dict[str, Any] = dict(vars(tensor_type))  # pyright: ignore[reportUnknownArgumentType]
    return [name for name, value in own.items() if isinstance(value, _Reading)]


def _inherited(tensor_type: Any, name: str) -> Any:
    bases: tuple[type, ...] = tensor_type.__mro__[1:]
    return next((vars(base)[name] for base in bases if name in vars(base)), None)
