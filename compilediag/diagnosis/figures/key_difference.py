"""The difference between two keys of a compile cache: components of another digest, in words. It
imports none of the figures of a run: `diff` starts without what folds one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

VERSION = "torch_version"
EXCERPT_CHARS = 60
"""Of a value around the place where it differs."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One component that differs."""

    name: str
    """As torch names it: "gm", "example_inputs[0]", "inductor_config[max_autotune]"."""
    before: str | None
    """The value in short, around the difference where that is seen; None where there was none."""
    after: str | None


class _Kind(NamedTuple):
    pattern: str
    words: str
    """`{}` is what the pattern's group holds."""
    change: str
    """What makes it the same in both."""


_SAME_VALUE = (
    "make the value that becomes part of the graph the same in every process: a fixed seed or "
    "name, or pass it as a tensor"
)
_KINDS = (
    _Kind(VERSION, "the version of torch", "use one version of torch"),
    _Kind(r"gm", "the graph", _SAME_VALUE),
    _Kind(
        r"example_inputs\[(.+)\]",
        "input {} of the graph",
        "give the graph inputs of the same size, dtype, stride and device in every process",
    ),
    _Kind(
        r"inductor_config\w*\[(.+)\]",
        "the setting torch._inductor.config.{}",
        "set it to the same value in every process",
    ),
    _Kind(
        r"system_info\[.+\]",
        "the device, its driver or the system",
        "compile on machines with the same device, driver and system, or keep a cache for each",
    ),
    _Kind(
        r"fx_kwargs\[(boxed_forward_device_index)\]",
        "the index of the device",
        "make one device visible to each process (CUDA_VISIBLE_DEVICES), so that all use index 0",
    ),
    _Kind(r"fx_kwargs\[(.+)\]", "{}, as inductor was called", "call torch.compile the same way"),
    _Kind(
        r"(\w*(?:custom|passes)\w*)(?:\[.*\])?",
        "the custom pass {}",
        "give the pass a uuid() that depends on what it does alone",
    ),
    _Kind(
        r"cpp_runtime_thread_count",
        "the number of threads",
        "set the same OMP_NUM_THREADS or torch.set_num_threads in every process",
    ),
    _Kind(r"default_dtype", "the default dtype", "set the same default dtype in every process"),
    _Kind(r"(.*)", "{}", "make it the same in every process"),
)


def get_digest(component: str) -> str:
    """Get torch's digest of a component's value, the first word of its text."""
    return component.partition(" ")[0]


def find_key_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[KeyChange, ...]:
    """Find the components of two keys that differ, by name in torch's order; empty where torch did
    not record of what one of them is made. Under another version of torch hundreds of settings
    differ too, so that the version is then named alone."""
    if not before or not after:
        return ()
    changed = [
        name
        for name in dict.fromkeys((*before, *after))
        if name not in before
        or name not in after
        or get_digest(before[name]) != get_digest(after[name])
    ]
    if VERSION in changed:
        return (KeyChange(VERSION, None, None),)
    return tuple(KeyChange(name, *_cut_pair(before.get(name), after.get(name))) for name in changed)


def describe_changes(changes: Sequence[KeyChange], most: int = 3) -> str:
    """Describe what differs, as part of a sentence: "the graph and input 0 of the graph"."""
    kinds = (_match_kind(change.name) for change in changes[:most])
    names = [kind.words.format(*matched.groups()) for kind, matched in kinds]
    rest = len(changes) - len(names)
    return " and ".join(names) + (f", and {rest} more" if rest > 0 else "")


def describe_remedy(changes: Sequence[KeyChange]) -> str:
    """Describe what makes both keys the same, for the first component: torch lists the graph before
    what follows from it. Empty without a change."""
    return _match_kind(changes[0].name)[0].change if changes else ""


def _match_kind(name: str) -> tuple[_Kind, re.Match[str]]:
    matches = ((kind, re.fullmatch(kind.pattern, name, re.DOTALL)) for kind in _KINDS)
    return next((kind, matched) for kind, matched in matches if matched is not None)


def _cut_pair(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    left, right = (None if text is None else text.partition(" ")[2] for text in (before, after))
    if left is None or right is None or left == right:
        return left, right
    same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    begin = max(0, (min(len(left), len(right)) if same is None else same) - EXCERPT_CHARS // 2)
    cut = "…" if begin else ""
    return tuple(f"{cut}{text[begin : begin + EXCERPT_CHARS]}" for text in (left, right))  # pyright: ignore[reportReturnType]
