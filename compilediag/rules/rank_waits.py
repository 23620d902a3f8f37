"""CD641: some ranks compile while the others wait for them in the next collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import make_finding, pick, plural
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location

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
    if not timeline.observes("metrics_rows"):
        return
    # Of every rank that has torch loaded: one that compiles nothing is there, and waits.
    loaded = [item for item in timeline.processes if item.torch is not None]
    ranks = {item.index: item.rank for item in loaded if item.rank is not None}
    by_rank: dict[int, list[Compile]] = {rank: [] for rank in ranks.values()}
    for item in timeline.compiles:
        if item.process in ranks:
            by_rank[ranks[item.process]].append(item)
    waits = _waits(timeline, by_rank)
    if not waits:
        return
    worst = max(waits, key=lambda wait: wait.seconds)
    slow, other = (
        [
            item
            for item in next((by_rank[rank] for rank in found if rank in by_rank), ())
            if worst.step is None or item.step == worst.step
        ]
        for found in (worst.slow, worst.waiting)
    )
    # The frame on which a slow rank spent most beyond what a waiting one did, and its compiles.
    more: dict[Location, float] = {}
    for own, sign in ((slow, 1), (other, -1)):
        for item in own:
            if item.frame.file:
                more[item.frame] = more.get(item.frame, 0.0) + sign * item.seconds
    frame = max(more, key=lambda where: more[where], default=None)
    compiles = [item for item in slow if item.frame == frame]
    advice, caveat = _TOGETHER, None
    if any(item.recompile is not None for item in compiles):
        advice, caveat = _RECOMPILE, _COLLECTIVES
    elif compiles and frame in {item.frame for item in other}:
        advice, caveat = _CACHES, _KEYS
    fatal = worst.seconds >= TIMEOUT_S
    if fatal:
        advice += "; or pass init_process_group(timeout=...) longer than the longest compile"
    yield make_finding(
        timeline,
        "CD641",
        _title(worst, fatal=fatal),
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
            "compile_ids": [item.compile_id for item in compiles][:NAMED],
            "timeout_s": TIMEOUT_S,
        },
    )


def _waits(timeline: Timeline, by_rank: Mapping[int, Sequence[Compile]]) -> list[Wait]:
    """By step, where every rank made steps; else of the whole run."""
    ranks = {process.index: process.rank for process in timeline.processes}
    walls: dict[tuple[int, int], float] = {}
    for step in timeline.steps:
        rank = ranks.get(step.process)
        if rank is not None:
            walls[rank, step.number] = max(step.wall_s, walls.get((rank, step.number), 0.0))
    if timeline.counted_ranks or not {rank for rank, _ in walls}.issuperset(by_rank):
        seconds = {rank: sum(item.seconds for item in own) for rank, own in by_rank.items()}
        found = _wait(None, {**seconds, **dict(timeline.counted_compile_s)})
        return [] if found is None else [found]
    by_step: dict[int, dict[int, float]] = {}
    for rank, own in by_rank.items():
        for item in own:
            at = by_step.setdefault(item.step, {})
            at[rank] = at.get(rank, 0.0) + item.seconds
    waits: list[Wait] = []
    for step, at in sorted(by_step.items()):
        # A rank that was killed or ended before waits for nobody.
        wait = _wait(step, {rank: at.get(rank, 0.0) for rank in by_rank if (rank, step) in walls})
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


def _wait(step: int | None, seconds: Mapping[int, float]) -> Wait | None:
    """None where nobody waits long, or there is nobody else."""
    if len(seconds) < 2:
        return None
    most, least = max(seconds.values()), min(seconds.values())
    if most - least < WAIT_S:
        return None
    middle = (most + least) / 2
    slow = tuple(sorted(rank for rank, value in seconds.items() if value > middle))
    waiting = tuple(sorted(rank for rank, value in seconds.items() if value <= middle))
    return Wait(step, slow, waiting, most - least)


def _title(wait: Wait, *, fatal: bool) -> str:
    where = "" if wait.step is None else f" in step {wait.step}"
    verb = "compiles" if len(wait.slow) == 1 else "compile"
    consequence = (
        f"{_named(wait.waiting)} waited"
        if wait.step is not None
        else "the others wait where they meet in a collective"
    )
    if fatal:
        consequence += f", longer than NCCL's default timeout of {TIMEOUT_S:.0f} s"
    return f"{_named(wait.slow)} {verb} {wait.seconds:.1f} s longer{where}: {consequence}"


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 4:
        return f"{plural(len(ranks), 'rank')} ({ranks[0]}, {ranks[1]}, …)"
    return "ranks " + ", ".join(map(str, ranks))
