"""The sizes of a callable's tensors that change from call to call, and how often each occurred.

Sizes that are equal in every call are one: the rows of a batch and of its mask. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from compilediag.receipt.schema.invocations import VaryingSizesRecord

_TENSOR = re.compile(r"(?:(?P<path>[^\[\]]+)=)?\[(?P<sizes>[^\[\]]*)\](?:, |$)")
"""One tensor of a call, as the harness writes it: "[8, 16]" by position, "mask=[8]" by name."""

Tensor = tuple[str, tuple[int, ...]]


def varying_sizes(
    shapes: Iterable[tuple[str | None, int]], names: Sequence[str] = ()
) -> VaryingSizesRecord | None:
    """The changing sizes of one callable; None where none changes, or none is known.

    Args:
        shapes: the shapes of calls as the harness writes them, with how often.
        names: the tensors by argument, where that is known.
    """
    calls: dict[tuple[Tensor, ...], int] = {}
    other_calls = 0
    for text, count in shapes:
        tensors = None if text is None else _tensors(text)
        if tensors is None:
            other_calls += count
        else:
            calls[tensors] = calls.get(tensors, 0) + count
    kept = _most_frequent_kind(calls)
    other_calls += sum(calls.values()) - sum(kept.values())
    return _varying(kept, names, other_calls)


def _tensors(text: str) -> tuple[Tensor, ...] | None:
    """None where a shape has no plain sizes: symbolic, nested, of a subclass, or cut off."""
    found: list[Tensor] = []
    end = 0
    while end < len(text):
        match = _TENSOR.match(text, end)
        if match is None:
            return None
        sizes = match["sizes"].split(", ") if match["sizes"] else []
        if not all(size.isdecimal() for size in sizes):
            return None
        found.append((match["path"] or "", tuple(int(size) for size in sizes)))
        end = match.end()
    return tuple(found)


def _most_frequent_kind(
    calls: Mapping[tuple[Tensor, ...], int],
) -> dict[tuple[Tensor, ...], int]:
    """Only calls that have the same tensors, in number, name and rank, can be compared."""
    kinds: dict[tuple[tuple[str, int], ...], dict[tuple[Tensor, ...], int]] = {}
    for tensors, count in calls.items():
        kind = tuple((path, len(sizes)) for path, sizes in tensors)
        kinds.setdefault(kind, {})[tensors] = count
    return max(
        kinds.values(), key=lambda kind: sum(kind.values()), default=dict[tuple[Tensor, ...], int]()
    )


def _varying(
    calls: Mapping[tuple[Tensor, ...], int], names: Sequence[str], other_calls: int
) -> VaryingSizesRecord | None:
    if len(calls) < 2:
        return None
    columns: dict[tuple[int, ...], list[str]] = {}
    first = next(iter(calls))
    for index, label in enumerate(_labels(first, names)):
        for dim in range(len(first[index][1])):
            column = tuple(tensors[index][1][dim] for tensors in calls)
            if len(set(column)) > 1:
                columns.setdefault(column, []).append(f"{label}:{dim}")
    counts: dict[tuple[int, ...], int] = {}
    for sizes, count in zip(zip(*columns, strict=True), calls.values(), strict=True):
        counts[sizes] = counts.get(sizes, 0) + count
    ordered = sorted(counts)
    return VaryingSizesRecord(
        dims=tuple(tuple(places) for places in columns.values()),
        sizes=tuple(ordered),
        counts=tuple(counts[sizes] for sizes in ordered),
        other_calls=other_calls,
    )


def _labels(tensors: Sequence[Tensor], names: Sequence[str]) -> list[str]:
    """By argument where that is known, else the name it was given by, else its index."""
    if len(names) == len(tensors) == len(set(names)):
        return list(names)
    return [path or str(index) for index, (path, _) in enumerate(tensors)]
