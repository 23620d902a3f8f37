"""`analyze --tlparse`: tlparse's reports of the traces that were read, beside the receipt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from compilediag.readers.inputs import TRACE
from compilediag.receipt.redact import secret_values
from compilediag.receipt.schema.receipt import Artifact
from compilediag.runs.artifacts import artifact_of, report_files
from compilediag.runs.supervised.reports import link_reports
from compilediag.timeline.fold import fold

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.runs.offline.sources import LoadedSources


def with_reports(
    receipt: Receipt, record: LoadedSources, folder: str
) -> tuple[Receipt, tuple[str, ...]]:
    """The receipt with links to the reports, which are made in `folder`, and what is to be said."""
    logs = [source.path for source in record.sources if source.kind == TRACE]
    timeline = fold([journal.events for journal in record.journals])
    linked = link_reports(logs, folder, timeline, secret_values((), os.environ))
    links = [artifact_of(path, folder) for path in report_files(folder)]
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
