"""Names a guarded value as a user would write it: "pos.pe", "capture", "d['k']".

What lies below a module is written as in `named_buffers()` and `state_dict`, without the `self`
in front: "pos.pe"; a numbered child by its container: "Sequential[1].scale". A plain attribute of
the root keeps its root: "self.count", "cfg.flag". What a function captured goes by the name of its
free variable. Facts of the live process come first.
"""

from __future__ import annotations

import re

from compilediag.diagnosis.guards.source import Hop, Path, unquoted
from compilediag_harness.wire import GuardFacts

_SELF_NAMES = ("self", "s", "fn")
"""Roots that are the compiled module itself; `fn` is torch's own name for a built-in module."""

_HINTED = re.compile(r"guard on \"(?P<name>\w+)\"(?P<rest>.*)", re.DOTALL)
_SILENT_ATTRIBUTES = ("__dict__", "__code__", "__class__")
_SIZES = ("size", "stride", "storage_offset", "numel", "item")


def display_name(
    path: Path, facts: GuardFacts, hint: str | None = None, *, in_torch: bool = False
) -> str:
    """The variable behind a path. `in_torch`: the names of the frame are torch's, such as those of
    the wrapper `inner(*args, **kwargs)` that calls a module of torch's."""
    if path.callable_end:
        return _captured(path, facts, hint)
    hops = _meaningful(path.hops)
    if in_torch and path.scope == "local" and path.root in ("args", "kwargs"):
        return _passed_on(path.root, hops, facts)
    if facts.holder_path and hops and len(hops) == len(path.hops):
        return facts.holder_path + _rendered(hops[-2:] if path.registry else hops[-1:])
    below_module = bool(hops) and hops[0].text in ("_modules", "_buffers", "_parameters")
    if path.scope == "local" and path.root in _SELF_NAMES and below_module:
        name = _rendered(hops).removeprefix(".")
        child, _, rest = name.partition(".")
        if child.isdigit():
            return f"{facts.root_type or 'module'}[{child}]" + (f".{rest}" if rest else "")
        return name or path.root
    return path.root + _rendered(hops)


def _passed_on(root: str, hops: tuple[Hop, ...], facts: GuardFacts) -> str:
    if not hops:
        return "keyword arguments" if root == "kwargs" else "arguments"
    if root == "kwargs":
        return unquoted(hops[0].text) + _rendered(hops[1:])
    return (facts.parameter or f"argument {hops[0].text}") + _rendered(hops[1:])


def free_variable_of(hint: str | None) -> str | None:
    """The free variable torch's hint names (torch >= 2.11), "capture" of `guard on "capture"`;
    the bare name is taken too."""
    if hint is not None and hint.isidentifier():
        return hint
    found = _HINTED.match(hint.strip()) if hint else None
    return found.group("name") if found else None


def _captured(path: Path, facts: GuardFacts, hint: str | None) -> str:
    tail = _meaningful(path.tail)
    if path.cell is not None and path.hops[path.callable_end - 1].text == "cell_contents":
        name = (facts.free_variable or "").partition(".")[0].partition("[")[0]
        name = name or free_variable_of(hint) or f"captured variable {path.cell}"
        return name + _rendered(tail)
    if not tail:
        holder = Path(path.root, path.scope, path.hops[: path.callable_end - 2])
        hooks = path.hops[path.callable_end - 2].text.lstrip("_").removesuffix("s")
        return f"{hooks.replace('_', ' ')} of {display_name(holder, GuardFacts())}"
    if tail[0].text == "__self__" and len(tail) > 1:
        # The hook is a bound method: its object is `self` in the method's own text.
        return "self" + _rendered(tail[1:])
    return _rendered(tail).lstrip(".")


def _meaningful(hops: tuple[Hop, ...]) -> tuple[Hop, ...]:
    """The hops without the ones that only torch sees."""
    kept: list[Hop] = []
    for index, hop in enumerate(hops):
        if hop.kind in ("key", "call"):
            break
        following = hops[index + 1] if index + 1 < len(hops) else None
        if hop.text in _SIZES and following is not None and following.kind == "call":
            break
        kept.append(hop)
    while kept and kept[-1].kind == "attr" and kept[-1].text in _SILENT_ATTRIBUTES:
        kept.pop()
    return tuple(kept)


def _rendered(hops: tuple[Hop, ...]) -> str:
    """Hops as Python text, with a module's registries read as attributes."""
    text = ""
    named = False
    for index, hop in enumerate(hops):
        following = hops[index + 1] if index + 1 < len(hops) else None
        if hop.kind == "attr" and following is not None and following.kind == "item":
            if hop.text in ("_modules", "_buffers", "_parameters", "__dict__"):
                named = True
                continue
            if hop.text == "_data" and text.endswith(".environ"):
                continue
        if hop.kind == "attr":
            if hop.text != "__class__":
                text += f".{hop.text}"
        elif named:
            text += f".{unquoted(hop.text)}"
        else:
            text += f"[{hop.text}]"
        named = False
    return text
