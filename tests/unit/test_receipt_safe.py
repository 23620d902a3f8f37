"""Receipts made safe in one walk: the same as redaction, and bounds, one after the other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from compilediag.receipt import sanitize
from compilediag.receipt.redact import REDACTED, Redactor
from compilediag.receipt.sanitize import ALIKE, MOST_STAYING, TEXT_KEPT, safe_tree
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import UNKNOWN_FIELD, Record, as_plain, from_plain, to_json
from compilediag_harness.wire import clip

DATA = Path(__file__).parents[1] / "data"
TOKEN = "hf_ABCDEFGHIJ0123456789"


class Leaf(Record, frozen=True):
    """What a finding has."""

    variable: str | None = None
    source: str | None = None
    value: Any = None
    compile_id: str = "0/1"
    file: str = "a.py"


class Tree(Record, frozen=True):
    """What a receipt has."""

    title: str = ""
    leaves: tuple[Leaf, ...] = ()
    evidence: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    seconds: float | None = None


def reference(value: Any) -> Any:
    """Values that any JSON reader takes, told the long way."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return clip(value.encode("utf-8", "replace").decode(), TEXT_KEPT)
    if isinstance(value, dict):
        return {reference(key): reference(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [reference(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


TREES = {
    "nothing to do": Tree(title="x", leaves=(Leaf(value=1), Leaf(value="a")), seconds=1.5),
    "a secret, twice": Tree(title=TOKEN, leaves=(Leaf(value=TOKEN), Leaf(value=f"a {TOKEN}"))),
    "a secret in a list": Tree(evidence={"a": [1, (TOKEN, [TOKEN, 2.5])], "b": ({"c": TOKEN},)}),
    "a secret as a name": Tree(evidence={TOKEN: {TOKEN: 1}, "z": 2}),
    "a variable's value": Tree(leaves=(Leaf(variable="api_key", value="abc123def"), Leaf())),
    "a source's value": Tree(evidence={"source": "L['password']", "deep": {"value": "abc123def"}}),
    "a quoted value": Tree(leaves=(Leaf(variable="token", value="x == 'secret words'"),)),
    "an id of ours": Tree(leaves=(Leaf(compile_id=TOKEN),), evidence={"sha256": [TOKEN]}),
    "a path": Tree(leaves=(Leaf(file="q7Zt2Lk9Vb4Xn6Rm1Pw8Ys3Dc5Fg0Hj"),)),
    "no random path": Tree(title="q7Zt2Lk9Vb4Xn6Rm1Pw8Ys3Dc5Fg0Hj"),
    "a known value": Tree(title="the swordfish is known", evidence={"k": ["swordfish"]}),
    "numbers": Tree(seconds=float("nan"), evidence={"a": [float("inf"), 1.0], "b": -math.inf}),
    "odd text": Tree(title="a\ud800b", evidence={"\udfff": "\ud801", "c": ["\ud800"]}),
    "long text": Tree(title="x y " * TEXT_KEPT, leaves=(Leaf(compile_id="z " * TEXT_KEPT),)),
    "numbers as names": Tree(evidence={"a": {1: "x", 2: TOKEN}}),
    "unknown": Tree(unknown={"later": TOKEN, TOKEN: [1.5]}, leaves=(Leaf(unknown={"x": [1]}),)),
    "another mapping": Tree(evidence={"a": MappingProxyType({"b": TOKEN})}),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_one_walk_is_the_same_as_two(tree: Tree) -> None:
    """The tree, its counts, and whether all was finite."""
    apart, together = Redactor(["swordfish"]), Redactor(["swordfish"])
    before = apart.tree(as_plain(tree))
    raw, finite = safe_tree(tree, together)
    assert raw == reference(before)
    assert finite == _finite(before)
    assert together.counts == apart.counts


class Forest(Record, frozen=True):
    """What has parts that have long lists."""

    first: Tree | None = None
    second: Tree | None = None
    name: str = ""


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_long_lists_are_mended_record_by_record(
    monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    """The same record comes out, with the same counts, in whichever way its lists are walked."""
    many = msgspec.structs.replace(tree, leaves=(*tree.leaves, Leaf(value=TOKEN), Leaf()) * 3)
    forest = Forest(second=many, name=TOKEN)
    apart, together = Redactor(["swordfish"]), Redactor(["swordfish"])
    expected, finite = safe_tree(forest, together)
    assert not any(isinstance(item, Record) for item in expected["second"]["leaves"])
    monkeypatch.setattr(sanitize, "ITEMS_TOGETHER", 2)
    raw, finite_too = safe_tree(forest, apart)
    assert all(isinstance(item, Record) for item in raw["second"]["leaves"])
    assert from_plain(Forest, raw) == from_plain(Forest, expected)
    assert (finite, apart.counts) == (finite_too, together.counts)


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return all(_finite(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return not isinstance(value, float) or math.isfinite(value)


def test_every_text_of_a_receipt_is_walked_through() -> None:
    """The types of a receipt leave out no field that may hold a secret."""
    plain = json.loads((DATA / "receipt-example.json").read_bytes())
    hidden = sum(_hide(plain, node, name) for node, name in list(_texts(plain)))
    assert hidden > 100
    receipt = from_plain(Receipt, plain)
    apart, together = Redactor(), Redactor()
    assert safe_tree(receipt, together)[0] == reference(apart.tree(as_plain(receipt)))
    assert together.counts == apart.counts


def _texts(node: Any) -> Iterator[tuple[Any, Any]]:
    """Where the texts of a tree are."""
    names: Any = node if isinstance(node, dict) else range(len(node))
    for name in names:
        item: Any = node[name]
        if isinstance(item, str):
            yield node, name
        elif isinstance(item, (dict, list)):
            yield from _texts(item)


def _hide(plain: Any, node: Any, name: Any) -> bool:
    """Puts a secret in the place of a text, unless the type lists the words it may be."""
    before, node[name] = node[name], TOKEN
    try:
        from_plain(Receipt, plain)
    except msgspec.ValidationError:
        node[name] = before
    return node[name] is TOKEN


def test_what_stayed_before_is_replaced_once_it_is_known() -> None:
    """What is remembered from receipt to receipt does not hide a value that one run knows."""
    tree = Tree(title="the swordfish is known", evidence={"swordfish": "swordfish"})
    assert safe_tree(tree, Redactor())[0] == as_plain(tree)
    raw, _ = safe_tree(tree, Redactor(["swordfish"]))
    assert raw["title"] == f"the {REDACTED} is known"
    assert raw["evidence"] == {REDACTED: REDACTED}
    assert safe_tree(tree, Redactor())[0] == as_plain(tree)


def test_what_is_remembered_is_bounded() -> None:
    """A receipt of many texts leaves none behind, and long texts are of one walk only."""
    safe_tree(Tree(evidence={"a": [f"text {n}" for n in range(MOST_STAYING + 1)]}), Redactor())
    assert (ALIKE.texts, ALIKE.places) == (set(), set())
    safe_tree(Tree(title="word " * 200, evidence={"a": "text"}), Redactor())
    assert (ALIKE.texts, ALIKE.places) == ({"text"}, {"a"})


def test_what_was_given_is_left_alone() -> None:
    """The walk changes a tree of its own."""
    given = Tree(title=TOKEN, evidence={"a": [TOKEN, {"b": float("nan")}]})
    raw, _ = safe_tree(given, Redactor())
    assert raw["evidence"]["a"][0] == REDACTED
    assert given.evidence["a"][0] == TOKEN
    assert math.isnan(given.evidence["a"][1]["b"])


def test_a_name_of_ours_is_no_secret() -> None:
    """A password that is called like a field does not take the field away."""
    raw, _ = safe_tree(Tree(title="the seconds"), Redactor(["seconds"]))
    assert set(raw) == {"title", "leaves", "evidence", "seconds"}
    assert raw["title"] == f"the {REDACTED}"


WRITTEN = {
    **TREES,
    "our key in a text": Tree(title=f'{{"{UNKNOWN_FIELD}":{{}},'),
}


@pytest.mark.parametrize("tree", WRITTEN.values(), ids=WRITTEN)
def test_json_without_a_detour_is_the_same(tree: Tree) -> None:
    """`to_json` gives what `as_plain` holds; what no JSON can hold is refused by both."""
    try:
        told = msgspec.json.encode(as_plain(tree))
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            to_json(tree)
    else:
        assert to_json(tree) == told
