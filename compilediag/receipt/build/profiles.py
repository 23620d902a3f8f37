"""The profiles of a receipt."""

from __future__ import annotations

from compilediag.receipt.schema.profiles import Profile
from compilediag.timeline.timeline import Timeline

FOLDER = "artifacts"


def profiles_section(timeline: Timeline) -> tuple[Profile, ...]:
    """Every window of every process, in the order they ended. A file's name never leads out of the
    folder."""
    return tuple(
        Profile(
            first_step=item.first_step,
            last_step=item.last_step,
            uri=f"{FOLDER}/{item.file}" if item.file and "/" not in item.file else None,
            problem=item.problem,
        )
        for item in timeline.profiles
    )
