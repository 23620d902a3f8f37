"""Receipts made safe to write: redacted, bounded, finite."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from compilediag.receipt.sanitize import MAX_TEXT, sanitize
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record
from compilediag_harness.redaction.recognise import PLACEHOLDER
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.wire import clip

DATA = Path(__file__).parents[1] / "data"
REDACTED = "<redacted>"
"""Any placeholder, in what `unnumbered` gives."""
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


SECRET_WORD = "swordfish"
LONG = "x y " * MAX_TEXT

CASES: dict[str, tuple[Tree, Tree]] = {
    "a secret, twice": (
        Tree(title=TOKEN, leaves=(Leaf(value=TOKEN), Leaf(value=f"a {TOKEN}"))),
        Tree(title=REDACTED, leaves=(Leaf(value=REDACTED), Leaf(value=f"a {REDACTED}"))),
    ),
    "a secret in a list": (
        Tree(evidence={"a": [1, (TOKEN, [TOKEN, 2.5])], "b": ({"c": TOKEN},)}),
        Tree(evidence={"a": [1, [REDACTED, [REDACTED, 2.5]]], "b": [{"c": REDACTED}]}),
    ),
    "a secret as a name": (
        Tree(evidence={TOKEN: {TOKEN: 1}, "z": 2}),
        Tree(evidence={REDACTED: {REDACTED: 1}, "z": 2}),
    ),
    "a variable's value": (
        Tree(leaves=(Leaf(variable="api_key", value="abc123def"), Leaf(value="xyz987abc"))),
        Tree(leaves=(Leaf(variable="api_key", value=REDACTED), Leaf(value="xyz987abc"))),
    ),
    "a source's value": (
        Tree(evidence={"source": "L['password']", "deep": {"value": "abc123def"}}),
        Tree(evidence={"source": "L['password']", "deep": {"value": REDACTED}}),
    ),
    "a quoted value": (
        Tree(leaves=(Leaf(variable="token", value="x == 'secret words'"),)),
        Tree(leaves=(Leaf(variable="token", value=f"x == '{REDACTED}'"),)),
    ),
    "a known value": (
        Tree(title="the swordfish is known", evidence={"k": [SECRET_WORD]}),
        Tree(title=f"the {REDACTED} is known", evidence={"k": [REDACTED]}),
    ),
    "odd text": (
        Tree(title="a\ud800b", evidence={"\udfff": "\ud801", "c": ["\ud800"]}),
        Tree(title="a?b", evidence={"?": "?", "c": ["?"]}),
    ),
    "long text": (
        Tree(title=LONG, leaves=(Leaf(compile_id=LONG),)),
        Tree(title=clip(LONG, MAX_TEXT), leaves=(Leaf(compile_id=clip(LONG, MAX_TEXT)),)),
    ),
    "numbers as names": (
        Tree(evidence={"a": {1: "x", 2: TOKEN}}),
        Tree(evidence={"a": {"1": "x", "2": REDACTED}}),
    ),
    "another mapping": (
        Tree(evidence={"a": MappingProxyType({"b": TOKEN})}),
        Tree(evidence={"a": {"b": REDACTED}}),
    ),
    "an integer of a field for seconds": (Tree(seconds=1), Tree(seconds=1.0)),
}


def unnumbered(tree: Any) -> Any:
    """A record in which every placeholder is the same."""
    text = PLACEHOLDER.sub(REDACTED, msgspec.json.encode(tree).decode())
    return msgspec.json.decode(text, type=type(tree))


@pytest.mark.parametrize(("tree", "expected"), CASES.values(), ids=CASES)
def test_records_are_sanitized(tree: Tree, expected: Tree) -> None:
    """Secrets are replaced, texts bounded, everything else stays; the given record is the same."""
    before = repr(tree)
    found, finite = sanitize(tree, Redactor([SECRET_WORD]))
    assert finite
    assert unnumbered(found) == expected
    assert repr(tree) == before


def test_numbers_that_are_not_finite() -> None:
    """They become None, and the caller learns of them."""
    tree = Tree(seconds=math.nan, evidence={"a": [math.inf, 1.0], "b": -math.inf})
    assert sanitize(tree, Redactor()) == (Tree(evidence={"a": [None, 1.0], "b": None}), False)


def test_json_values_are_walked_like_records() -> None:
    """Arguments of trace events are no records."""
    found = sanitize({"a": [TOKEN, math.nan], "variable": "token", "value": "abc123"}, Redactor())
    assert unnumbered(found[0]) == {"a": [REDACTED, None], "variable": "token", "value": REDACTED}
    assert not found[1]


def test_a_value_of_another_type_is_refused() -> None:
    """A builder that puts text where a number belongs is found before the receipt is written."""
    with pytest.raises(msgspec.ValidationError):
        sanitize(Tree(seconds="1"), Redactor())


def test_every_text_of_a_receipt_is_walked_through() -> None:
    """The types of a receipt leave out no field that may hold a secret."""
    plain = json.loads((DATA / "receipt-example.json").read_bytes())
    assert sum(_hide(plain, node, name) for node, name in list(_texts(plain))) > 100
    found, _ = sanitize(msgspec.convert(plain, Receipt), Redactor())
    assert TOKEN not in msgspec.json.encode(found).decode()


def _texts(node: Any) -> Iterator[tuple[Any, Any]]:
    """Where the texts of a tree are."""
    names: Any = node if isinstance(node, dict) else range(len(node))
    for name in names:
        item: Any = node[name]
        if isinstance(item, str):
            yield node, name
        elif isinstance(item, (dict, list, tuple)):
            yield from _texts(item)


def _hide(plain: Any, node: Any, name: Any) -> bool:
    """Puts a secret in the place of a text, unless the type lists the words it may be."""
    before, node[name] = node[name], TOKEN
    try:
        msgspec.convert(plain, Receipt)
    except msgspec.ValidationError:
        node[name] = before
    return node[name] is TOKEN


def test_a_name_of_ours_is_no_secret() -> None:
    """A password that is called like a field does not take the field away."""
    found, _ = sanitize(Tree(title="the seconds"), Redactor(["seconds"]))
    assert unnumbered(found).title == f"the {REDACTED}"


def test_digests_of_files_with_names_like_secrets_stay() -> None:
    """A digest that is replaced makes a receipt one of other code."""
    digests = {"token_rules.py": "ab" * 32, "auth/password.py": "cd" * 32}
    provenance, _ = sanitize(Provenance(source_sha256=digests), Redactor())
    assert provenance.source_sha256 == digests
