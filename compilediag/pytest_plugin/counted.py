"""What a run or a stretch of it compiled, as lists behind the counts of a receipt. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.ownership import ownership_of
from compilediag.receipt.build.running import cudagraph_section
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Recompile, Timeline


@dataclass(frozen=True, slots=True)
class Counted:
    """Every count with what it counts, by the definitions of docs/receipt.md."""

    recompiles: tuple[Recompile, ...]
    graph_breaks: tuple[BreakSite, ...]
    frames: tuple[Frame, ...]
    compiles: tuple[Compile, ...]
    eager_fallbacks: tuple[Frame, ...]
    recordings: int | None
    """Of CUDA graphs; None where they were not measured."""
    given_up: tuple[Recompile, ...]
    """Times torch wanted to compile again and did not end with code, the attempt that hits the
    recompile limit included: no recompiles by count, and worse than one."""

    def number(self, name: str) -> int | None:
        """One count by its name; None where it was not measured."""
        if name == "recordings":
            return self.recordings
        return len(getattr(self, name))


def counted(timeline: Timeline, causes: RunCauses, *, own_code_only: bool = False) -> Counted:
    """The lists behind the counts. `own_code_only` leaves out what lies in libraries and torch: a
    recompile counts as own when the line to blame or the compiled frame is the user's."""

    def own(file: str) -> bool:
        return not own_code_only or ownership_of(file, timeline.user_roots) == "user"

    def own_recompile(item: Recompile) -> bool:
        found = causes.blamed(item)
        return own(item.frame.file) or any(own(each.place.file) for each in found)

    frames = tuple(frame for frame in timeline.frames if own(frame.where.file))
    asked = [item for item in timeline.recompiles if own_recompile(item)]
    return Counted(
        recompiles=tuple(item for item in asked if item.produced),
        graph_breaks=tuple(site for site in timeline.breaks if own(site.file)),
        frames=frames,
        compiles=tuple(
            item
            for item in timeline.compiles
            if item.forward and item.guarded and own(item.frame.file)
        ),
        eager_fallbacks=tuple(frame for frame in frames if frame.ran_eager),
        recordings=_recordings(timeline),
        given_up=tuple(item for item in asked if not item.produced),
    )


def _recordings(timeline: Timeline) -> int | None:
    """Without a CUDA device there is nothing to record into: that is known to be none."""
    section = cudagraph_section(timeline)
    return 0 if section.applicable is False else section.recordings
