"""Parses a guard's source into a path, and formats it as the user would write the variable.

Sources come in two notations, `L['self']._buffers['pe']` from the guard tree and
`self._buffers['pe']` in printed reasons; torch 2.7 writes `dict.__getitem__(d, k)` for `d[k]`. Text
that is no source gives None, never an error.

What lies below a module is written as in `named_buffers()`: "pos.pe"; a numbered child by its
container: "Sequential[1].scale"; an attribute of the root with its root: "self.count"; what a
function captured by the name of its free variable. Facts of the live process come first.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from compilediag_harness.wire import GuardFacts

_OPENING, _CLOSING = "([{", ")]}"
_STRING_OR_BRACKET = re.compile(r"""'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|[()\[\]{}]""", re.DOTALL)


def strip_quotes(text: str) -> str:
    """Strip the quotes of a string literal; other text stays as it is."""
    text = text.strip()
    if text[:1] == "b" and text[1:2] in ("'", '"'):
        text = text[1:]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def find_closing(text: str, start: int) -> int:
    """Find the index of the bracket that closes the one at `start`, strings skipped; -1 without."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, start):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        if depth == 0 and token[0] in _CLOSING:
            return token.start()
    return -1


def split_outside(text: str, separator: str) -> tuple[str, ...]:
    """Split `text` at every `separator` that is in no bracket and no string."""
    parts: list[str] = []
    start = index = 0
    while index < len(text):
        token = _STRING_OR_BRACKET.match(text, index)
        if token is not None and token[0] in _OPENING:
            index = find_closing(text, index) + 1
            if not index:
                break  # An open bracket: nothing behind it is outside.
        elif token is not None and token[0] not in _CLOSING:
            index = token.end()
        elif text.startswith(separator, index):
            parts.append(text[start:index])
            start = index = index + len(separator)
        else:
            index += 1
    return (*parts, text[start:])


Scope = Literal["local", "global", "state"]
HopKind = Literal["attr", "item", "key", "call"]

DEPTH_LIMIT = 40
"""Nested calls followed into; deeper text is not a source anybody wrote."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_OPERATORS = ("not", "and", "or", "if", "else", "True", "False", "None")
_IMPORTED = re.compile(r"^__import_(\w+)$")
_INTERNAL_SCOPE = re.compile(r"^(___unnamed_scope|__builtins_dict__)")
_REGISTRIES = ("_modules", "_buffers", "_parameters")
_HOOKS = re.compile(r"_hooks(_with_kwargs|_always_called)?$")


@dataclass(frozen=True, slots=True)
class GuardHop:
    """One step from an object to a part of it."""

    kind: HopKind
    """"attr" for `.name`, "item" for `[index]`, "key" for the n-th key of a dict, "call"."""
    text: str
    """Name of the attribute, or the subscript as written (quotes kept)."""

    @property
    def is_hooks(self) -> bool:
        """Leads to a module's dict of hooks."""
        return self.kind == "attr" and _HOOKS.search(self.text) is not None


_CELL = GuardHop("attr", "cell_contents")


@dataclass(frozen=True, slots=True)
class GuardPath:
    """A root name in the frame or the module, and the hops from it."""

    root: str
    scope: Scope
    hops: tuple[GuardHop, ...] = ()

    def add_hop(self, kind: HopKind, text: str) -> GuardPath:
        return GuardPath(self.root, self.scope, (*self.hops, GuardHop(kind, text)))

    @property
    def last(self) -> GuardHop | None:
        return self.hops[-1] if self.hops else None

    @property
    def before_last(self) -> GuardPath:
        """Without the last hop."""
        return GuardPath(self.root, self.scope, self.hops[:-1])

    @property
    def holder(self) -> GuardPath:
        """The object the last part is read from; a module's registries belong to the module."""
        return self.before_last.before_last if self.registry is not None else self.before_last

    @property
    def registry(self) -> str | None:
        """The module registry the last hop is read from: "_buffers" of `._buffers['pe']`."""
        if len(self.hops) < 2 or self.hops[-1].kind != "item":
            return None
        text = self.hops[-2].text
        return text if self.hops[-2].kind == "attr" and text in _REGISTRIES else None

    @property
    def member(self) -> str | None:
        """Name of the attribute or registry entry at the end, "pe" of `._buffers['pe']`."""
        last = self.last
        if last is None:
            return None
        if self.registry is not None:
            return strip_quotes(last.text)
        return last.text if last.kind == "attr" else None

    @property
    def callable_end(self) -> int:
        """Number of hops up to and with the last one inside a callable (a closure cell, or a
        hook taken from a module); 0 when the path passes through none."""
        ends = [
            index
            for index, hop in enumerate(self.hops, 1)
            if hop == _CELL or (hop.kind == "item" and index > 1 and self.hops[index - 2].is_hooks)
        ]
        return max(ends, default=0)

    @property
    def cell(self) -> str | None:
        """Index, as written, of the last closure cell the path passes through."""
        cells = [one.text for one, other in itertools.pairwise(self.hops) if other == _CELL]
        return cells[-1] if cells else None

    @property
    def tail(self) -> tuple[GuardHop, ...]:
        """The hops after the last callable."""
        return self.hops[self.callable_end :]

    @property
    def below_module(self) -> bool:
        """After the last callable, the path runs through a registry of an nn.Module."""
        return any(hop.kind == "attr" and hop.text in _REGISTRIES for hop in self.tail)


@functools.lru_cache(maxsize=8192)
def parse_path(source: str) -> GuardPath | None:
    """Parse a whole text as a path; None when it is no source."""
    return _parse_whole(source, DEPTH_LIMIT)


def find_paths(text: str) -> Iterator[GuardPath]:
    """Find every value that a condition such as `x.size()[0] > m.length` names, without the call
    that reads a tensor's size."""
    index = 0
    while (word := _WORD.search(text, index)) is not None:
        parsed = parse_path_at(text, word.start())
        index = max(word.end(), parsed[1] if parsed is not None else 0)
        if parsed is None or (not parsed[0].hops and parsed[0].root in _OPERATORS):
            continue
        hops = parsed[0].hops
        call = next((at for at, hop in enumerate(hops) if hop.kind == "call"), None)
        read = call is None or f"{hops[call].text}()" in text[word.start() : index]
        if not read or text.startswith("(", index):  # a function: the values stand inside
            index = word.end()
            continue
        yield GuardPath(parsed[0].root, parsed[0].scope, hops if call is None else hops[: call - 1])


def parse_path_at(text: str, start: int, depth: int = DEPTH_LIMIT) -> tuple[GuardPath, int] | None:
    """Parse the longest path that begins at `start`, with the index behind it; None without one."""
    if depth <= 0:
        return None
    if text[start : start + 1] == "(":
        end = find_closing(text, start)
        inner = _parse_whole(text[start + 1 : end], depth - 1) if end > 0 else None
        if inner is None:
            return None
        path, index = inner, end + 1
    else:
        name = _NAME.match(text, start)
        if name is None:
            return None
        path, index = GuardPath(name.group(), "local"), name.end()
    while True:
        step = _parse_hop(text, path, index, depth)
        if step is None:
            return _resolve_root(path), index
        path, index = step


def _parse_whole(text: str, depth: int) -> GuardPath | None:
    parsed = parse_path_at(text.strip(), 0, depth)
    return parsed[0] if parsed is not None and parsed[1] == len(text.strip()) else None


def _parse_hop(text: str, path: GuardPath, index: int, depth: int) -> tuple[GuardPath, int] | None:
    """Parse one hop more after `path`, if another one follows at `index`."""
    char = text[index : index + 1]
    if char == ".":
        name = _NAME.match(text, index + 1)
        return (path.add_hop("attr", name.group()), name.end()) if name else None
    if char not in ("[", "("):
        return None
    end = find_closing(text, index)
    if end < 0:
        return None
    inside = text[index + 1 : end]
    if char == "(":
        called = _parse_call(path, inside, depth)
        return (called, end + 1) if called is not None else None
    if path.last == GuardHop("key", ""):
        # list(dict.keys(d))[0]: the position of a key, not a value of the dict.
        return path.before_last.add_hop("key", inside), end + 1
    if path.last == GuardHop("attr", "__dict__"):
        # o.__dict__['x'] is o.x, and is printed so by another version.
        return path.before_last.add_hop("attr", strip_quotes(inside)), end + 1
    return path.add_hop("item", inside), end + 1


def _parse_call(path: GuardPath, inside: str, depth: int) -> GuardPath | None:
    """Parse a call as the path of what it reads, where that is known."""
    arguments = split_outside(inside, ", ") if inside.strip() else ()
    first = _parse_whole(arguments[0], depth - 1) if arguments else None
    name = path.last.text if path.last is not None and path.last.kind == "attr" else path.root
    unbound = len(path.hops) == 1 and path.root in ("dict", "list", "tuple", "set", "object")
    if name == "keys" and path.hops:
        base = first if unbound else path.before_last
        return base.add_hop("key", "") if base is not None else None
    if unbound and first is not None and len(arguments) == 2:
        if name == "__getitem__":
            return first.add_hop("item", arguments[1].strip())
        if name == "__getattribute__":
            return first.add_hop("attr", strip_quotes(arguments[1]))
    if not path.hops:
        if name == "type":
            return first.add_hop("attr", "__class__") if first is not None else None
        # Conversions and torch's helpers (___from_numpy, ___as_tensor) read their argument.
        return first
    return path.add_hop("call", name) if first is None else first


def _resolve_root(path: GuardPath) -> GuardPath:
    """Resolve L['x'] and G['x'] to the name x of their scope."""
    if path.root not in ("L", "G") or path.scope != "local":
        return path
    scope: Scope = "local" if path.root == "L" else "global"
    hops = path.hops
    if not hops:
        return GuardPath(path.root, "state")
    if hops[0].kind != "item":
        return path
    name, rest = strip_quotes(hops[0].text), hops[1:]
    if _INTERNAL_SCOPE.match(name) and rest and rest[0].kind == "item":
        name, rest = strip_quotes(rest[0].text), rest[1:]
    module = _IMPORTED.match(name)
    if module is not None:
        name = module.group(1).replace("_dot_", ".")
    return GuardPath(name, scope, rest)


_SELF_NAMES = ("self", "s", "fn")
"""Roots that are the compiled module itself; `fn` is torch's own name for a built-in module."""

_HINTED = re.compile(r"(?:guard on \")?(?P<name>[^\W\d]\w*)(?:\".*)?", re.DOTALL)
"""torch's hint (2.11 or newer), `guard on "capture"`, and the bare name."""
_SILENT_ATTRIBUTES = ("__dict__", "__code__", "__class__")
_SIZES = ("size", "stride", "storage_offset", "numel", "item")
_NTH_KEY = re.compile(r"list\(dict\.keys\(.*\)\)\[(\d+)\]")
"""What torch writes for a key that is an object: a parameter, a module."""


def format_variable(
    path: GuardPath, facts: GuardFacts, hint: str | None = None, *, in_torch: bool = False
) -> str:
    """Format the variable behind a path. `in_torch`: the names of the frame are torch's, such as
    those of the wrapper `inner(*args, **kwargs)` that calls a module of torch's."""
    if path.callable_end:
        return _format_captured(path, facts, hint)
    hops = _select_meaningful(path.hops)
    if in_torch and path.scope == "local" and path.root in ("args", "kwargs"):
        if not hops:
            return "keyword arguments" if path.root == "kwargs" else "arguments"
        key = hops[0].text
        named = strip_quotes(key) if path.root == "kwargs" else facts.parameter or f"argument {key}"
        return named + _render_hops(hops[1:])
    below_module = bool(hops) and hops[0].text in _REGISTRIES
    if path.scope == "local" and path.root in _SELF_NAMES and below_module:
        name = _render_hops(hops).removeprefix(".")
        child, _, rest = name.partition(".")
        if child.isdigit():
            return f"{facts.root_type or 'module'}[{child}]" + (f".{rest}" if rest else "")
        return name or path.root
    return path.root + _render_hops(hops)


def _format_captured(path: GuardPath, facts: GuardFacts, hint: str | None) -> str:
    tail = _select_meaningful(path.tail)
    if path.cell is not None and path.hops[path.callable_end - 1].text == "cell_contents":
        name = (facts.free_variable or "").partition(".")[0].partition("[")[0]
        hinted = _HINTED.fullmatch((hint or "").strip())
        name = name or (hinted["name"] if hinted else f"captured variable {path.cell}")
        return name + _render_hops(tail)
    if not tail:
        holder = GuardPath(path.root, path.scope, path.hops[: path.callable_end - 2])
        hooks = path.hops[path.callable_end - 2].text.lstrip("_").removesuffix("s")
        return f"{hooks.replace('_', ' ')} of {format_variable(holder, GuardFacts())}"
    if tail[0].text == "__self__" and len(tail) > 1:
        # The hook is a bound method: its object is `self` in the method's own text.
        return "self" + _render_hops(tail[1:])
    return _render_hops(tail).lstrip(".")


def _select_meaningful(hops: tuple[GuardHop, ...]) -> tuple[GuardHop, ...]:
    """Select the hops that the user wrote, without the ones that only torch sees."""
    shown: list[GuardHop] = []
    for index, hop in enumerate(hops):
        if hop.kind in ("key", "call"):
            break
        following = hops[index + 1] if index + 1 < len(hops) else None
        if hop.text in _SIZES and following is not None and following.kind == "call":
            break
        shown.append(hop)
    while shown and shown[-1].kind == "attr" and shown[-1].text in _SILENT_ATTRIBUTES:
        shown.pop()
    return tuple(shown)


def _render_hops(hops: tuple[GuardHop, ...]) -> str:
    """Render hops as Python text, with a module's registries read as attributes."""
    text = ""
    named = False
    for index, hop in enumerate(hops):
        following = hops[index + 1] if index + 1 < len(hops) else None
        if hop.kind == "attr" and following is not None and following.kind == "item":
            if hop.text in (*_REGISTRIES, "__dict__"):
                named = True
                continue
            if hop.text == "_data" and text.endswith(".environ"):
                continue
        if hop.kind == "attr":
            if hop.text != "__class__":
                text += f".{hop.text}"
        elif named:
            text += f".{strip_quotes(hop.text)}"
        else:
            nth = _NTH_KEY.fullmatch(hop.text)
            text += f"[key {nth[1]}]" if nth else f"[{hop.text}]"
        named = False
    return text
