"""Guard sources as torch writes them (`L['self']._buffers['pe']`), and what they lead to now:
the value, the object that holds it, the closure it is a variable of."""

from __future__ import annotations

import ast
import functools
import gc
import re
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import MISSING, TABLES, Hop, WeakByIdentity

# Python over {L, G}, a dict's items through `dict.__getitem__`.
_ROOT = re.compile(r"(?:dict\(|type\(|list\(|dict\.keys\(|dict\.__getitem__\()*L\['(\w+)'\]")
_CELL = re.compile(r"^(?P<function>.*)\.__closure__\[(?P<index>\d+)\]\.cell_contents", re.DOTALL)
_MEMBER = re.compile(r"(?:hasattr\(.*, |___dict_contains\()'([^']{1,200})'", re.DOTALL)
_KEY = re.compile(r"(?:contains\((?P<a>'[^']*'), |, (?P<b>'[^']*')\))")
_MAX_CHARS = 4096


@functools.lru_cache(8192)
def compile_source(text: str) -> types.CodeType:
    """Compile a source; cached: entries of a frame, and frames of a program, share their sources.

    Raises:
        SyntaxError, ValueError: the text is no expression.
    """
    return compile(text.lstrip(" \t"), "<guard>", "eval")  # as `eval` reads a text


def evaluate_source(source: str, scope: Mapping[str, Any]) -> Any:
    """Evaluate a source in the locals and globals {L, G}; `MISSING` where that raises."""
    try:
        # A copy, as `eval` adds `__builtins__`. Code of the program runs where there are calls or
        # properties: torch evaluates the same text to find its reason.
        return eval(compile_source(source), dict(scope))
    except Exception:
        return MISSING


def parse_expression(text: str) -> ast.expr | None:
    """Parse the text of an expression; None where it is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# --- as hops, which are read without running code of the program ---------------------------------


class SourcePath(NamedTuple):
    """A guard's source: the variable it starts from, and the hops from there."""

    scope: str
    """"L", a local of the compiled frame, or "G", a global."""
    root: str
    hops: tuple[Hop, ...]


@functools.lru_cache(maxsize=8192)
def parse_path(source: str) -> SourcePath | None:
    """Parse a source such as `L['self']._buffers['pe']`; None for what has another form."""
    node = parse_expression(source) if len(source) <= _MAX_CHARS else None
    hops: list[Hop] = []
    while node is not None and (step := _split_last_hop(node)) is not None:
        node, hop = step
        if isinstance(node, ast.Name) and node.id in ("L", "G"):
            if hop is None or hop.kind != "item" or type(hop.name) is not str:
                return None
            return SourcePath(node.id, hop.name, tuple(reversed(hops)))
        if hop is not None:
            hops.append(hop)
    return None


def _split_last_hop(node: ast.expr) -> tuple[ast.expr, Hop | None] | None:
    if isinstance(node, ast.Attribute):
        return node.value, Hop("attribute", node.attr)
    if isinstance(node, ast.Subscript):
        key = node.slice
        if isinstance(key, ast.Constant):
            return node.value, Hop("item", key.value)
        # As torch writes a key that is no constant: `list(dict.keys(...))[0]`.
        if not isinstance(key, ast.Subscript) or not isinstance(key.slice, ast.Constant):
            return None
        position = key.slice.value
        is_keys = ast.unparse(key.value).startswith("list(dict.keys(")
        known = is_keys and type(position) is int and position >= 0
        return (node.value, Hop("nth", position)) if known else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return None
    called = ast.unparse(node.func)
    if called == "dict.__getitem__" and len(node.args) == 2:
        key = node.args[1]
        return (node.args[0], Hop("item", key.value)) if isinstance(key, ast.Constant) else None
    if len(node.args) != 1:
        return None
    if called == "type":
        return node.args[0], Hop("type")
    return (node.args[0], None) if called in ("dict", "list", "tuple") else None


# --- what holds a value ---------------------------------------------------------------------------


class LastHop(NamedTuple):
    """The object that the last hop of a source reads from, and the name or index it reads."""

    value: Any
    name: str
    is_attribute: bool


@functools.lru_cache(maxsize=8192)
def _parse_last_hop(source: str) -> tuple[str, str, bool] | None:
    """Parse `holder.name`, `holder._buffers['name']` or `holder[index]` into (source of the holder,
    name or index read, whether it is an attribute)."""
    node = parse_expression(source)
    # 2.7 writes an item of a dict `dict.__getitem__(holder, key)`.
    if isinstance(node, ast.Call) and len(node.args) == 2:
        return ast.unparse(node.args[0]), ast.unparse(node.args[1]), False
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value), node.attr, True
    if isinstance(node, ast.Subscript):
        base, key = node.value, node.slice
        name = str(key.value) if isinstance(key, ast.Constant) else ast.unparse(key)
        if isinstance(base, ast.Attribute) and base.attr in (*TABLES, "__dict__"):
            return ast.unparse(base.value), name, True
        return ast.unparse(base), name, False
    return None


def find_holder(source: str, scope: Mapping[str, Any]) -> LastHop | None:
    """Find the object that a source's last hop reads from, evaluated; None for a local or a global,
    and where evaluating raises."""
    hop = _parse_last_hop(source)
    if hop is None or hop[0] in ("L", "G"):
        return None  # a local or a global is read from no object
    value = evaluate_source(hop[0], scope)
    return None if value is MISSING else LastHop(value, *hop[1:])


def iterate_holders(source: str, scope: Mapping[str, Any]) -> Iterator[Any]:
    """Iterate over the objects along a source, the innermost first."""
    while (holder := find_holder(source, scope)) is not None:
        yield holder.value
        hop = _parse_last_hop(source)
        source = "" if hop is None else hop[0]


def parse_attribute(source: str) -> str | None:
    """Parse the attribute that a source reads last; None where it is an item, or no attribute."""
    hop = _parse_last_hop(source)
    return hop[1] if hop is not None and hop[2] else None


def parse_container(source: str) -> str:
    """Parse the source of what an item is read from; "" where a source is no item."""
    hop = _parse_last_hop(source)
    return "" if hop is None or hop[2] or hop[0] in ("L", "G") else hop[0]


def parse_member(text: str) -> str | None:
    """Parse the attribute or key that a membership check tests; None for another check."""
    match = _MEMBER.search(text)
    return match[1] if match else None


def parse_key(text: str) -> str | None:
    """Parse the key, in quotes, that a check of a dict or a set tests; None for another check."""
    match = _KEY.search(text)
    return match["a"] or match["b"] if match else None


def parse_root_name(source: str) -> str | None:
    """Parse the local variable a source starts from: "self" of `L['self']._modules[...]`."""
    match = _ROOT.match(source)
    return match[1] if match else None


# --- closures -------------------------------------------------------------------------------------


def find_cell_variable(source: str, scope: Mapping[str, Any]) -> str | None:
    """Find the variable's name in the function that closes over it: torch names it since 2.11."""
    match = _CELL.match(source)
    code = getattr(match and evaluate_source(match["function"], scope), "__code__", None)
    index = int(match["index"]) if match is not None else 0
    return code.co_freevars[index] if code and index < len(code.co_freevars) else None


def find_closure(
    source: str, scope: Mapping[str, Any], code: types.CodeType
) -> tuple[types.FunctionType, int] | None:
    """Find the function whose closure a source passes through, and the index of the cell; also for
    a free variable of the compiled function itself, which prints as a plain local."""
    match = _CELL.match(source)
    if match is not None:
        function = evaluate_source(match["function"], scope)
        known = isinstance(function, types.FunctionType) and bool(function.__closure__)
        return (function, int(match["index"])) if known else None
    name = parse_root_name(source)
    if name is None or name not in code.co_freevars:
        return None
    function = find_function(code)
    return None if function is None else (function, code.co_freevars.index(name))


_functions = WeakByIdentity[types.CodeType, weakref.ref[types.FunctionType]]()


def find_function(code: types.CodeType) -> types.FunctionType | None:
    """Find a function that runs this code. Nothing leads from a code object to its functions but
    the garbage collector, which goes through the whole heap: once is enough."""
    known = _functions.get(code)
    function = known() if known is not None else None
    if function is not None and function.__code__ is code:
        return function
    for referrer in gc.get_referrers(code):
        if isinstance(referrer, types.FunctionType) and referrer.__code__ is code:
            _functions[code] = weakref.ref(referrer)
            return referrer
    return None
