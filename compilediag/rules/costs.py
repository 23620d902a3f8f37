"""Compile time where something can be done about it (CD601 to CD604: notes, since a program that
compiles long is not wrong), the time that guards take (CD621), and ranks that compile while the
others wait for them in the next collective (CD641)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compilediag.diagnosis.figures.compile_costs import (
    CompileSeconds,
    compute_guard_cost,
    group_compiles_by_frame,
    sum_compile_seconds,
    sum_seconds_by_frame,
)
from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import format_count, make_finding, pick, shorten
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location

WORTH_S = 2.0
"""Less is not worth a reader's time."""

MOST = 0.5
"""Of all compile seconds: more is what makes compiling long. Of a frame's guards: what they are
about, or their line, is what to change."""

RESTARTS, RESTARTS_WORTH_S = 0.25, 5.0
"""Of a frame's compile seconds, in attempts that were begun again. The first attempt of a process
imports parts of torch, for some seconds on a slow disk."""

MAX_REASONS = 5
_ONCE = ("kernel_builds", "autotuning")
"""Phases that equal blocks do not make longer."""


def find_repeated_blocks(timeline: Timeline) -> Iterable[Finding]:
    """CD601: a frame with equal blocks takes most compile seconds."""
    own = _list_lead_compiles(timeline)
    whole = sum_compile_seconds(own)
    if whole is None:
        return
    compiles_of = group_compiles_by_frame(own)
    for frame, seconds in sum_seconds_by_frame(own):
        groups = [event.blocks for event in compiles_of[frame] if event.blocks is not None]
        if seconds.total <= MOST * whole.total or not groups:
            continue
        blocks = max(groups, key=lambda group: group.modules)
        growing = seconds.total - sum(seconds.by_phase.get(name, 0.0) for name in _ONCE)
        # Of each compile of a block there may be a second one: the first block gets an input that
        # needs no gradient.
        saved = growing * (1 - 2 / blocks.count)
        if saved >= WORTH_S:
            what = f"{blocks.count} equal blocks ({blocks.class_name}) in {blocks.where}"
            yield make_finding(
                timeline,
                "CD601",
                f"{what} are compiled as one graph: {seconds.total:.1f} s",
                f"compile each block instead of what holds them (`for block in {blocks.where}: "
                f"block.compile()`): equal blocks share one compile, up to {saved:.1f} s less",
                caveat="nothing is fused across blocks, each is a call with guards of its own, and "
                "what is between them runs eager",
                location=frame,
                variable=blocks.where,
                count=len(compiles_of[frame]),
                steps=(event.step for event in compiles_of[frame]),
                cost_s=saved,
                evidence={
                    "class": blocks.class_name,
                    "blocks": blocks.count,
                    "modules": blocks.modules,
                    **_round_seconds(seconds, whole),
                },
            )


def find_restarts(timeline: Timeline) -> Iterable[Finding]:
    """CD602: Dynamo traced a frame again and again."""
    own = _list_lead_compiles(timeline)
    whole = sum_compile_seconds(own)
    compiles_of = group_compiles_by_frame(own)
    for frame, seconds in sum_seconds_by_frame(own):
        if whole is None or seconds.restarted < max(RESTARTS_WORTH_S, RESTARTS * seconds.total):
            continue
        reasons = Counter(text for event in compiles_of[frame] for text in event.restart_reasons)
        times = format_count(sum(reasons.values()), "reason") if reasons else "torch says not why"
        yield make_finding(
            timeline,
            "CD602",
            f"{frame.function} was traced again from its beginning: {seconds.restarted:.1f} s of "
            f"{seconds.total:.1f} s, {times}",
            f"{'remove what torch names as the reasons, or ' * bool(reasons)}move what is above it "
            "into a function of its own that is compiled alone: each time torch traces all above "
            "it once more",
            location=frame,
            count=len(compiles_of[frame]),
            steps=(event.step for event in compiles_of[frame]),
            cost_s=seconds.restarted,
            evidence={
                "restarted_s": round(seconds.restarted, 3),
                "reasons": [shorten(text, 300) for text, _ in reasons.most_common(MAX_REASONS)],
                **_round_seconds(seconds, whole),
            },
        )


def find_autotuning(timeline: Timeline) -> Iterable[Finding]:
    """CD603: trying kernels takes most compile seconds."""
    yield from _find_long_phase(
        timeline,
        "CD603",
        "autotuning",
        "trying kernels",
        'compile without mode="max-autotune" while the program changes, and keep the folder of '
        "TORCHINDUCTOR_CACHE_DIR between starts: what was found is stored there",
        "kernels that were not tried may be slower",
    )


def find_builds_without_cache(timeline: Timeline) -> Iterable[Finding]:
    """CD604: kernels are built, and no cache is looked into."""
    counted = sum(
        (event.cache_hits or 0) + (event.cache_misses or 0)
        for event in _list_lead_compiles(timeline)
    )
    caches = (cache for cache in timeline.caches if cache.process == timeline.lead)
    outcomes = (lookup.outcome for cache in caches for lookup in cache.lookups)
    if counted == 0 and not {*outcomes} & {"hit", "miss", "bypass"}:
        yield from _find_long_phase(
            timeline,
            "CD604",
            "kernel_builds",
            "building kernels, with torch's caches off,",
            "leave torch's caches on (TORCHINDUCTOR_FORCE_DISABLE_CACHES, "
            "torch._inductor.config.force_disable_caches, fx_graph_cache): the next start then "
            "builds nothing",
            None,
        )


def _find_long_phase(
    timeline: Timeline, code: str, phase: str, what: str, fix: str, caveat: str | None
) -> Iterable[Finding]:
    own = _list_lead_compiles(timeline)
    whole = sum_compile_seconds(own)
    spent = whole.by_phase.get(phase, 0.0) if whole is not None else 0.0
    if whole is not None and spent >= max(WORTH_S, MOST * whole.total):
        yield make_finding(
            timeline,
            code,
            f"{what}: {spent:.1f} s of {whole.total:.1f} s of compiling",
            fix,
            caveat=caveat,
            count=whole.attempts,
            cost_s=spent,
            evidence={"phase_s": round(spent, 3), "total_s": round(whole.total, 3)},
        )


def _list_lead_compiles(timeline: Timeline) -> Sequence[Compile]:
    """List the compiles of the lead process: others of the run do the same at the same time."""
    return [event for event in timeline.compiles if event.process == timeline.lead]


def _round_seconds(seconds: CompileSeconds, whole: CompileSeconds) -> dict[str, object]:
    return {"frame_s": round(seconds.total, 3), "total_s": round(whole.total, 3)}


# --- guards -------------------------------------------------------------------------------------

SHARE = 0.05
"""Of a step, from which on guards are worth a reader's time."""

MIN_GUARDS = 500
"""Guards evaluated in a step below which nothing is said: some ten microseconds, which are a share
of a step only where the step itself does next to nothing."""

MIN_STEPS = 3
"""Steps without a compile, of whose times the median is one."""

CONSTANTS = frozenset({"EQUALS_MATCH", "ID_MATCH", "TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH"})
"""Guards on Python values that became constants of the graph."""


_COMPUTE_ONCE = (
    "compute what this line reads from many Python values once, outside the compiled code, and "
    "read the result"
)
_DICT_TAGS = (
    "set torch._dynamo.config.use_recursive_dict_tags_for_guards = True before compiling, where "
    "this torch has it: modules that did not change are skipped"
)
_UNSAFE = (
    "; or call torch.compiler.set_stance(skip_guard_eval_unsafe=True) after warm-up, if nothing "
    'will compile again; or pass torch.compile(options={"guard_filter_fn": '
    "torch.compiler.skip_guard_on_all_nn_modules_unsafe}), if no module changes after that"
)


def find_expensive_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD621, once a run, at the frame whose guards cost most."""
    measured = compute_guard_cost(timeline)
    if measured is None:
        return
    cost, dearest = measured
    if cost.share is None or cost.share < SHARE or cost.step_s is None:
        return
    steps = [s.number for s in timeline.steps if s.process == timeline.lead and not s.compile_s]
    known = [frame for frame in cost.frames if frame.us_per_step is not None]
    evaluated = sum((frame.evaluated or 0) * (frame.runs_per_step or 0.0) for frame in known)
    if evaluated < MIN_GUARDS or len(steps) < MIN_STEPS:
        return
    first = known[0]
    # The line that reads the Python values that most of its guards are about.
    kinds = dict(zip(dearest.kinds, dearest.counts, strict=False))
    lines = list(zip(dearest.lines, dearest.line_counts, strict=False))
    constants = sum(count for kind, count in kinds.items() if kind in CONSTANTS)
    fewest = min([constants, *(count for _, count in lines[:1])])
    most = dearest.evaluated and lines and fewest >= MOST * dearest.evaluated
    line = lines[0][0] if most else None
    yield make_finding(
        timeline,
        "CD621",
        f"guards take {_format_us(cost.us_per_step or 0.0)} of each "
        f"{_format_us(cost.step_s * 1e6)} step ({cost.share:.0%}): "
        f"{first.evaluated:,} of {first.frame.function}",
        # What keeps every check first, then what drops some.
        (_DICT_TAGS if line is None else _COMPUTE_ONCE) + _UNSAFE,
        caveat="what torch calls unsafe computes with stale values, in silence, where something "
        "that is no longer checked changes after all",
        location=line or Location(first.frame.file, first.frame.line, first.frame.function),
        count=len(steps),
        steps=steps,
        cost_s=(cost.us_per_step or 0.0) / 1e6 * len(steps),
        evidence={
            **pick(cost, "us_per_step", "step_s", "share"),
            "guards_per_step": evaluated,
            "frames": [
                {
                    **pick(frame.frame, "file", "line", "function"),
                    **pick(frame, "eval_us", "evaluated", "runs_per_step"),
                }
                for frame in known[:5]
            ],
            "kinds": kinds,
            "lines": [{**pick(at, "file", "line"), "guards": count} for at, count in lines],
            "in_python": dearest.in_python,
            "python_guards": list(dearest.python_texts),
        },
    )


def _format_us(value: float) -> str:
    return f"{value / 1000:.1f} ms" if value >= 1000 else f"{value:.0f} us"


# --- ranks --------------------------------------------------------------------------------------

WAIT_S = 5.0
"""Seconds of waiting from which on they are worth a reader's time: ranks that do the same differ
by less, on a machine they share as well."""

WAITED = 0.5
"""Share of the difference that a rank's own steps must have become longer by, to have waited."""

TIMEOUT_S = 600.0
"""torch's default of NCCL, after which it ends the run; that of other backends is three times as
long (`default_pg_nccl_timeout`, `default_pg_timeout`)."""

NAMED = 8
_TOGETHER = "call once on every rank, during warm-up, what only some of them compile"

_RECOMPILE = (
    "remove the recompile that only these ranks make: if it is for a size, call "
    "torch._dynamo.maybe_mark_dynamic(x, dim) on every rank before the first call"
)
_COLLECTIVES = (
    "torch._dynamo.config.enable_compiler_collectives has ranks agree on dynamic sizes, but only "
    "with accelerators, and it hangs where a rank compiles alone"
)

_CACHES = (
    "give all ranks one warm compile cache: set TORCHINDUCTOR_CACHE_DIR to a folder that all of "
    "them read, and fill it by a run before"
)
_KEYS = (
    "where devices are in the keys, torch.compiler.config.compile_on_one_rank = True keeps them "
    "out (torch 2.15 or newer)"
)


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks that compiled longer than another one did, in one step."""

    step: int | None
    """None: of the whole run, whose steps are not known."""
    slow: tuple[int, ...]
    waiting: tuple[int, ...]
    seconds: float
    """The longest compiling less the shortest."""


def find_waits_for_compiles(timeline: Timeline) -> Iterable[Finding]:
    """CD641, once a run, at the frame that the slow ranks spent most on."""
    if not timeline.can_observe("metrics_rows"):
        return
    # Of every rank that has torch loaded: one that compiles nothing is there, and waits.
    loaded = [process for process in timeline.processes if process.torch is not None]
    ranks = {process.index: process.rank for process in loaded if process.rank is not None}
    by_rank: dict[int, list[Compile]] = {rank: [] for rank in ranks.values()}
    for event in timeline.compiles:
        if event.process in ranks:
            by_rank[ranks[event.process]].append(event)
    waits = _find_waits(timeline, by_rank)
    if not waits:
        return
    worst = max(waits, key=lambda wait: wait.seconds)
    slow, other = (
        [event for event in by_rank[group[0]] if worst.step in (None, event.step)]
        for group in (worst.slow, worst.waiting)
    )
    # The frame on which a slow rank spent most beyond what a waiting one did, and its compiles.
    more: dict[Location, float] = {}
    for own, sign in ((slow, 1), (other, -1)):
        for event in own:
            if event.frame.file:
                more[event.frame] = more.get(event.frame, 0.0) + sign * event.seconds
    frame = max(more, key=lambda where: more[where], default=None)
    compiles = [event for event in slow if event.frame == frame]
    advice, caveat = _TOGETHER, None
    if any(event.recompile is not None for event in compiles):
        advice, caveat = _RECOMPILE, _COLLECTIVES
    elif compiles and frame in {event.frame for event in other}:
        advice, caveat = _CACHES, _KEYS
    fatal = worst.seconds >= TIMEOUT_S
    if fatal:
        advice += "; or pass init_process_group(timeout=...) longer than the longest compile"
    yield make_finding(
        timeline,
        "CD641",
        _format_title(worst, fatal=fatal),
        advice,
        caveat=caveat,
        location=frame,
        severity="error" if fatal else None,
        count=len(waits),
        steps=(wait.step for wait in waits if wait.step is not None),
        cost_s=sum(wait.seconds for wait in waits),
        evidence={
            "waits": [
                pick(wait, "step", "slow", "waiting", "seconds")
                for wait in sorted(waits, key=lambda wait: -wait.seconds)[:NAMED]
            ],
            "compile_ids": [event.compile_id for event in compiles][:NAMED],
            "timeout_s": TIMEOUT_S,
        },
    )


def _find_waits(timeline: Timeline, by_rank: Mapping[int, Sequence[Compile]]) -> list[Wait]:
    """Find waits by step, where every rank made steps; else one of the whole run."""
    ranks = {process.index: process.rank for process in timeline.processes}
    walls: dict[tuple[int, int], float] = {}
    for step in timeline.steps:
        rank = ranks.get(step.process)
        if rank is not None:
            walls[rank, step.number] = max(step.wall_s, walls.get((rank, step.number), 0.0))
    if not {rank for rank, _ in walls}.issuperset(by_rank):
        seconds = {rank: sum(event.seconds for event in own) for rank, own in by_rank.items()}
        wait = _measure_wait(None, seconds)
        return [] if wait is None else [wait]
    by_step: dict[int, dict[int, float]] = {}
    for rank, own in by_rank.items():
        for event in own:
            at = by_step.setdefault(event.step, {})
            at[rank] = at.get(rank, 0.0) + event.seconds
    waits: list[Wait] = []
    for step, at in sorted(by_step.items()):
        # A rank that was killed or ended before waits for nobody.
        wait = _measure_wait(
            step, {rank: at.get(rank, 0.0) for rank in by_rank if (rank, step) in walls}
        )
        if wait is None:
            continue
        # Only ranks whose own step became as long, else they meet in no collective. What a rank
        # waits for may be in its next step.
        waiting = tuple(
            rank
            for rank in wait.waiting
            if walls.get((rank, step), 0.0) + walls.get((rank, step + 1), 0.0) - at.get(rank, 0.0)
            >= WAITED * wait.seconds
        )
        if waiting:
            waits.append(replace(wait, waiting=waiting))
    return waits


def _measure_wait(step: int | None, seconds: Mapping[int, float]) -> Wait | None:
    """Measure the wait for ranks that compile longest: those above the middle between most and
    least seconds; None where nobody waits long, or is alone."""
    if len(seconds) < 2:
        return None
    most, least = max(seconds.values()), min(seconds.values())
    if most - least < WAIT_S:
        return None
    middle = (most + least) / 2
    slow = tuple(sorted(rank for rank, value in seconds.items() if value > middle))
    waiting = tuple(sorted(rank for rank, value in seconds.items() if value <= middle))
    return Wait(step, slow, waiting, most - least)


def _format_title(wait: Wait, *, fatal: bool) -> str:
    where = "" if wait.step is None else f" in step {wait.step}"
    verb = "compiles" if len(wait.slow) == 1 else "compile"
    consequence = (
        f"{_format_ranks(wait.waiting)} waited"
        if wait.step is not None
        else "the others wait where they meet in a collective"
    )
    if fatal:
        consequence += f", longer than NCCL's default timeout of {TIMEOUT_S:.0f} s"
    return f"{_format_ranks(wait.slow)} {verb} {wait.seconds:.1f} s longer{where}: {consequence}"


def _format_ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 4:
        return f"{format_count(len(ranks), 'rank')} ({ranks[0]}, {ranks[1]}, …)"
    return "ranks " + ", ".join(map(str, ranks))
