"""Reports of ablations: curves of a model, whole and by layer, that fit the model they name.

A report is validated before it is written: every curve is as long as `steps`, the layer keys are
those of a model of that depth, the architecture is named. Reports of different weeks can
then be compared without a look at the program that made them.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from compilediag_harness.base import user_json
from compilediag_harness.user_api import tracker_log
from compilediag_harness.user_api.to_jsonable import to_config, to_count, to_float, to_name
from compilediag_harness.wire import AblationWritten

SCHEMA, SCHEMA_VERSION, MAJOR = "compilediag.ablation", "1.0", 1
"""Of the file. A minor version adds optional fields, a major one changes a meaning."""

FIELDS = (
    *("name", "architecture", "depth", "config", "baseline"),
    *("steps", "curves", "layers", "not_finite"),
)

MAX_STEPS = 1_000_000
"""Steps of a report."""

MAX_NUMBERS = 4_000_000
"""Numbers of all curves of a report together."""

MAX_PROBLEMS = 20

_INDEX = re.compile(r"\d+\Z")

Curve = Sequence[float | None]


class AblationInvalid(ValueError):
    """A report does not fit the model it names; the message lists every problem."""


class Ablation:
    """One report; make it with `ablation()`, or read it with `read_ablation()`."""

    __slots__ = (
        *("architecture", "baseline", "config", "curves", "depth", "layers", "name"),
        *("not_finite", "steps", "unknown"),
    )

    def __init__(self, given: Mapping[str, Any]) -> None:
        problems: list[str] = []
        self.name = _text(given.get("name"), "name", problems)
        self.architecture = _text(given.get("architecture"), "architecture", problems)
        self.depth = _depth(given.get("depth"), problems)
        self.config: dict[str, Any] = to_config(given.get("config"))
        """What else identifies the model and the run."""
        baseline = given.get("baseline")
        self.baseline = None if baseline is None else to_name(baseline)
        """The report this one is to be held against, by its name."""
        self.steps = _steps(given.get("steps"), problems)
        lost = [int(given.get("not_finite") or 0)]
        self.curves = _curves(given.get("curves"), "curves", len(self.steps), problems, lost)
        self.layers = self._layers(given.get("layers"), problems, lost)
        self.not_finite = lost[0]
        """NaN and infinities, which became null."""
        known = {"schema", "schema_version", *FIELDS}
        self.unknown = {str(key): item for key, item in given.items() if key not in known}
        """Fields of a later version, kept as they were read."""
        if not self.curves and not self.layers:
            problems.append("there is no curve: give `curves`, `layers`, or both")
        held = len(self.steps) * (
            len(self.curves) + sum(len(item) for item in self.layers.values())
        )
        if held > MAX_NUMBERS:
            problems.append(f"the curves hold {held:,} numbers, and {MAX_NUMBERS:,} are the most")
        _refuse(problems)

    def _layers(
        self, given: Any, problems: list[str], lost: list[int]
    ) -> dict[str, dict[str, list[float | None]]]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            problems.append("layers must map each layer to its curves")
            return {}
        layers = cast("Mapping[Any, Any]", given)
        problems += key_problems([str(key) for key in layers], self.depth)
        return {
            to_name(key): _curves(item, f"layers[{str(key)!r}]", len(self.steps), problems, lost)
            for key, item in layers.items()
        }

    def document(self) -> dict[str, Any]:
        """The report as the file has it."""
        own = {name: getattr(self, name) for name in FIELDS}
        head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
        return {**head, **own, **self.unknown}

    def write(self, path: str | os.PathLike[str]) -> str:
        """Validates once more, because curves are lists that can grow, and writes the file whole or
        not at all. A run that is observed links the file from its receipt.

        Raises:
            AblationInvalid: it no longer fits; nothing is written.
            OSError: the disk does not take it; an older file is left as it was.
        """
        checked = Ablation(self.document())
        content = user_json.write(path, checked.document())
        _emit(checked, Path(os.path.abspath(path)).as_uri(), content)
        return os.fspath(path)

    def __repr__(self) -> str:
        return f"<ablation {self.name!r} of {self.architecture}, {len(self.steps)} steps>"


def ablation(
    name: str,
    *,
    architecture: str,
    depth: int,
    steps: Iterable[int],
    curves: Mapping[str, Curve] | None = None,
    layers: Mapping[Any, Mapping[str, Curve]] | None = None,
    config: Any = None,
    baseline: str | None = None,
) -> Ablation:
    """A report of what a model does without or with something.

    Args:
        name: what was changed, such as "no-rope".
        architecture: the model under test, such as "llama".
        depth: its layers.
        steps: at which the curves have their numbers, ascending.
        curves: name to numbers of the whole model; None where nothing was measured.
        layers: layer to curves. A key is a number from 0 to depth - 1, or a module's name with one
            number in it, such as "model.layers.3.mlp"; every layer is there.
        config: what else identifies the model and the run.
        baseline: name of the report to compare with.

    Raises:
        AblationInvalid: it does not fit; every problem is named.
        TypeError: something is no number. A tensor is none: reading it may wait for its device.
    """
    given = {"name": name, "architecture": architecture, "depth": depth, "config": config}
    given |= {"steps": list(steps), "curves": curves, "layers": layers, "baseline": baseline}
    return Ablation(given)


def read_ablation(path: str | os.PathLike[str]) -> Ablation:
    """The report in a file, of this and every earlier version; fields of later ones are kept.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no report, half written, or of a newer major version.
    """
    document = user_json.read(path, SCHEMA, MAJOR)
    try:
        return Ablation(document)
    except (TypeError, ValueError) as error:
        raise AblationInvalid(f"{os.fspath(path)}: {error}") from error


def key_problems(keys: Sequence[str], depth: int) -> list[str]:
    """What is wrong with the keys of layers, for a model of so many."""
    if depth <= 0:
        return []
    problems: list[str] = []
    found: set[int] = set()
    for key in keys:
        numbers = [int(part) for part in key.split(".") if _INDEX.match(part) and len(part) <= 9]
        if len(numbers) != 1:
            problems.append(f"layer key {key[:80]!r} must hold exactly one number")
        elif numbers[0] >= depth:
            problems.append(
                f"layer key {key[:80]!r} is beyond depth {depth}: layers are 0 to {depth - 1}"
            )
        else:
            found.add(numbers[0])
    missing = [str(index) for index in range(min(depth, MAX_STEPS)) if index not in found]
    if missing:
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        problems.append(f"depth is {depth}, and there is no layer {', '.join(missing[:8])}{more}")
    return problems


def _text(value: Any, what: str, problems: list[str]) -> str:
    if not isinstance(value, str) or not value.strip():
        problems.append(f"{what} must name {'it' if what == 'name' else 'the model under test'}")
        return ""
    return to_name(value)


def _depth(value: Any, problems: list[str]) -> int:
    depth = to_count(value, "depth")
    if depth == 0:
        problems.append("depth must be 1 or more")
    return depth


def _steps(value: Any, problems: list[str]) -> list[int]:
    if not isinstance(value, (list, tuple)):
        problems.append("steps must be a list of integers")
        return []
    given = cast("Sequence[Any]", value)
    if not 0 < len(given) <= MAX_STEPS:
        problems.append(f"steps must hold 1 to {MAX_STEPS:,} integers, not {len(given):,}")
        return []
    steps = [to_count(item, "a step") for item in given]
    for before, after in pairwise(steps):
        if after <= before:
            problems.append(f"steps must ascend: {after} follows {before}")
            break
    return steps


def _curves(
    value: Any, where: str, length: int, problems: list[str], lost: list[int]
) -> dict[str, list[float | None]]:
    """The curves of one layer or of the model, each as long as the steps."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(f"{where} must map each name to its numbers")
        return {}
    curves = cast("Mapping[Any, Any]", value)
    found: dict[str, list[float | None]] = {}
    for name, curve in curves.items():
        curve_path = f"{where}[{str(name)[:80]!r}]"
        if not isinstance(curve, Sequence) or isinstance(curve, (str, bytes)):
            problems.append(f"{curve_path} must be a list of numbers")
            continue
        numbers = cast("Sequence[Any]", curve)
        if length and len(numbers) != length:
            problems.append(f"{curve_path} has {len(numbers):,} numbers for {length:,} steps")
            continue
        found[to_name(name)] = [_finite(to_float(item, curve_path), lost) for item in numbers]
    return found


def _finite(number: float | None, lost: list[int]) -> float | None:
    if number is None or math.isfinite(number):
        return number
    lost[0] += 1
    return None


def _refuse(problems: list[str]) -> None:
    if not problems:
        return
    shown = "; ".join(problems[:MAX_PROBLEMS])
    more = len(problems) - MAX_PROBLEMS
    raise AblationInvalid(shown + (f"; and {more} more problems" if more > 0 else ""))


def _emit(report: Ablation, uri: str, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    tracker_log.sinks.emit(
        lambda t, _: AblationWritten(
            t=t,
            name=report.name,
            architecture=report.architecture,
            depth=report.depth,
            steps=len(report.steps),
            curves=len(report.curves),
            layers=len(report.layers),
            baseline=report.baseline,
            uri=uri,
            bytes=len(content),
            sha256=digest,
        )
    )
