"""CD641: some ranks compile while the others wait for them in the next collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compilediag.diagnosis.findings import Finding, Rule
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

_TIMEOUT = "; or pass init_process_group(timeout=...) longer than the longest compile"


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
    by_rank = _compiles_by_rank(timeline)
    waits = _waits(timeline, by_rank)
    if not waits:
        return
    worst = max(waits, key=lambda wait: wait.seconds)
    frame, compiles = _slowest_frame(by_rank, worst)
    advice, caveat = _advice(by_rank, worst, compiles)
    total = sum(wait.seconds for wait in waits)
    fatal = worst.seconds >= TIMEOUT_S
    yield make_finding(
        timeline,
        "CD641",
        _title(worst, fatal=fatal),
        advice + (_TIMEOUT if fatal else ""),
        caveat=caveat,
        location=frame,
        severity="error" if fatal else None,
        count=len(waits),
        steps=(wait.step for wait in waits if wait.step is not None),
        cost_s=total,
        evidence={
            "waits": [
                pick(wait, "step", "slow", "waiting", "seconds")
                for wait in sorted(waits, key=lambda wait: -wait.seconds)[:NAMED]
            ],
            "compile_ids": [item.compile_id for item in compiles][:NAMED],
            "timeout_s": TIMEOUT_S,
        },
    )


def _compiles_by_rank(timeline: Timeline) -> dict[int, list[Compile]]:
    """Of every rank that has torch loaded: one that compiles nothing is there, and waits."""
    ranks = {
        process.index: process.rank
        for process in timeline.processes
        if process.rank is not None and process.torch is not None
    }
    found: dict[int, list[Compile]] = {rank: [] for rank in ranks.values()}
    for item in timeline.compiles:
        rank = ranks.get(item.process)
        if rank is not None:
            found[rank].append(item)
    return found


def _waits(timeline: Timeline, by_rank: Mapping[int, Sequence[Compile]]) -> list[Wait]:
    """By step, where every rank made steps; else of the whole run."""
    ranks = {process.index: process.rank for process in timeline.processes}
    walls: dict[tuple[int, int], float] = {}
    for step in timeline.steps:
        rank = ranks.get(step.process)
        if rank is not None:
            walls[rank, step.number] = max(step.wall_s, walls.get((rank, step.number), 0.0))
    stepped = {rank for rank, _ in walls}
    if timeline.counted_ranks or not stepped.issuperset(by_rank):
        seconds = {rank: sum(item.seconds for item in own) for rank, own in by_rank.items()}
        seconds |= dict(timeline.counted_compile_s)
        found = _wait(None, seconds)
        return [] if found is None else [found]
    by_step: dict[int, dict[int, float]] = {}
    for rank, own in by_rank.items():
        for item in own:
            at = by_step.setdefault(item.step, {})
            at[rank] = at.get(rank, 0.0) + item.seconds
    waits = [
        # A rank that was killed or ended before waits for nobody.
        _wait(step, {rank: at.get(rank, 0.0) for rank in by_rank if (rank, step) in walls})
        for step, at in sorted(by_step.items())
    ]
    return [
        waited
        for wait in waits
        if wait is not None
        and (waited := _waited(wait, by_step[wait.step or 0], walls)) is not None
    ]


def _waited(
    wait: Wait, compiling: Mapping[int, float], walls: Mapping[tuple[int, int], float]
) -> Wait | None:
    """Only with the ranks whose own step became as long; None where that is none: they meet in no
    collective. What a rank waits for may be in its next step."""
    step = wait.step or 0
    waiting = tuple(
        rank
        for rank in wait.waiting
        if walls.get((rank, step), 0.0)
        + walls.get((rank, step + 1), 0.0)
        - compiling.get(rank, 0.0)
        >= WAITED * wait.seconds
    )
    return replace(wait, waiting=waiting) if waiting else None


def _wait(step: int | None, seconds: Mapping[int, float]) -> Wait | None:
    """None where nobody waits long, or there is nobody else."""
    if len(seconds) < 2:
        return None
    most, least = max(seconds.values()), min(seconds.values())
    if most - least < WAIT_S:
        return None
    middle = (most + least) / 2
    return Wait(
        step,
        tuple(sorted(rank for rank, value in seconds.items() if value > middle)),
        tuple(sorted(rank for rank, value in seconds.items() if value <= middle)),
        most - least,
    )


def _slowest_frame(
    by_rank: Mapping[int, Sequence[Compile]], wait: Wait
) -> tuple[Location | None, list[Compile]]:
    """The frame on which a slow rank spent most beyond what a waiting one did, and its compiles."""
    slow = next((by_rank[rank] for rank in wait.slow if rank in by_rank), ())
    other = next((by_rank[rank] for rank in wait.waiting if rank in by_rank), ())
    more: dict[Location, float] = {}
    for own, sign in ((slow, 1), (other, -1)):
        for item in _in_step(own, wait.step):
            if item.frame.file:
                more[item.frame] = more.get(item.frame, 0.0) + sign * item.seconds
    frame = max(more, key=lambda where: more[where], default=None)
    return frame, [item for item in _in_step(slow, wait.step) if item.frame == frame]


def _in_step(compiles: Iterable[Compile], step: int | None) -> list[Compile]:
    return [item for item in compiles if step is None or item.step == step]


def _advice(
    by_rank: Mapping[int, Sequence[Compile]], wait: Wait, compiles: Sequence[Compile]
) -> tuple[str, str | None]:
    """By what the slow rank did that a waiting one did not, and what to mind."""
    if any(item.recompile is not None for item in compiles):
        return _RECOMPILE, _COLLECTIVES
    other = next((by_rank[rank] for rank in wait.waiting if rank in by_rank), ())
    frames = {item.frame for item in _in_step(other, wait.step)}
    both = any(item.frame in frames for item in compiles)
    return (_CACHES, _KEYS) if both else (_TOGETHER, None)


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


RULES: tuple[Rule, ...] = (find_waits_for_compiles,)
