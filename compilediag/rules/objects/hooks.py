"""Objects that the program makes: hyperparameters of an optimizer as tensors, and hooks that are
left to Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.rules.case import Case
from compilediag.rules.changes import Change, Edit
from compilediag_harness.wire import Location, ObjectChange

_HYPERPARAMETER = re.compile(r".+\.param_groups\[\d+\]\['(\w+)'\]")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")
_HOOK = re.compile(r"\._(?:forward|backward)(?:_pre)?_hooks(?:_\w+)?\[")

_ROUNDED = "it is float32 then; assigning a number to it later makes it a float again"
_SPLIT = "the graph is split where the hook is called, and the hook runs eager"


def object_candidates(case: Case) -> Iterator[Change]:
    """What is done to an object when it is made or registered."""
    yield from _hyperparameter(case)
    yield from _hook(case)


def _hyperparameter(case: Case) -> Iterator[Change]:
    """torch's schedulers write into a tensor in place: its value is no constant of the graph."""
    found = _HYPERPARAMETER.fullmatch(case.source)
    values = [value for pair in case.values for value in pair]
    if case.finding.rule != "CD116" or found is None or not values:
        return
    if not all(map(_FLOAT.fullmatch, values)):
        return
    name = found[1]
    yield Change(
        "object",
        f'for group in optimizer.param_groups: group["{name}"] = torch.tensor(group["{name}"])'
        "  # after the optimizer is made",
        _ROUNDED,
        objects=(ObjectChange("tensor_hyperparameter", name),),
    )


def _hook(case: Case) -> Iterator[Change]:
    """A guard on what a hook reads is one on all of the compiled function."""
    place = case.finding.location
    if case.finding.rule not in ("CD101", "CD102", "CD103", "CD104", "CD109") or place is None:
        return
    name = (place.function or "").rpartition(".")[2]
    of_hook = _HOOK.search(case.source) is not None
    if not of_hook and case.finding.rule != "CD109":  # that a hook reads it shows its registration
        return
    if not name.isidentifier() or not case.is_own(place.file):
        return
    one = f"disable_hook:{place.file}:{name}:{place.line}"
    yield Change(
        "source",
        f"{place.file}:{place.line}: torch.compiler.disable({name}) where it is registered",
        _SPLIT,
        disables=name,
        edits=(Edit(place.file or "", place.line or 0, "disabled_hook"),),
        same_as=one,
    )
    if not of_hook:
        return
    yield Change(
        "object",
        f"torch.compiler.disable({name})  # where it is registered as a hook, "
        f"{place.file}:{place.line}",
        _SPLIT,
        disables=name,
        same_as=one,
        objects=(
            ObjectChange("disable_hook", name, Location(place.file or "", place.line or 0, name)),
        ),
    )
