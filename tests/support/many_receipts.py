"""Folders of receipts for the tests of `stats` and `trend`: all made from the golden one, valid."""

import copy
import functools
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from compilediag.extensions.fleet.entry import Entry
from compilediag.extensions.fleet.scan import read_content
from compilediag.receipt.file import encode_receipt
from compilediag.receipt.schema.receipt import Receipt

GOLDEN = Path(__file__).parents[1] / "data" / "receipt-1.0.json"

FIRST_S = 1_760_000_000
"""Time of the first receipt; one an hour follows."""

Change = Callable[[dict[str, Any]], Any]


def plain(number: int, change: Change = lambda raw: None) -> dict[str, Any]:
    """Receipt `number` of a series as JSON, changed and checked by the schema: every five receipts
    another commit."""
    raw = copy.deepcopy(_golden())
    raw["receipt_id"] = f"01JD3Q{number:020d}"
    moment = time.gmtime(FIRST_S + 3600 * number)
    raw["header"]["created_at_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    raw["header"]["provenance"]["git_commit"] = commit(number)
    change(raw)
    _list_what_is_counted(raw["compile"])
    msgspec.convert(raw, Receipt)
    return raw


def _list_what_is_counted(part: dict[str, Any]) -> None:
    """As many compiles, breaks and frames as the counts say: a receipt must not contradict
    itself."""
    events, frames, breaks = part["events"], part["frames_detail"], part["breaks"]
    again = [item for item in events if item["kind"] == "recompile"]
    first = [item for item in events if item["kind"] == "first"]
    part["events"] = [*first, *_repeated(again or first, part["recompiles"], kind="recompile")]
    part["compiles"] = len(part["events"])
    part["graphs"] = sum(bool(item["graph_ops"]) for item in part["events"])
    part["breaks"] = [
        {**item, "line": number}
        for number, item in enumerate(_repeated(breaks, part["graph_breaks"]), 1)
    ]
    part["frames"] = max(part["frames"], part["eager_fallbacks"], part["recompile_limit_hits"])
    part["frames_detail"] = [
        {**item, "ran_eager": number < part["eager_fallbacks"]}
        for number, item in enumerate(_repeated(frames, part["frames"]))
    ]


def _repeated(items: list[Any], count: int, **more: Any) -> list[Any]:
    return [{**items[index % len(items)], **more} for index in range(count)]


def content(number: int, change: Change = lambda raw: None) -> bytes:
    """The same as the bytes of a file."""
    return encode_receipt(msgspec.convert(plain(number, change), Receipt))


def entry(number: int, change: Change = lambda raw: None) -> Entry:
    """The same as it is kept among many."""
    name = f"r{number:05d}.json"
    found = read_content(content(number, change), name, name)
    assert isinstance(found, Entry)
    return found


def commit(number: int) -> str:
    """The commit of receipt `number`."""
    return hashlib.sha1(b"%d" % (number // 5)).hexdigest()


def written(folder: Path, numbers: range, change: Callable[[int], Change]) -> Path:
    """A folder with a file a receipt; `change` gives what is special about each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"r{number:05d}.json").write_bytes(content(number, change(number)))
    return folder


def measured(**values: Any) -> Change:
    """Sets fields that trends follow: by their path with "__" between its parts."""

    def change(raw: dict[str, Any]) -> None:
        for path, value in values.items():
            *parents, last = path.split("__")
            place: Any = raw
            for parent in parents:
                place = place[parent]
            place[last] = value

    return change


def told(found: Mapping[str, Any], *path: str | int) -> Any:
    """What a JSON answer holds at a path."""
    value: Any = found
    for part in path:
        value = value[part]
    return value


@functools.cache
def _golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))
