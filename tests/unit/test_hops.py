"""A recompile from torch's leaf to the screen: the types that carry it, and no copy beside them."""

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ratchets import similar_records
from sources import Source, project

JOURNAL = "journal"
"""`Recompiled`, which holds the entries, as a line of JSON that is read as the same type."""

HOPS = (
    *("Leaf", "FalseGuard", "EntryDiff", JOURNAL),
    *("Condition", "Cause", "Group", "FindingRecord", "str"),
)
"""Each is made of the one before, or holds it. A type that only adds fields to one of these, such
as `Finding`, is that one: its fields are declared once. `Examined` is the list in which the leaves
of one cache entry wait."""

MOST = 9

PARTS = {"MissedGuard", "PartRecord", "EventCause", "CauseId", "CauseKey", "CadenceCause"}
"""What receipts and baselines keep of a cause, smaller than it on purpose."""


def links(sources: Iterable[Source]) -> set[tuple[str, str]]:
    """Type and type that is made of it in some function, by its annotations and what it calls, or
    that holds it in a field; a type that extends another stands for that one."""
    found: set[tuple[str, str]] = set()
    extends: dict[str, str] = {}
    for node in (node for source in sources for node in source.nodes):
        if isinstance(node, ast.FunctionDef):
            calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
            made = {*_names([node.returns]), *_names(calls)}
            given = {*_names(item.annotation for item in node.args.args)}
            found |= {(one, other) for one in given for other in made}
        elif isinstance(node, ast.ClassDef):
            extends |= dict.fromkeys([node.name], next(_names(node.bases), node.name))
            fields = (item.annotation for item in node.body if isinstance(item, ast.AnnAssign))
            found |= {(held, node.name) for held in _names(fields)}
    return found | {(extends.get(one, one), extends.get(other, other)) for one, other in found}


def _names(expressions: Iterable[ast.expr | None]) -> Iterator[str]:
    nodes = (node for each in expressions if each is not None for node in ast.walk(each))
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def missing(sources: Iterable[Source]) -> list[tuple[str, str]]:
    """The hops that no function makes."""
    found = links(sources)
    carried = [name for name in HOPS if name != JOURNAL]
    return [hop for hop in pairwise(carried) if hop not in found]


def copies(sources: Iterable[Source]) -> set[str]:
    """Records that have most of the fields of one of the types, and are none of its parts."""
    pairs = (pair.split(" ~ ") for pair in similar_records(sources))
    named = ([name.rpartition(".")[2] for name in pair] for pair in pairs)
    return {
        other
        for one, two in named
        for hop, other in ((one, two), (two, one))
        if hop in {*HOPS} and other not in {*HOPS, *PARTS}
    }


def test_hops() -> None:
    """Every hop is there, they are nine at most, and nothing copies what they carry."""
    assert missing(project()) == []
    assert len(HOPS) <= MOST
    assert copies(project()) == {"NamedFinding"}  # what `fix --json` says of one


def test_a_hop_more_is_found() -> None:
    """A type between two others, and a copy beside one."""
    asked = "class EntryDiff: ...\nclass Row: ...\nclass Condition: ...\n"
    direct = Source("a", f"{asked}def read(entry: EntryDiff) -> Condition: ...\n")
    over = Source("a", f"{asked}def row(entry: EntryDiff) -> Row: ...\n")
    hop = ("EntryDiff", "Condition")
    assert (hop in missing([direct]), hop in missing([over])) == (False, True)
    fields = "class {}(Struct):\n    a: int\n    b: int\n    c: int\n    d: int\n"
    assert copies([Source("a", fields.format("Cause") + fields.format("CauseRow"))]) == {"CauseRow"}
