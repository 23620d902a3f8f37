"""CD150–CD152: what will recompile next, how near the limit is, and what is past it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.causes.recompile import causes_of
from compilediag.diagnosis.codes import SIZES, info
from compilediag.diagnosis.findings import Cause, Finding, Rule
from compilediag.rules.analysis import Analysis, analysis_rule
from compilediag.rules.make_finding import make_finding, pick
from compilediag.rules.modes import find_autograd_recaptures
from compilediag.rules.sizes.constraints import find_violated_constraints
from compilediag.timeline.compiles import Compile, FrameId, Recompile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EntryDiff, HazardsChecked, Location

NEAR_LIMIT = 0.75
"""Share of the recompile limit from which a frame is close to it."""

DEFAULT_LIMIT = 8
"""`torch._dynamo.config.recompile_limit` of every torch from 2.7 to 2.15."""

_ACCUMULATED_LIMIT = 256
"""`accumulated_recompile_limit`, which holds whatever the other limit is."""

_ENOUGH = (
    "torch._dynamo.config.recompile_limit = {} is enough for the values seen so far, at a compile "
    "each; where other values come, it only moves the limit"
)
_NUMBER = re.compile(r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?")


def find_armed_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD150: guards that were false at the last look. A recompile after the look has used them up,
    and a frame over its limit recompiles no more."""
    last = {(look.process, look.frame): look for look in timeline.hazards}
    for look in last.values():
        if look.skipped is not None or not look.guards or _is_stale(look, timeline):
            continue
        for cause in causes_of(_coming(look)):
            yield _armed(timeline, look, cause)


def _coming(look: HazardsChecked) -> Recompile:
    """The recompile that the guards of the look would cause: their consequences fall away and
    several checks of one variable are one cause, as for a recompile that happened."""
    entry = EntryDiff("", look.guards, look.checked, look.unevaluated)
    return Recompile(
        *(0.0, look.step, "", 0, look.frame, (), (entry,), 0.0),
        process=look.process,
        seconds=0.0,
        produced=False,
    )


def _is_stale(look: HazardsChecked, timeline: Timeline) -> bool:
    """The frame compiled in a later step, or it will never compile again."""
    return any(
        item.process == look.process
        and _of_frame(item) == look.frame
        and (item.kind == "limit" or item.step > look.step)
        for item in timeline.compiles
    )


def _of_frame(item: Compile) -> Location:
    """The row of the compile at the limit names no code; the question before it does."""
    return item.recompile.frame if item.recompile is not None else item.frame


def _armed(timeline: Timeline, look: HazardsChecked, cause: Cause) -> Finding:
    frame, register = look.frame, info(cause.rule)
    found = make_finding(
        timeline,
        "CD150",
        f"armed: the next call of {frame.function} recompiles",
        f"remove the cause ({cause.rule}, {register.slug}) before it fires",
        caveat="a flag that is set back before the next call disarms the guard",
        location=cause.location or frame,
        variable=cause.variable or None,
        severity="warning",
        confidence=cause.confidence,
        steps=(look.step,),
        evidence={
            "cause": cause.rule,
            **pick(cause, "kind", "guard", "source", "expected", "actual"),
            "frame": f"{frame.function} ({frame.file}:{frame.line})",
            **pick(look, "checked", "unevaluated"),
        },
        entered=next((item for item in timeline.frames if item.where == frame), None),
    )
    # It belongs to the family of its cause, and is fixed as that is.
    return replace(found, family=cause.family, fix=replace(found.fix, how=register.how))


@analysis_rule
def find_variant_forecasts(analysis: Analysis) -> Iterable[Finding]:
    """CD151: frames near `recompile_limit`, or whose flags combine to more variants than it."""
    timeline = analysis.timeline
    by_frame = _recompiles_by_frame(timeline)
    for frame in timeline.frames:
        recompiles = [item for item in by_frame.get(frame.key, ()) if item.produced]
        if frame.limit_hit_step is not None or not recompiles:
            continue
        limit = frame.limit or DEFAULT_LIMIT
        # Regions of `isolate_recompiles` share the ids of a frame but not its limit: only
        # compiles that a failed guard caused fill one cache.
        used = min(frame.compiles, 1 + len(recompiles))
        near = used >= math.ceil(NEAR_LIMIT * limit)
        values = values_seen(recompiles, analysis.causes)
        combinations = math.prod(len(seen) for seen in values.values())
        if not near and combinations <= limit:
            continue
        title = f"{used} of {limit} variants of {frame.where.function} used"
        if combinations > limit:
            title += f"; {combinations} combinations of {', '.join(sorted(values))} are possible"
        yield make_finding(
            timeline,
            "CD151",
            title,
            "remove the causes of its recompiles: at the limit the frame runs eager",
            caveat=_ENOUGH.format(combinations)
            if limit < combinations <= _ACCUMULATED_LIMIT
            else "raising torch._dynamo.config.recompile_limit only moves the limit",
            location=frame.where,
            severity="warning" if near else "info",
            evidence={
                "variants": used,
                "limit": limit,
                "combinations": combinations if values else None,
                "values_seen": {name: sorted(found) for name, found in sorted(values.items())},
            },
        )


def _recompiles_by_frame(timeline: Timeline) -> Mapping[FrameId, list[Recompile]]:
    found: dict[FrameId, list[Recompile]] = {}
    for item in timeline.compiles:
        if item.recompile is not None:
            found.setdefault(item.key, []).append(item.recompile)
    return found


def values_seen(recompiles: Sequence[Recompile], causes: RunCauses) -> dict[str, set[str]]:
    """Distinct values of each variable whose values torch never generalises: sizes and numbers
    as arguments become dynamic, so their values do not multiply."""
    seen: dict[str, set[str]] = {}
    for item in recompiles:
        for cause in causes.of(item):
            known = {value for value in (cause.expected, cause.actual) if value is not None}
            generalised = cause.rule in SIZES or _are_numbers(cause, known)
            if not cause.variable or cause.parts or generalised:
                continue
            seen.setdefault(cause.variable, set()).update(known)
    return {variable: values for variable, values in seen.items() if len(values) > 1}


def _are_numbers(cause: Cause, values: set[str]) -> bool:
    return cause.rule == "CD107" and all(_NUMBER.fullmatch(value) for value in values)


@analysis_rule
def find_limit_hits(analysis: Analysis) -> Iterable[Finding]:
    """CD152: frames that run eager since the step in which they needed one variant too many."""
    timeline, causes = analysis.timeline, analysis.causes
    by_frame = _recompiles_by_frame(timeline)
    for frame in timeline.frames:
        if frame.limit_hit_step is None:
            continue
        recompiles = by_frame.get(frame.key, [])
        location = recompiles[-1].frame if recompiles else frame.where
        codes = tuple(dict.fromkeys(c.rule for r in recompiles for c in causes.of(r) if c.primary))
        named = ", ".join(f"{code} {info(code).slug}" for code in codes)
        limit = frame.limit or DEFAULT_LIMIT
        after = "raises (fullgraph=True)" if frame.raised_at_limit else "eager"
        yield make_finding(
            timeline,
            "CD152",
            f"{location.function} hit the recompile limit ({limit}): {after} since "
            + (f"step {frame.limit_hit_step}" if timeline.observes("steps") else "then"),
            f"remove what makes it recompile: {named}" if named else "remove its recompiles",
            caveat="raise torch._dynamo.config.recompile_limit only for a known, bounded set",
            location=location,
            steps=(frame.limit_hit_step,),
            evidence={
                "limit": limit,
                "compiles": frame.compiles,
                "reasons": list(recompiles[-1].reasons) if recompiles else [],
                "causes": list(codes),
                "compile_ids": [item.compile_id for item in recompiles],
            },
            also=codes,
        )


RULES: tuple[Rule, ...] = (
    find_armed_guards,
    find_variant_forecasts,
    find_limit_hits,
    find_autograd_recaptures,
    find_violated_constraints,
)
