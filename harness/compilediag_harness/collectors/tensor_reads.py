"""Sees the program read and write tensors, without a frame of ours on the stack while it does.

`torch.Tensor` gets, for a moment, a descriptor of its own in front of each method of its C base
class that hands tensor data to Python, or writes a part of a tensor. Looking the method up runs the
descriptor's `__get__`, which reads the caller's frame, and what is then called is torch's own
method, by the program itself. `bool(t)`, `float(t)` and `t[0] = 1` pass through the type's slots
and are seen too. What the descriptor hands out calls torch's method without Python in between, and
Python drops it as soon as the call is over, which is when the clock is read.
"""

from __future__ import annotations

import dis
import sys
import time
import types
from statistics import median
from typing import Any, Protocol

from compilediag_harness.base.dropped_call import DroppedCall
from compilediag_harness.base.signal_handlers import is_raised_by_handler


class Listener(Protocol):
    """Receives reads and writes."""

    def begin_read(self, kind: str, tensor: Any, frame: types.FrameType) -> Any:
        """A read or write begins, of a kind ("item", "bool", "setitem"...), by a frame. Anything
        but None is handed to `end_read` when the call has ended."""

    def end_read(self, read: Any, seconds: float | None, noting_s: float) -> None:
        """It has ended: seconds in torch's method, None where they could not be measured, and
        the seconds that noting it took."""


Receivers = tuple[tuple[Listener, Any], ...]
"""The listeners of one read, each with what it returned at its begin."""

_METHODS = ("item", "tolist", "cpu", "nonzero", "copy_")
_SLOTS = {
    "__bool__": "bool",
    "__float__": "float",
    "__int__": "int",
    "__index__": "index",
    "__setitem__": "setitem",
}

_listeners: tuple[Listener, ...] = ()
_faults: list[Exception] = []

_BEFORE_CALL = ("KW_NAMES", "PRECALL")

_MAX_KINDS = 4096
_kinds: dict[tuple[int, int], tuple[types.CodeType, str, bool]] = {}
"""What was found out about instructions, by the code's id: equal code may stand in two files."""

_clock = time.perf_counter
_get_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

_SAMPLES = 64
_unread_s: float | None = None
"""Seconds measured of a call that does nothing: no part of those of a read."""


class _Reading:
    """Stands in front of one method; what it returns is what the class would have returned."""

    __slots__ = ("_kind", "_name", "_original")

    def __init__(self, name: str, original: Any) -> None:
        self._name = name
        self._original = original
        self._kind = _SLOTS.get(name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None and _listeners:
            began = _clock()
            try:
                frame = _get_frame(1)
                kind, alone = _get_kind(self._name, frame.f_code, frame.f_lasti)
                kind = self._kind or kind
                receivers: Receivers = ()
                for listener in _listeners if kind else ():
                    read = listener.begin_read(kind, instance, frame)
                    if read is not None:
                        receivers += ((listener, read),)
                if receivers:
                    at = frame.f_lasti if self._kind and alone else None if alone else -1
                    return _make_call(self._original.__get__(instance, owner), receivers, at, began)
            except Exception as error:  # nothing of ours may reach the program
                _keep_fault(error)
        return self._original.__get__(instance, owner)


def _make_call(original: Any, receivers: Receivers, at: int | None, began: float) -> DroppedCall:
    """Make what calls torch's method, and tells its end. `at`: the instruction at which it must
    end, that of the slot; None for one that is looked up first, -1 where the time between that and
    the call is not its own."""

    def end() -> None:
        ended = _clock()
        try:
            # Of the program, whose frame is behind that of the call.
            alone = at is None or _get_frame(2).f_lasti == at
            seconds = max(0.0, ended - started - (_unread_s or 0.0)) if alone else None
            for listener, read in receivers:
                listener.end_read(read, seconds, noting_s + _clock() - ended)
        except Exception as error:
            _keep_fault(error)

    call = DroppedCall(original)
    call.tell_end(end)
    started = _clock()
    noting_s = started - began
    return call


def _keep_fault(error: Exception) -> None:
    if is_raised_by_handler(error):
        raise error
    _faults[:] = [error]


class _Unread:
    """Receives calls that do nothing."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def begin_read(self, kind: str, tensor: Any, frame: types.FrameType) -> Any: ...

    def end_read(self, read: Any, seconds: float | None, noting_s: float) -> None:
        self.seconds.append(seconds or 0.0)


def _measure_unread() -> None:
    """Once in a process: what lies between the two readings of the clock beside torch's method."""
    global _unread_s
    _unread_s = 0.0
    unread = _Unread()
    for _ in range(_SAMPLES):
        _make_call(lambda: None, ((unread, 0),), None, _clock())()
    _unread_s = median(unread.seconds)


def _get_kind(name: str, code: types.CodeType, at: int) -> tuple[str, bool]:
    known = _kinds.get((id(code), at))
    if known is None:
        if len(_kinds) >= _MAX_KINDS:
            _kinds.clear()
        known = _kinds[id(code), at] = (code, *_examine_lookup(name, code, at))
    return known[1], known[2]


def _examine_lookup(name: str, code: types.CodeType, at: int) -> tuple[str, bool]:
    """The kind of read when the instruction at `at` looks up the method `name` in order to call it;
    "" when it only looks it up (`hasattr`), or moves a tensor elsewhere than to the host. And
    whether nothing else is computed before the call, so that it can be timed from the look-up."""
    rest = [instruction for instruction in dis.get_instructions(code) if instruction.offset >= at]
    lookup = rest.pop(0) if rest and rest[0].offset == at else None
    opname = "" if lookup is None else lookup.opname
    if name in _SLOTS:  # by name nothing is known of when it is called
        return "", opname not in ("", "LOAD_ATTR", "LOAD_METHOD")
    # From Python 3.12 on a method is looked up by LOAD_ATTR with its lowest bit set.
    is_method = opname == "LOAD_ATTR" and sys.version_info >= (3, 12)
    is_method = is_method and lookup is not None and bool((lookup.arg or 0) & 1)
    kind = name if is_method or opname == "LOAD_METHOD" else ""
    if kind == "to":
        kind = "to_cpu" if rest and rest[0].argval == "cpu" else ""
    return kind, _is_called_at_once(rest)


def _is_called_at_once(rest: list[dis.Instruction]) -> bool:
    """True if what follows a look-up loads constants and variables, if anything, and calls."""
    loaded = 0
    for instruction in rest:
        name = instruction.opname
        if name.startswith("CALL"):
            # From Python 3.13 on the names of arguments are loaded like one more of them.
            names = name == "CALL_KW"
            return name != "CALL_FUNCTION_EX" and (instruction.arg or 0) + names == loaded
        if name in ("LOAD_ATTR", "LOAD_METHOD") or not name.startswith(("LOAD_", *_BEFORE_CALL)):
            return False
        loaded += name.count("LOAD_")  # some load two
    return False


def add_listener(tensor_type: Any, listener: Listener) -> None:
    """Report every read to `listener` until `remove_listener`. In between nothing may be compiled
    and no guard evaluated. Methods that the program has replaced itself are left alone."""
    global _listeners
    if _unread_s is None:
        _measure_unread()
    _listeners = (*_listeners, listener)
    bases: tuple[type, ...] = tensor_type.__mro__[1:]
    # Invariant: only names that the class has from its C base, so that `delattr` brings it back.
    for name in (*_METHODS, "to", *_SLOTS):
        base = next((base for base in bases if name in vars(base)), None)
        if base is not None and name not in vars(tensor_type):
            setattr(tensor_type, name, _Reading(name, vars(base)[name]))


def take_fault() -> Exception | None:
    """Take the last fault of a listener since the last call, if any: that read is missing."""
    return _faults.pop() if _faults else None


def remove_listener(tensor_type: Any, listener: Listener) -> None:
    """Report nothing more to `listener`; without another one the class is as it was."""
    global _listeners
    _listeners = tuple(other for other in _listeners if other is not listener)
    if not _listeners:
        for name in list_patched_methods(tensor_type):
            delattr(tensor_type, name)


def list_patched_methods(tensor_type: Any) -> list[str]:
    """List the methods that a descriptor of ours stands in front of now."""
    own: dict[str, Any] = dict(vars(tensor_type))  # pyright: ignore[reportUnknownArgumentType]
    return [name for name, value in own.items() if isinstance(value, _Reading)]
