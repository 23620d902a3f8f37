"""Limits of recompiles: values that were each compiled for before, but not together (CD120); what
will recompile next (CD150), how near the limit is (CD151), and what is past it (CD152)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.causes.run_causes import COMBINATION, RunCauses, list_causes
from compilediag.diagnosis.codes import REGISTER, SIZES
from compilediag.diagnosis.findings import Cause, Finding
from compilediag.rules.facts import is_number
from compilediag.rules.make_finding import Advice, make_finding, pick
from compilediag.rules.recompiles import RecompileRule
from compilediag.rules.rule import Analysis, AnalysisRule
from compilediag.timeline.compiles import FrameId, Recompile
from compilediag.timeline.frames import Frame
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EntryDiff

NEAR_LIMIT = 0.75
"""Share of the recompile limit from which a frame is close to it."""

DEFAULT_LIMIT = 8
"""`torch._dynamo.config.recompile_limit` of every torch from 2.7 to 2.15."""

COMBINATIONS = Advice(
    "torch makes a graph for each combination: leave it where they are few; else decide one of "
    "them outside of the compiled function"
)


@AnalysisRule
def find_combinations(analysis: Analysis) -> Iterable[Finding]:
    """CD120: the values that met, those of each part in the recompiles of the frame, and how many
    combinations these make."""
    rule = RecompileRule(COMBINATION, lambda _: ("new combination of known values", COMBINATIONS))
    groups = analysis.causes.groups.get(COMBINATION, ())
    for group, finding in zip(groups, rule.find(analysis), strict=True):
        parts = group.first.parts
        often = Counter(part.variable for part in parts)
        frame = group.recompiles[0].frame
        again = [event for event in analysis.timeline.counted_recompiles if event.frame == frame]
        values = collect_seen_values(again, analysis.causes)
        # Values of a tensor's size and of its dtype are not told apart.
        seen = {name: sorted(values[name]) for name in often if often[name] == 1 and name in values}
        facts = {
            **finding.evidence,
            "met": list(dict.fromkeys(cause.actual for cause in group.causes)),
            "parts": [f"{part.rule} {part.variable}" for part in parts],
            "values_seen": seen,
        }
        if len(seen) == len(parts):
            facts["combinations"] = math.prod(map(len, seen.values()))
        yield replace(finding, evidence=facts)


def find_armed_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD150: guards that were false at the last look. A recompile after the look has used them up,
    and a frame over its limit recompiles no more."""
    last = {(look.process, look.frame): look for look in timeline.risk_checks}
    for look in last.values():
        # Stale: the frame compiled in a later step, or it will never compile again.
        if (
            look.skipped is not None
            or not look.guards
            or any(
                event.process == look.process
                # The row of the compile at the limit names no code; the question before it does.
                and (event if event.recompile is None else event.recompile).frame == look.frame
                and (event.kind == "limit" or event.step > look.step)
                for event in timeline.compiles
            )
        ):
            continue
        # The recompile that the guards would cause, without id, time or cost. Their consequences
        # fall away and several checks of one variable are one cause, as if it had happened.
        entry = EntryDiff("", look.guards, look.checked, look.unevaluated)
        coming = Recompile(
            *(0.0, look.step, "", 0, look.frame, (), (entry,), 0.0),
            process=look.process,
            seconds=0.0,
            produced=False,
        )
        frame = look.frame
        for cause, *alike in _group_alike(list_causes(coming)):
            if frame.function == "__init__" and cause.source.startswith("L['self']"):
                continue  # the next call makes another object
            register = REGISTER[cause.rule]
            finding = make_finding(
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
                    **({"together": [other.variable for other in alike]} if alike else {}),
                },
                called_from=next(
                    (known_frame for known_frame in timeline.frames if known_frame.where == frame),
                    None,
                ),
            )
            # It belongs to the family of its cause, and is fixed as that is.
            fix = replace(finding.fix, how=register.how)
            yield replace(finding, family=cause.family, fix=fix)


def _group_alike(causes: Iterable[Cause]) -> Iterable[list[Cause]]:
    """Group what became of one attribute of several objects, as of the hooks of all layers."""
    groups: dict[Hashable, list[Cause]] = {}
    for cause in causes:
        attribute = cause.source.rpartition(".")[2]
        key = cause.rule, cause.kind, attribute, cause.expected, cause.actual
        groups.setdefault(key, []).append(cause)
    return groups.values()


@AnalysisRule
def find_variant_forecasts(analysis: Analysis) -> Iterable[Finding]:
    """CD151: frames near `recompile_limit`."""
    timeline = analysis.timeline
    by_frame = _group_by_frame(timeline)
    for frame in timeline.frames:
        recompiles = [recompile for recompile in by_frame.get(frame.key, ()) if recompile.produced]
        if frame.limit_hit_step is not None or not recompiles:
            continue
        limit = frame.limit or DEFAULT_LIMIT
        # Regions of `isolate_recompiles` share the ids of a frame but not its limit: only
        # compiles that a failed guard caused fill one cache.
        used = min(frame.compiles, 1 + len(recompiles))
        # More fit where another limit holds than the config's.
        if not math.ceil(NEAR_LIMIT * limit) <= used <= limit:
            continue
        caveat = "raising torch._dynamo.config.recompile_limit only moves the limit"
        if analysis.are_wanted(recompiles) and analysis.find_break(recompiles) is None:
            caveat = f"its {used} variants are wanted, and the limit is enough for them"
        yield make_finding(
            timeline,
            "CD151",
            f"{used} of {limit} variants of {frame.where.function} used",
            "remove the causes of its recompiles: at the limit the frame runs eager",
            caveat=caveat,
            location=frame.where,
            severity="info",  # its causes are findings of their own
            evidence={"variants": used, "limit": limit},
        )


def _group_by_frame(timeline: Timeline) -> Mapping[FrameId, list[Recompile]]:
    recompiles: dict[FrameId, list[Recompile]] = {}
    for event in timeline.compiles:
        if event.recompile is not None:
            recompiles.setdefault(event.key, []).append(event.recompile)
    return recompiles


def collect_seen_values(recompiles: Sequence[Recompile], causes: RunCauses) -> dict[str, set[str]]:
    """Collect the distinct values of each variable that torch never makes dynamic: sizes and
    numbers as arguments become dynamic, so their values do not multiply."""
    seen: dict[str, set[str]] = {}
    for cause in (cause for recompile in recompiles for cause in causes.get_causes(recompile)):
        known = {value for value in (cause.expected, cause.actual) if value is not None}
        numbers = REGISTER[cause.rule].changed == "scalar" and all(map(is_number, known))
        if cause.variable and not cause.parts and not numbers and cause.rule not in SIZES:
            seen.setdefault(cause.variable, set()).update(known)
    return {variable: values for variable, values in seen.items() if len(values) > 1}


@AnalysisRule
def find_limit_hits(analysis: Analysis) -> Iterable[Finding]:
    """CD152: frames that run eager since the step in which they needed one variant too many."""
    timeline, causes = analysis.timeline, analysis.causes
    by_frame = _group_by_frame(timeline)
    for frame in timeline.frames:
        if frame.limit_hit_step is None:
            continue
        own = by_frame.get(frame.key, [])
        location = own[-1].frame if own else frame.where
        codes = tuple(dict.fromkeys(c.rule for r in own for c in causes.get_causes(r) if c.primary))
        named = ", ".join(f"{code} {REGISTER[code].slug}" for code in codes)
        limit = frame.limit or DEFAULT_LIMIT
        wanted = analysis.are_wanted(event for event in own if event.produced)
        wanted = wanted and analysis.find_break(own) is None
        enough = _count_called_sizes(timeline, frame) if wanted and {*codes} <= SIZES else None
        after = "raises (fullgraph=True)" if frame.raised_at_limit else "eager"
        yield make_finding(
            timeline,
            "CD152",
            f"{location.function} hit the recompile limit ({limit}): {after} since "
            + (f"step {frame.limit_hit_step}" if timeline.can_observe("steps") else "then"),
            f"remove what makes it recompile: {named}" if named else "remove its recompiles",
            caveat="raise torch._dynamo.config.recompile_limit only for a known, bounded set"
            if enough is None
            else f"torch._dynamo.config.recompile_limit = {enough} is enough for the sizes that it "
            "was called with, at a compile each",
            location=location,
            steps=(frame.limit_hit_step,),
            evidence={
                "limit": limit,
                "compiles": frame.compiles,
                "reasons": list(own[-1].reasons) if own else [],
                "causes": list(codes),
                "compile_ids": [recompile.compile_id for recompile in own],
            },
            also=codes,
        )


def _count_called_sizes(timeline: Timeline, frame: Frame) -> int | None:
    """Count the sizes that a frame was called with, each of which takes one graph at most; None
    where it is no compiled callable itself, or they were not all told apart."""
    of_frame = [
        calls.shapes
        for calls in timeline.invocations
        if calls.process == frame.key.process
        and (calls.function.file, calls.function.line) == (frame.where.file, frame.where.line)
    ]
    shapes = {shape.shapes for of_callable in of_frame for shape in of_callable}
    return None if None in shapes or not shapes else len(shapes)
