"""`analyze --tlparse`: tlparse's reports of the traces that were read, beside the receipt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from compilediag.fold import fold
from compilediag.readers.inputs import TRACE
from compilediag.receipt.schema import Artifact
from compilediag.redact import secret_values
from compilediag.supervisor.assemble import artifact_of
from compilediag.supervisor.reports import link_reports, linked_files

if TYPE_CHECKING:
    from compilediag.receipt.schema import Receipt
    from compilediag.records import Record


def with_reports(receipt: Receipt, record: Record, folder: str) -> tuple[Receipt, tuple[str, ...]]:
    """The receipt with links to the reports, which are made in `folder`, and what is to be said."""
    logs = [source.path for source in record.sources if source.kind == TRACE]
    timeline = fold([journal.events for journal in record.journals])
    linked = link_reports(logs, folder, timeline, secret_values((), os.environ))
    links = [artifact_of(path, folder) for path in linked_files(folder)]
    added = msgspec.structs.replace(
        receipt,
        artifacts=(
            *receipt.artifacts,
            *(
                Artifact(
                    role=item.role,
                    uri=item.uri,
                    media_type=item.media_type,
                    bytes=item.bytes,
                    sha256=item.sha256,
                )
                for item in links
            ),
        ),
        extensions={**receipt.extensions, **linked.extensions},
    )
    return added, linked.notes
