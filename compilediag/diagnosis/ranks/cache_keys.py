"""Of what the keys of a rank's compile caches are made, in lines that can be compared.

A rank finds only what was compiled under its own keys, so ranks whose keys differ share no entry.
The index of the device is part of the keys and differs by design: it is left out, and so is the
digest of a graph that may hold it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from compilediag.diagnosis.figures.key_difference import component_in_words
from compilediag.timeline.caches import ProcessCaches
from compilediag_harness.wire import AOT_AUTOGRAD, FX_GRAPH, CacheLookedUp, Component, digest_of

GRAPH = "gm"
"""torch's name of the graph among the components of a key."""

_BY_DEVICE = re.compile(r"fx_kwargs\[boxed_forward_device_index\]")
_INDEX = re.compile(r"(index=|\b(?:cuda|xpu|hpu|mtia):)\d+")


def key_parts(
    caches: Iterable[ProcessCaches], names: Mapping[tuple[str, int], str], most: int
) -> tuple[str, ...]:
    """Lines as `0/0 forward: input 0 of the graph = torch.float32, … (3f9ab2c1)`, sorted: each
    component of each key, and each setting of the compiler once. Equal lines are equal values.

    Args:
        caches: of the processes of one rank; of a torch or a cache that does not record of what a
            key is made there are no lines.
        names: of compiles, by compile id and epoch.
        most: lines returned at the most.
    """
    lines: set[str] = set()
    for part in caches:
        for components in (part.settings or {}).values():
            lines.update(_line("settings", item) for item in components)
        met: Counter[str] = Counter()
        for lookup in part.lookups:
            if lookup.cache in (FX_GRAPH, AOT_AUTOGRAD) and lookup.compile_id:
                at = names.get((lookup.compile_id, lookup.epoch), lookup.compile_id)
                at += "" if lookup.cache == FX_GRAPH else ", AOTAutograd"
                met[at] += 1
                lines.update(_lines(at if met[at] == 1 else f"{at}, graph {met[at]}", lookup))
    return tuple(sorted(lines)[:most])


def key_differences(lines: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Lines of only one of two ranks. A lookup that only one of them made or described is no
    difference of keys."""
    found: list[list[str]] = []
    for here, there in ((lines, usual), (usual, lines)):
        described, equal = {_lookup(line) for line in there}, set(there)
        found.append([each for each in here if each not in equal and _lookup(each) in described])
    return found[0], found[1]


def _lookup(line: str) -> str:
    return line.partition(": ")[0]


def _lines(at: str, lookup: CacheLookedUp) -> Iterable[str]:
    has_index = any(_INDEX.search(value) for _, value in lookup.components)
    for item in lookup.components:
        name = item[0]
        if not _BY_DEVICE.fullmatch(name) and not (has_index and name == GRAPH):
            yield _line(at, item)


def _line(at: str, component: Component) -> str:
    """The digest of a value that holds the index of a device is that of one rank: the text stands
    for it, as far as it goes."""
    name, value = component
    digest, text = digest_of(value), value.partition(" ")[2]
    on_any = _INDEX.sub(r"\1N", text)
    end = f"({digest})" if on_any == text else "(on the device of the rank)"
    return f"{at}: {component_in_words(name)} = {on_any} {end}"
