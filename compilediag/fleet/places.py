"""Receipts wherever they are: a folder of this machine, a table, or a URI."""

from __future__ import annotations

import os

from compilediag.fleet.entry import Problem
from compilediag.fleet.folder import Fleet, Progress, Wanted, every, fleet_of, gathered
from compilediag.fleet.remote import read_remote
from compilediag.readers.storage import is_uri

TABLE_SUFFIX = ".parquet"


def fleet_at(
    location: str, wanted: Wanted = every, progress: Progress = lambda done, total: None
) -> Fleet:
    """The receipts at a place, those that are wanted.

    Raises:
        UsageError: there is no such place, or what it needs is not installed.
        ReceiptUnreadable: a table is none of ours.
    """
    if location.endswith(TABLE_SUFFIX) and not os.path.isdir(location):
        from compilediag.fleet.table import read_table

        found = read_table(location)
        kept = [entry for entry in found if wanted(entry.lane.name, entry.created_s)]
        return gathered(location, kept)
    if is_uri(location):
        items = list(read_remote(location))
        asked = (
            item
            for item in items
            if isinstance(item, Problem) or wanted(item.lane.name, item.created_s)
        )
        return gathered(location, list(asked), files_read=len(items))
    return fleet_of(location, wanted, progress)
