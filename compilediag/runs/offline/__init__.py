"""Records of runs from anywhere made into receipts: traces, text logs, run directories, and the
output of trainers. The way is that of a live run; docs/reference/analyze.md shows its use.
"""

from __future__ import annotations

from compilediag.runs.offline.receipts import (
    find_sources,
    merged_receipt,
    rank_receipts,
    read_record,
    read_sources,
)

__all__ = ["find_sources", "merged_receipt", "rank_receipts", "read_record", "read_sources"]
