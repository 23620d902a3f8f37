"""Folds the metrics rows of one process into compiles, each with what torch asked before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from compilediag.timeline.compiles import Compile, Recompile
from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import Compiled, GraphBroke, Recompiled, TorchSeen

_AT_LIMIT = re.compile(
    r"recompile[_ ]limit (?:reached|exceeded)|RecompileLimit|accumulated_recompile_limit"
)


def compiles_of(part: ProcessEvents) -> list[Compile]:
    """The attempts of one process, each with the question torch asked before it."""
    questions = {(item.epoch, item.compile_id): item for item in part.of(Recompiled)}
    rows, torch = part.of(Compiled), part.last(TorchSeen)
    backward_s = _backward_seconds(rows)
    told = torch is None or torch.hooks.get("metrics_rows", True)
    # Rows made of a text log have no graph either: there a break says nothing about its frame.
    broken_ids = {(item.epoch, item.compile_id) for item in part.of(GraphBroke) if told}
    made: list[Compile] = []
    for reported in rows:
        row = _as_it_was(reported, broken_ids)
        key = (row.epoch, row.compile_id)
        question = questions.pop(key, None) if row.forward else None
        recompile = _recompile(part.index, row, question, backward_s.get(key, 0.0))
        made.append(
            Compile(
                process=part.index,
                compile_id=row.compile_id,
                epoch=row.epoch,
                frame=row.frame,
                step=row.step,
                t=row.t,
                kind=_kind(row, recompile),
                forward=row.forward,
                guarded=row.guarded,
                seconds=row.seconds,
                backend_s=row.backend_s,
                graph_ops=row.graph_ops,
                guards=row.guards,
                fail_type=row.fail_type,
                fail_reason=row.fail_reason,
                restart_reasons=row.restart_reasons,
                recompile=recompile,
                cache_hits=row.cache_hits,
                cache_misses=row.cache_misses,
            )
        )
    # A question without a row: the process died, or the compile raised before its row was made.
    made.extend(_unfinished(part.index, question) for question in questions.values())
    made.sort(key=lambda item: item.t)
    return made


def _as_it_was(row: Compiled, broken_ids: set[tuple[int, str]]) -> Compiled:
    """A frame given up at a break in a loop is not compiled, though 2.7 calls it guarded: it has a
    break and no graph, not even an empty one. Later versions say so themselves."""
    given_up = row.graph_ops is None and (row.epoch, row.compile_id) in broken_ids
    if not (row.forward and row.guarded and given_up):
        return row
    reason = row.fail_reason or "a graph break in a loop: the whole frame runs eager"
    return replace(row, guarded=False, fail_reason=reason)


def _backward_seconds(rows: Sequence[Compiled]) -> dict[tuple[int, str], float]:
    """Seconds of lazily compiled backwards, which bear the compile id of their forward."""
    seconds: dict[tuple[int, str], float] = {}
    for row in rows:
        if not row.forward:
            key = (row.epoch, row.compile_id)
            seconds[key] = seconds.get(key, 0.0) + row.seconds
    return seconds


def _recompile(
    process: int, row: Compiled, question: Recompiled | None, backward_s: float
) -> Recompile | None:
    """The recompile behind a row: from torch's question, or from the row's own reason where the
    question could not be heard."""
    if not row.forward or (question is None and row.recompile_reason is None):
        return None
    if question is None:
        reasons = (str(row.recompile_reason),)
        question = Recompiled(
            row.t,
            row.step,
            row.compile_id,
            row.epoch,
            row.frame,
            reasons,
            (),
            0.0,
            "torch's question was not heard: only its first reason is known",
        )
    return Recompile(
        process=process,
        compile_id=row.compile_id,
        epoch=row.epoch,
        frame=question.frame,
        step=question.step,
        t=question.t,
        reasons=question.reasons,
        entries=question.entries,
        seconds=row.seconds + backward_s if row.guarded else 0.0,
        produced=row.guarded,
        problem=question.problem,
        analysis_s=question.analysis_s,
    )


def _unfinished(process: int, question: Recompiled) -> Compile:
    recompile = Recompile(
        process,
        question.compile_id,
        question.epoch,
        question.frame,
        question.step,
        question.t,
        question.reasons,
        question.entries,
        0.0,
        False,
        question.problem,
        question.analysis_s,
    )
    return Compile(
        process=process,
        compile_id=question.compile_id,
        epoch=question.epoch,
        frame=question.frame,
        step=question.step,
        t=question.t,
        kind="failed",
        forward=True,
        guarded=False,
        seconds=0.0,
        backend_s=None,
        graph_ops=None,
        guards=None,
        fail_type=None,
        fail_reason="no metrics row: the compile did not end",
        restart_reasons=(),
        recompile=recompile,
    )


def _kind(row: Compiled, recompile: Recompile | None) -> str:
    if not row.forward:
        return "backward"
    if _tells_limit(row.fail_type) or _tells_limit(row.fail_reason):
        return "limit"
    if not row.guarded:
        return "failed"
    return "first" if recompile is None else "recompile"


def _tells_limit(text: str | None) -> bool:
    return text is not None and _AT_LIMIT.search(text) is not None
