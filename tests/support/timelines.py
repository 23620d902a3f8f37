"""Timelines built by hand, for the tests of everything that stands on one."""

from collections.abc import Sequence

from compilediag.timeline.compiles import CompileId
from compilediag.timeline.frames import collect_frames
from compilediag.timeline.timeline import BreakSite, Compile, Process, Recompile, TextLog, Timeline
from compilediag_harness.wire import (
    EntryDiff,
    FalseGuard,
    GuardFacts,
    HazardsChecked,
    Location,
    ProcessEnded,
    ProcessStarted,
    TorchSeen,
)

ROOT = "/home/user"
FILE = f"{ROOT}/app.py"
TORCH_FILE = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
PACKAGE_FILE = "/venv/lib/python3.11/site-packages/einops/layers.py"
WHERE = Location(FILE, 10, "forward")


def false_guard(source: str = "L['n']", text: str = "L['n'] == 2", **more: object) -> FalseGuard:
    """An integer argument that changed from 2 to 3."""
    values = {"leaf": "EQUALS_MATCH", "expected": "2", "actual": "3", "user": WHERE, **more}
    return FalseGuard(source, text=text, facts=GuardFacts(root="argument"), **values)


def recompile(
    compile_id: str = "0/1",
    *,
    step: int = 1,
    where: Location = WHERE,
    seconds: float = 0.5,
    produced: bool = True,
    guards: Sequence[FalseGuard] = (),
    process: int = 0,
    epoch: int = 0,
    problem: str | None = None,
) -> Recompile:
    """torch asked why the entry 0/0 does not fit."""
    guards = tuple(guards) or (false_guard(),)
    return Recompile(
        *(float(step), step, compile_id, epoch, where),
        ("0/0: n == 2",),
        (EntryDiff("0/0", guards, checked=10),),
        0.0,
        problem,
        process=process,
        seconds=seconds if produced else 0.0,
        produced=produced,
    )


def attempt(
    compile_id: str = "0/0",
    *,
    kind: str = "first",
    step: int = 0,
    where: Location = WHERE,
    seconds: float = 1.0,
    graph_ops: int | None = 3,
    fail_type: str | None = None,
    fail_reason: str | None = None,
    restart_reasons: tuple[str, ...] = (),
    cause: Recompile | None = None,
    process: int = 0,
    epoch: int = 0,
) -> Compile:
    """One metrics row. `kind` as in Compile; a limit, failed or backward row has no graph."""
    guarded = kind in ("first", "recompile")
    if kind in ("recompile", "limit") and cause is None:
        cause = recompile(
            compile_id, step=step, where=where, produced=guarded, process=process, epoch=epoch
        )
    return Compile(
        process=process,
        compile_id=compile_id,
        epoch=epoch,
        frame=where,
        step=step,
        t=float(step),
        kind=kind,
        forward=kind != "backward",
        guarded=guarded,
        seconds=seconds,
        backend_s=None,
        graph_ops=graph_ops if guarded else None,
        guards=5 if guarded else None,
        cache_size=None,
        recompile_reason=None,
        limit=8,
        fail_type=fail_type,
        fail_reason=fail_reason,
        restart_reasons=restart_reasons,
        recompile=cause,
    )


def site(
    text: str,
    *,
    file: str = FILE,
    line: int = 14,
    function: str = "forward",
    count: int = 1,
    compile_ids: tuple[str, ...] = ("0/0",),
) -> BreakSite:
    """A break where torch named it."""
    told = {"text": text, "count": count, "compile_ids": compile_ids, "first_step": 0}
    attempts = frozenset(CompileId(0, 0, name.partition("_")[0]) for name in compile_ids)
    return BreakSite(file, line, function, **told, attempts=attempts)


def hazards(
    guards: Sequence[FalseGuard],
    *,
    step: int = 0,
    where: Location = WHERE,
    skipped: str | None = None,
) -> HazardsChecked:
    """The last look at a frame's guards."""
    return HazardsChecked(0.0, step, where, tuple(guards), 10, 0, 0.0, skipped)


def process(
    index: int = 0,
    *,
    counters: dict[str, int] | None = None,
    ended: bool = True,
    hooks: dict[str, bool] | None = None,
    torch: bool = True,
    records_dropped: int = 0,
    failure: str | None = None,
    facts: dict[str, object] | None = None,
) -> Process:
    """A process that saw torch and ended in order."""
    return Process(
        index,
        ProcessStarted(0.0, 1, 100 + index, 1, None, None, ("app.py",), "python", ROOT, "", "3.11"),
        TorchSeen(0.1, "2.13.0", None, hooks or {}, {}) if torch else None,
        facts or {},
        ProcessEnded(9.0, counters or {}, 0.0, records_dropped, None, failure) if ended else None,
    )


def timeline(compiles: Sequence[Compile] = (), **more: object) -> Timeline:
    """A run of one process with these attempts."""
    values: dict[str, object] = {
        "processes": (process(),),
        "frames": tuple(collect_frames(compiles)),
        "compiles": tuple(compiles),
        "recompiles": tuple(item.recompile for item in compiles if item.recompile is not None),
        "user_roots": (ROOT,),
        **more,
    }
    return Timeline(**values)


def at_limit(limit: int = 8) -> list[Compile]:
    """Twelve calls with distinct values: `limit` graphs, one refused attempt, then silence."""
    made = [attempt("0/0")]
    made += [attempt(f"0/{n}", kind="recompile", step=n) for n in range(1, limit)]
    # torch's row of the refused attempt names no code object.
    nowhere = Location("", 0, "")
    refused = attempt(
        f"0/{limit}",
        kind="limit",
        step=limit,
        where=nowhere,
        fail_type="Unsupported",
        fail_reason="Dynamo recompile limit exceeded\n  Explanation: ...",
        cause=recompile(f"0/{limit}", step=limit, produced=False),
    )
    return [*made, refused]


def log(
    recompiling: int = 0, limits: int = 0, sites: Sequence[tuple[str, int]] = (), **more: object
) -> TextLog:
    """A text log that was read completely."""
    return TextLog(recompiling, limits, set(sites), **more)
