"""The user's call that led to what torch compiles: its line, its text, the arguments it passes.

Text is that of the running instruction, which Python 3.11 and later can place to the column; before
that it is the only call on the line. An argument is recorded where its binding to a parameter is
certain: no value that can be compared speaks against it, and nothing in between may have moved it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import linecache
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import MISSING, Hop, get_plain_attribute, read
from compilediag_harness.base.resumed_frames import find_resumed_function
from compilediag_harness.base.session import Session
from compilediag_harness.blame.guard_sources import parse_expression
from compilediag_harness.blame.source_locations import is_ours, is_own_frame, is_torch
from compilediag_harness.blame.writes_in_source import parse_lines
from compilediag_harness.redaction.recognise import is_secret_name
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.torch_internals.torch_compiles import FrameBeingCompiled
from compilediag_harness.wire import UserCall, clip

HAS_POSITIONS = hasattr(types.CodeType, "co_positions")
_TEXT_CHARS = 500
_EXPRESSION_CHARS = 200
_MAX_ARGUMENTS = 32
_LEFT_OUT = "…"
"""Stands in the text of a call for what may be a secret."""
_MAX_LINES = 64
"""Of one call that is quoted."""

_PASS_THROUGH = tuple(
    os.path.join("torch", *parts)
    for parts in (("_dynamo", ""), ("nn", "modules", "module.py"), ("utils", "_contextlib.py"))
)
"""Where torch's functions are that hand all their arguments on as they are."""
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_Position = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column."""


def find_user_call(
    compiled: FrameBeingCompiled | None, frame: types.FrameType | None = None
) -> UserCall | None:
    """Find the innermost call of the program's own that `compiled` was called from, or the one from
    `frame` outwards; None where there is none. What is left of a function after a graph break was
    called where the function was."""
    caller, between = _find_own_caller(frame, compiled)
    if caller is None:
        return None
    code, file, line = caller.f_code, caller.f_code.co_filename, caller.f_lineno
    text = _read_running_segment(caller) if HAS_POSITIONS else _find_only_call(file, line)
    tree = None if text is None else _parse_call(text)
    if text is None or tree is None:  # the line alone where the call in it is not known
        text = linecache.getline(file, line, caller.f_globals).strip()
    shown, source = text, f"({text}\n)"
    passed: list[_Passed] | None = None
    if tree is not None and compiled is not None:
        names = _Names(caller)
        if find_resumed_function(compiled.code.co_name) is None and all(map(_is_wrapper, between)):
            passed = _bind_args(tree, compiled, names)
        if passed is None or not _is_certain(tree, passed, names):
            passed = _match_identical(tree, compiled, names)
    arguments: list[tuple[str, str]] = []
    for parameter, expression, _ in (passed or ())[:_MAX_ARGUMENTS]:
        # What is unpacked has no text of its own.
        written = ast.get_source_segment(source, expression) or ast.unparse(expression)
        # By the name of its parameter a literal may be a secret; a variable's name is none.
        if is_secret_name(parameter) and _contains_text(expression):
            shown = shown.replace(written, _LEFT_OUT)
        else:
            arguments.append((parameter, clip(_join_lines(written), _EXPRESSION_CHARS)))
    # Before Python 3.12 a comprehension is a function of its own, called where it stands.
    function = caller.f_back if code.co_name in _COMPREHENSIONS and caller.f_back else caller
    name, shown = function.f_code.co_name, clip(_join_lines(shown), _TEXT_CHARS)
    whole = find_resumed_function(name)
    defined_at = function.f_code.co_firstlineno if whole is None else 0
    return UserCall(file, line or 0, whole or name, shown, tuple(arguments), defined_at)


def copy_locals(frame: types.FrameType) -> dict[str, Any]:
    """Copy the locals of a running call. Up to 3.12 reading them leaves a snapshot at the frame
    that keeps every local alive, also those the user deletes later: it is emptied again."""
    snapshot = frame.f_locals
    own_copy = dict(snapshot)
    is_function = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    # Not below a trace function: a debugger writes into this very dict.
    if is_function and sys.version_info < (3, 13) and sys.gettrace() is None:
        snapshot.clear()
    return own_copy


def _find_own_caller(
    frame: types.FrameType | None, compiled: FrameBeingCompiled | None
) -> tuple[types.FrameType | None, list[types.FrameType]]:
    """Find the call of the program's own, and those in between, innermost first."""
    outer = frame if compiled is None else compiled.compiled_by
    code = None if compiled is None else compiled.code
    rest_of = None if code is None else find_resumed_function(code.co_name)
    between: list[types.FrameType] = []
    while outer is not None:
        here = outer.f_code
        part = find_resumed_function(here.co_name)
        same = code is not None and here.co_filename == code.co_filename
        if same and rest_of is not None and rest_of == (part or here.co_name):
            rest_of = part
        elif is_own_frame(outer):
            break
        between.append(outer)
        outer = outer.f_back
    return outer, between


def _read_running_segment(frame: types.FrameType) -> str | None:
    """Read the source of the instruction that runs, if it is known; columns count bytes."""
    code = frame.f_code
    positions = cast("Callable[[], Iterator[_Position]]", cast(Any, code).co_positions)
    # `f_lasti` counts bytes; each instruction has two, and one position.
    places = itertools.islice(positions(), frame.f_lasti // 2, None)
    first, last, begin, end = next(places, (None, None, None, None))
    if first is None or last is None or begin is None or end is None:
        return None
    if not 0 <= last - first < _MAX_LINES:
        return None
    numbers = range(first, last + 1)
    lines = [linecache.getline(code.co_filename, at, frame.f_globals).encode() for at in numbers]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode("utf-8", "replace")


@functools.lru_cache(maxsize=256)
def _parse_call(segment: str) -> ast.Call | None:
    expression = parse_expression(f"({segment}\n)")
    return expression if isinstance(expression, ast.Call) else None


@functools.lru_cache(maxsize=256)
def _find_only_call(file: str, line: int) -> str | None:
    """Find the call that begins in a line; None where there is none or more than one."""
    source = "".join(linecache.getlines(file))
    calls = [node for node in _list_calls(source) if node.lineno == line]
    return ast.get_source_segment(source, calls[0]) if len(calls) == 1 else None


@functools.lru_cache(maxsize=16)
def _list_calls(source: str) -> tuple[ast.Call, ...]:
    tree = parse_lines([source], 1)
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()


def _join_lines(text: str) -> str:
    """Join the lines that brackets continue, as a formatter would join them."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return re.sub(r",? (?=[)\]}])", "", re.sub(r"(?<=[(\[{]) ", "", " ".join(lines)))


class _Passed(NamedTuple):
    """An expression of a call and the parameter that position or keyword give it."""

    parameter: str
    expression: ast.expr
    value: Any
    """What the compiled code got for the parameter."""


def _contains_text(expression: ast.expr) -> bool:
    """True if it has a literal of text in it, other than a key."""
    keys = {id(node.slice) for node in ast.walk(expression) if isinstance(node, ast.Subscript)}
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        for node in ast.walk(expression)
        if id(node) not in keys
    )


class _Names:
    """Values of plain names and attributes at a call, found without running any code."""

    def __init__(self, frame: types.FrameType) -> None:
        self._locals = copy_locals(frame)
        self._globals = frame.f_globals

    def get_value(self, expression: ast.expr) -> Any:
        """Look up the value of an expression; `MISSING` for what would have to run code."""
        if isinstance(expression, ast.Constant):
            return expression.value
        if isinstance(expression, ast.Name):
            name = expression.id
            return self._locals.get(name, self._globals.get(name, MISSING))
        if isinstance(expression, ast.Attribute):
            return get_plain_attribute(self.get_value(expression.value), expression.attr)
        if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
            return read(Hop("item", expression.slice.value), self.get_value(expression.value))
        return MISSING

    def unpack_arguments(self, call: ast.Call) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """List the arguments by position and by keyword; what a plain tuple, list or dict is
        unpacked into as its items. Nothing by position behind what is unpacked of another kind."""
        positional: list[ast.expr] = []
        for expression in call.args:
            if not isinstance(expression, ast.Starred):
                positional.append(expression)
                continue
            held = self.get_value(expression.value)
            if type(held) not in (tuple, list):
                break
            positional += [
                ast.Subscript(expression.value, ast.Constant(at), ast.Load())
                for at in range(len(held))
            ]
        by_name: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            held = self.get_value(keyword.value) if keyword.arg is None else None
            if keyword.arg is not None:
                by_name[keyword.arg] = keyword.value
            elif type(held) is dict:
                keys = cast("dict[Any, Any]", held)
                by_name |= {
                    str(key): ast.Subscript(keyword.value, ast.Constant(key), ast.Load())
                    for key in keys
                }
        return positional, by_name


def _is_wrapper(frame: types.FrameType) -> bool:
    """True if a call hands all its arguments on as they are. `contextlib` decorates with what torch
    sets during a compile, our own code watches."""
    file = frame.f_code.co_filename
    if is_torch(file):
        return any(part in file for part in _PASS_THROUGH)
    return is_ours(file) or file == contextlib.__file__


def _bind_args(call: ast.Call, compiled: FrameBeingCompiled, names: _Names) -> list[_Passed] | None:
    """Bind by position and keyword; None where the call does not fit the compiled function."""
    code, values = compiled.code, compiled.values or {}
    named, more, more_by_name = inspect.getargs(code)
    positional, by_name = named[: code.co_argcount], named[code.co_posonlyargcount :]
    passed: list[_Passed] = []
    first = int(_is_method_call(call, compiled, names))
    positions, keywords = names.unpack_arguments(call)
    for at, expression in enumerate(positions, first):
        if at < len(positional):
            value = values.get(positional[at], MISSING)
            passed.append(_Passed(positional[at], expression, value))
        elif more is None:
            return None
        else:
            index = at - len(positional)
            value = read(Hop("item", index), values.get(more))
            passed.append(_Passed(f"{more}[{index}]", expression, value))
    for name, expression in keywords.items():
        if name in by_name:
            passed.append(_Passed(name, expression, values.get(name, MISSING)))
        elif more_by_name is None:
            return None
        else:
            value = read(Hop("item", name), values.get(more_by_name))
            passed.append(_Passed(f"{more_by_name}['{name}']", expression, value))
    return passed


def _is_method_call(call: ast.Call, compiled: FrameBeingCompiled, names: _Names) -> bool:
    """True if the first parameter is the object whose method is called, which no argument is."""
    code = compiled.code
    if not code.co_argcount:
        return False
    first = code.co_varnames[0]
    holder = (compiled.values or {}).get(first, MISSING)
    if holder is MISSING:
        return first == "self"
    if call.args and names.get_value(call.args[0]) is holder:
        return False
    if first == "self":
        return True
    for owner in cast("type[Any]", type(holder)).__mro__:
        function = vars(owner).get(code.co_name)
        for _ in range(8):
            if not isinstance(function, types.FunctionType):
                break
            if function.__code__ is code:
                return True
            function = vars(function).get("__wrapped__")
    return False


def _is_certain(call: ast.Call, passed: list[_Passed], names: _Names) -> bool:
    """True if the binding by position is that of the call: `functools.partial`, which leaves no
    frame, may have put others first."""
    confirmed = False
    for arg in passed:
        given = names.get_value(arg.expression)
        if given is MISSING or arg.value is MISSING:
            continue
        # Constants of source text are other objects than those of its byte code.
        plain = type(given) in (bool, int, float, str, bytes) and type(given) is type(arg.value)
        if given is not arg.value and not (plain and given == arg.value):
            return False
        confirmed = confirmed or not _is_shared(given)
    callee = names.get_value(call.func)
    if confirmed or callee is MISSING:
        return confirmed
    # Whether it is known what is called, and that it adds no argument of its own.
    inner = get_plain_attribute(callee, "_torchdynamo_orig_callable")
    inner = callee if inner is MISSING else inner
    is_module = type(get_plain_attribute(callee, "_modules")) is dict
    return is_module or isinstance(inner, (types.FunctionType, types.MethodType))


def _is_shared(value: Any) -> bool:
    """True if one object stands for many equal values."""
    return value is None or isinstance(value, (bool, int, float, str, bytes, tuple, type))


def _match_identical(call: ast.Call, compiled: FrameBeingCompiled, names: _Names) -> list[_Passed]:
    """Match the arguments that are the very object some parameter got."""
    code, values = compiled.code, compiled.values or {}
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    got = {name: values[name] for name in parameters if name in values}
    passed: list[_Passed] = []
    positions, keywords = names.unpack_arguments(call)
    for expression in (*positions, *keywords.values()):
        given = names.get_value(expression)
        if given is MISSING or _is_shared(given):
            continue
        same = [name for name, value in got.items() if value is given]
        if len(same) == 1:
            passed.append(_Passed(same[0], expression, given))
    return passed


def find_user_call_or_thread(session: Session) -> tuple[UserCall | None, str]:
    """Find the innermost call of the program's own: (call, ""); or, where this thread has none,
    (None, a text that names the thread and its innermost line). Never raises."""
    with session.catch_faults("the line that called compiled code"):
        here: types.FrameType = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        call = find_user_call(torch_compiles.find_compiling_frame(), here)
        if call is None and (waiting := torch_compiles.find_frame_awaiting_backward()) is not None:
            call = find_user_call(None, waiting)
        if call is not None:
            return call, ""
        # A thread by its name and its first call, which `threading` itself does not count as.
        while here.f_back is not None and here.f_back.f_code.co_filename != threading.__file__:
            here = here.f_back
        file = "/".join(here.f_code.co_filename.split(os.sep)[-2:])
        where = f"{file}:{here.f_lineno} in {here.f_code.co_name}"
        return None, f"thread {threading.current_thread().name} ({where})"
    return None, ""
