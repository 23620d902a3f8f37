"""A folder of the traces of four ranks, and every receipt that is made of one, as bytes."""

import gzip
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec

from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.receipts import merged_receipt, rank_receipts
from compilediag.runs.offline.sources import read_record

TRACES = Path(__file__).parents[1] / "data" / "traces"


def folder_of_ranks(folder: Path, *, every: bool = False) -> Path:
    """Four ranks, of which three do the same and one recompiles; rank 2 is missing, unless `every`
    rank is asked for."""
    folder.mkdir(exist_ok=True)
    recorded = sorted((TRACES / "ranks").glob("*.gz"))
    for rank in (0, 1, 2, 3, 4) if every else (0, 1, 3, 4):
        raw = gzip.decompress(recorded[rank == 1].read_bytes())
        raw = raw.replace(b'"rank": %d' % (rank == 1), b'"rank": %d' % rank)
        name = f"dedicated_log_torch_trace_rank_{rank}_x.log"
        (folder / name).write_bytes(raw)
    return folder


def told(receipt: Receipt) -> bytes:
    """The bytes of a receipt, without its id and the time at which it was made."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(receipt))
    assert plain.pop("receipt_id")
    assert plain["header"].pop("created_at_utc")
    return msgspec.json.encode(plain)


def receipts(folder: Path, executor: Executor | None) -> dict[object, bytes]:
    """Everything that `analyze` writes, by rank."""
    record = read_record([str(folder)], executor)
    found: dict[object, bytes] = {"all": told(merged_receipt(record, "lane", None))}
    found |= {rank: told(made) for rank, made in rank_receipts(record, "lane", executor)}
    return found


def expected(folder: Path) -> dict[object, bytes]:
    """The receipts of one process, with the links that a folder for them gives."""
    record = read_record([str(folder)])
    merged = merged_receipt(record, "lane", None, str(folder.parent / "out"))
    return {**receipts(folder, None), "all": told(merged)}
