"""CD150–CD152: what will recompile next, how near the limit is, and what is past it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from compilediag.diagnosis.analysis import Analysis, analysis_rule
from compilediag.diagnosis.causes import causes_of
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Cause, Finding, Fix, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.compiled_autograd import find_autograd_recaptures
from compilediag.diagnosis.rules.constraints import find_violated_constraints
from compilediag.timeline.compiles import Compile, Frame, FrameKey, Hazards, Recompile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EntryDiff, Location

NEAR_LIMIT = 0.75
"""Share of the recompile limit from which a frame is close to it."""

DEFAULT_LIMIT = 8
"""`torch._dynamo.config.recompile_limit` of every torch from 2.7 to 2.15."""

_GENERALISED = ("CD105", "CD118")
_NUMBER = re.compile(r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?")


def find_armed_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD150: guards that were false at the last look. A recompile after the look has used them up,
    and a frame over its limit recompiles no more."""
    for look in _last_looks(timeline):
        if look.skipped is not None or not look.guards or _is_stale(look, timeline):
            continue
        for cause in causes_of(_coming(look)):
            yield _armed(look, cause, timeline.user_roots)


def _coming(look: Hazards) -> Recompile:
    """The recompile that the guards of the look would cause: their consequences fall away and
    several checks of one variable are one cause, as for a recompile that happened."""
    entry = EntryDiff("", look.guards, look.checked, look.unevaluated)
    return Recompile(
        process=look.process,
        compile_id="",
        epoch=0,
        frame=look.frame,
        step=look.step,
        t=0.0,
        reasons=(),
        entries=(entry,),
        seconds=0.0,
        produced=False,
    )


def _last_looks(timeline: Timeline) -> Iterable[Hazards]:
    last: dict[tuple[int, Location], Hazards] = {}
    for look in timeline.hazards:
        last[look.process, look.frame] = look
    return last.values()


def _is_stale(look: Hazards, timeline: Timeline) -> bool:
    """The frame compiled in a later step, or it will never compile again."""
    for item in timeline.compiles:
        same = item.process == look.process and _of_frame(item) == look.frame
        if same and (item.kind == "limit" or item.step > look.step):
            return True
    return False


def _of_frame(item: Compile) -> Location:
    """The row of the attempt at the limit names no code; the question before it does."""
    return item.recompile.frame if item.recompile is not None else item.frame


def _armed(look: Hazards, cause: Cause, user_roots: tuple[str, ...]) -> Finding:
    place = cause.location or look.frame
    return Finding(
        rule="CD150",
        slug=info("CD150").slug,
        severity="warning",
        confidence=cause.confidence,
        family=cause.family,
        variable=cause.variable or None,
        title=f"armed: the next call of {look.frame.function} recompiles",
        location=place,
        ownership=ownership_of(place.file, user_roots),
        count=1,
        steps=(look.step,),
        cost_s=None,
        fix=Fix(
            summary=f"remove the cause ({cause.rule}, {info(cause.rule).slug}) before it fires",
            how=info(cause.rule).how,
            caveat="a flag that is set back before the next call disarms the guard",
        ),
        evidence={
            "cause": cause.rule,
            "kind": cause.kind,
            "guard": cause.guard,
            "source": cause.source,
            "expected": cause.expected,
            "actual": cause.actual,
            "frame": _spell(look.frame),
            "checked": look.checked,
            "unevaluated": look.unevaluated,
        },
    )


@analysis_rule
def find_variant_forecasts(analysis: Analysis) -> Iterable[Finding]:
    """CD151: frames near `recompile_limit`, or whose flags combine to more variants than it."""
    timeline = analysis.timeline
    asked = _by_frame(timeline)
    if not asked:
        return
    for frame in timeline.frames:
        if frame.limit_hit_step is not None:
            continue
        recompiles = [item for item in asked.get(frame.key, ()) if item.produced]
        if not recompiles:
            continue
        limit = frame.limit or DEFAULT_LIMIT
        # Regions of `isolate_recompiles` share the ids of a frame but not its limit: only
        # compiles that a failed guard caused fill one cache.
        used = min(frame.compiles, 1 + len(recompiles))
        values = _values_seen(recompiles, analysis.causes)
        near = used >= math.ceil(NEAR_LIMIT * limit)
        if near or _combinations(values) > limit:
            yield _forecast(frame, (used, limit), values, timeline.user_roots)


def _by_frame(timeline: Timeline) -> dict[FrameKey, list[Recompile]]:
    found: dict[FrameKey, list[Recompile]] = {}
    for item in timeline.compiles:
        if item.recompile is not None:
            found.setdefault(item.key, []).append(item.recompile)
    return found


def _values_seen(recompiles: Sequence[Recompile], run: RunCauses) -> dict[str, set[str]]:
    """Distinct values of each variable whose values torch never generalises: sizes and numbers
    as arguments become dynamic, so their values do not multiply."""
    seen: dict[str, set[str]] = {}
    for item in recompiles:
        for cause in run.of(item):
            known = {value for value in (cause.expected, cause.actual) if value is not None}
            if not cause.variable or cause.rule in _GENERALISED or _are_numbers(cause, known):
                continue
            seen.setdefault(cause.variable, set()).update(known)
    return {variable: values for variable, values in seen.items() if len(values) > 1}


def _combinations(values: dict[str, set[str]]) -> int:
    return math.prod(len(seen) for seen in values.values())


def _are_numbers(cause: Cause, values: set[str]) -> bool:
    return cause.rule == "CD107" and all(_NUMBER.fullmatch(value) for value in values)


def _forecast(
    frame: Frame,
    room: tuple[int, int],
    values: dict[str, set[str]],
    user_roots: tuple[str, ...],
) -> Finding:
    place, (used, limit) = frame.where, room
    combinations = _combinations(values)
    near = used >= math.ceil(NEAR_LIMIT * limit)
    title = f"{used} of {limit} variants of {place.function} used"
    if combinations > limit:
        title += f"; {combinations} combinations of {', '.join(sorted(values))} are possible"
    return Finding(
        rule="CD151",
        slug=info("CD151").slug,
        severity="warning" if near else "info",
        confidence="exact",
        family=info("CD151").family,
        variable=None,
        title=title,
        location=place,
        ownership=ownership_of(place.file, user_roots),
        count=1,
        steps=(),
        cost_s=None,
        fix=Fix(
            summary="remove the causes of its recompiles: at the limit the frame runs eager",
            how=info("CD151").how,
            caveat="raising torch._dynamo.config.recompile_limit only moves the limit",
        ),
        evidence={
            "variants": used,
            "limit": limit,
            "combinations": combinations if values else None,
            "values_seen": {name: sorted(found) for name, found in sorted(values.items())},
        },
    )


@analysis_rule
def find_limit_hits(analysis: Analysis) -> Iterable[Finding]:
    """CD152: frames that run eager since the step in which they asked for one variant too many."""
    timeline, causes = analysis.timeline, analysis.causes
    if all(frame.limit_hit_step is None for frame in timeline.frames):
        return
    asked = _by_frame(timeline)
    for frame in timeline.frames:
        if frame.limit_hit_step is None:
            continue
        recompiles = asked.get(frame.key, [])
        place = recompiles[-1].frame if recompiles else frame.where
        codes = tuple(dict.fromkeys(c.rule for r in recompiles for c in causes.of(r) if c.primary))
        limit = frame.limit or DEFAULT_LIMIT
        yield Finding(
            rule="CD152",
            slug=info("CD152").slug,
            severity="error",
            confidence="exact",
            family=info("CD152").family,
            variable=None,
            title=f"{place.function} hit the recompile limit ({limit}): eager since "
            + (f"step {frame.limit_hit_step}" if timeline.tells("steps") else "then"),
            location=place,
            ownership=ownership_of(place.file, timeline.user_roots),
            count=1,
            steps=(frame.limit_hit_step,),
            cost_s=None,
            fix=_limit_fix(codes),
            evidence={
                "limit": limit,
                "compiles": frame.compiles,
                "reasons": list(recompiles[-1].reasons) if recompiles else [],
                "causes": list(codes),
                "compile_ids": [item.compile_id for item in recompiles],
            },
            also=codes,
        )


def _limit_fix(codes: Sequence[str]) -> Fix:
    causes = ", ".join(f"{code} {info(code).slug}" for code in codes)
    summary = f"remove what makes it recompile: {causes}" if causes else "remove its recompiles"
    return Fix(
        summary=summary,
        how=info("CD152").how,
        caveat="raise torch._dynamo.config.recompile_limit only for a known, bounded set",
    )


def _spell(place: Location) -> str:
    return f"{place.function} ({place.file}:{place.line})"


RULES: tuple[Rule, ...] = (
    find_armed_guards,
    find_variant_forecasts,
    find_limit_hits,
    find_autograd_recaptures,
    find_violated_constraints,
)
