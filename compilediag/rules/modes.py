"""Recompiles for the state of torch, of an optimizer or of compiled autograd, which no variable of
the program holds, and those of unknown cause (CD111, CD116, CD153, CD190)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilediag.diagnosis.findings import Finding
from compilediag.rules.facts import Facts, is_number, list_values
from compilediag.rules.make_finding import Advice, make_finding
from compilediag.rules.objects import FIRST_CALL
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.rules.values import NUMBER
from compilediag.timeline.timeline import Timeline

BOTH_MODES = Advice("one graph for each mode: leave it where both are wanted")
ONE_STATE = Advice(
    "torch makes a graph for each {setting}: leave it where they are few; else set it once, before "
    "the first compiled call"
)
LR_TENSOR = Advice(
    "construct the optimizer with lr=torch.tensor(...): torch's schedulers change it in place, and "
    "other code with fill_",
    "float32, where Python computes in double: last digits may differ",
    "lr_tensor",
)
SAME_OPTIMIZER = Advice(
    "torch guards on the optimizer's groups, options and set of gradients: keep them the same at "
    "every step"
)
FIRST_STATE = Advice(
    "torch guards on the optimizer's state: two compiles are normal, since the first step makes "
    "it; keep its keys the same at every later step"
)
UNKNOWN = Advice("could not determine the cause; the guard is shown as torch prints it")
NO_REASON = Advice("could not determine: torch gave no reason; try TORCH_LOGS=recompiles_verbose")

_MODES = ("train_eval", "grad_mode", "inference_mode", "autocast")
_KEYS = re.compile(r"\d+ keys?|.*(?:absent|present)")
_DICT = re.compile(r"\.(?:param_groups\[\d+\]|state(?:\[list\(.*\)\[\d+\]\])?)$")
_STATE = re.compile(r"(?:^|\.)state(?:$|[.\[])")


def _describe_mode(known: Facts) -> TitleAndAdvice:
    kind = known.group.kind or ""
    mode = next((name for name in _MODES if name in kind), None)
    what = (mode or kind).replace("_", " ") or "global state of torch"
    title = "train and eval alternate" if mode == "train_eval" else f"{what} changed"
    return title, ONE_STATE.fill(setting=what) if mode is None else BOTH_MODES


def _describe_optimizer(known: Facts) -> TitleAndAdvice:
    group, variable = known.group, known.group.variable
    title, values = f"{group.kind or 'a value'} of the optimizer changed", list_values(group)
    if group.kind == "lr":
        return title, LR_TENSOR
    if not known.later and known.first_call is not None:
        return title, FIRST_CALL
    if _DICT.search(variable) or any(map(_KEYS.fullmatch, values)):
        return title, FIRST_STATE if _STATE.search(variable) else SAME_OPTIMIZER
    numbers = bool(values) and all(map(is_number, values))
    return title, NUMBER if numbers and not variable.endswith("param_groups") else SAME_OPTIMIZER


def _describe_unknown(known: Facts) -> TitleAndAdvice:
    group = known.group
    if group.first.guard:
        return "recompile of unknown cause: {guard}", UNKNOWN
    return "recompile without a reason", NO_REASON


def find_autograd_recaptures(timeline: Timeline) -> Iterable[Finding]:
    """CD153: compiled autograd compiled a backward graph again. Once, in the second step, is
    normal: gradients exist then."""
    captures = [
        event
        for event in timeline.compiles
        if event.compile_id.startswith("!") and event.forward and event.guarded
    ]
    misses = [warning for warning in timeline.warnings if "Cache miss due to" in warning.text]
    again = captures[1:]
    if not again and len(misses) < 2:
        return
    yield make_finding(
        timeline,
        "CD153",
        f"compiled autograd compiled its backward graph {max(len(captures), 1)} times",
        "warm up two whole steps; keep shapes and the set of autograd nodes constant",
        caveat="the second step captures once more, because the gradients exist by then",
        severity="info" if len(again) < 2 and len(misses) < 3 else "warning",
        confidence="exact" if again else "text",
        # The captured graph is generated code: a line of it leads nowhere.
        location=next(
            (event.frame for event in again if event.frame.file[:1] not in ("", "<")), None
        ),
        count=len(again) or len(misses),
        steps=(event.step for event in (again or misses)),
        cost_s=sum(event.seconds for event in again) if again else None,
        evidence={
            "compile_ids": [event.compile_id for event in captures],
            "misses": [warning.text[:400] for warning in misses[:8]],
        },
        # the program's call of backward
        called_from=next(
            (event for event in again if event.entered_at or event.entered_from), None
        ),
    )


RULES = (
    RecompileRule("CD111", _describe_mode),
    RecompileRule("CD116", _describe_optimizer),
    RecompileRule("CD190", _describe_unknown),
)
