"""Reports of ablations: curves of a model, whole and by layer, checked against its depth.

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

from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.redaction import in_process
from compilediag_harness.user_api.to_jsonable import (
    clip_name,
    parse_config,
    parse_count,
    parse_float,
)
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
        check = _Checks(int(given.get("not_finite") or 0))
        self.name = check.check_text(given.get("name"), "name must name it")
        self.architecture = check.check_text(
            given.get("architecture"), "architecture must name the model under test"
        )
        self.depth = parse_count(given.get("depth"), "depth")
        check.require(self.depth > 0, "depth must be 1 or more")
        self.config: dict[str, Any] = parse_config(given.get("config"))
        """What else identifies the model and the run."""
        baseline = given.get("baseline")
        self.baseline = None if baseline is None else clip_name(baseline)
        """The report this one is to be compared with, by its name."""
        self.steps = check.check_steps(given.get("steps"))
        self.curves = check.check_curves(given.get("curves"), "curves", len(self.steps))
        self.layers = check.check_layers(given.get("layers"), self.depth, len(self.steps))
        self.not_finite = check.not_finite
        """NaN and infinities, which became null."""
        known = {"schema", "schema_version", *FIELDS}
        self.unknown = {str(key): value for key, value in given.items() if key not in known}
        """Fields of a later version, as they were read: `write` writes them back."""
        curves = len(self.curves) + sum(len(layer_curves) for layer_curves in self.layers.values())
        has_curve = bool(self.curves or self.layers)
        check.require(has_curve, "there is no curve: give `curves`, `layers`, or both")
        held = len(self.steps) * curves
        problem = f"the curves hold {held:,} numbers, and {MAX_NUMBERS:,} are the most"
        check.require(held <= MAX_NUMBERS, problem)
        check.refuse()

    def document(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in FIELDS}
        head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
        return {**head, **own, **self.unknown}

    def write(self, path: str | os.PathLike[str]) -> str:
        """Validate once more, because curves are lists that can grow, and write the file whole or
        not at all, without secrets in `config`. The receipt of an observed run links the file.

        Raises:
            AblationInvalid: it no longer fits; nothing is written.
            OSError: the disk does not take it; an older file is left as it was.
        """
        checked = Ablation(self.document())
        document = checked.document()
        document["config"] = in_process.redact_value(document["config"])
        content = tracked_run.write_json(path, document)
        uri, digest = Path(os.path.abspath(path)).as_uri(), hashlib.sha256(content).hexdigest()
        tracked_run.sinks.emit(
            lambda t, _: AblationWritten(
                t=t,
                name=checked.name,
                architecture=checked.architecture,
                depth=checked.depth,
                steps=len(checked.steps),
                curves=len(checked.curves),
                layers=len(checked.layers),
                baseline=checked.baseline,
                uri=uri,
                bytes=len(content),
                sha256=digest,
            )
        )
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
    """Make a report of what a model does without or with something.

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
    """Read a report file of this or any earlier version; fields of later ones are in `unknown`.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no report, half written, or of a newer major version.
    """
    document = tracked_run.read_json(path, SCHEMA, MAJOR)
    try:
        return Ablation(document)
    except (TypeError, ValueError) as error:
        raise AblationInvalid(f"{os.fspath(path)}: {error}") from error


class _Checks:
    """The problems of a report, as they are found."""

    def __init__(self, not_finite: int) -> None:
        self._problems: list[str] = []
        self.not_finite = not_finite

    def require(self, condition: bool, problem: str) -> bool:
        if not condition:
            self._problems.append(problem)
        return condition

    def refuse(self) -> None:
        if self._problems:
            more = len(self._problems) - MAX_PROBLEMS
            rest = f"; and {more} more problems" if more > 0 else ""
            raise AblationInvalid("; ".join(self._problems[:MAX_PROBLEMS]) + rest)

    def check_text(self, value: Any, problem: str) -> str:
        named = isinstance(value, str) and bool(value.strip())
        return clip_name(value) if self.require(named, problem) else ""

    def check_steps(self, value: Any) -> list[int]:
        if not isinstance(value, (list, tuple)):
            self._problems.append("steps must be a list of integers")
            return []
        given = cast("Sequence[Any]", value)
        problem = f"steps must hold 1 to {MAX_STEPS:,} integers, not {len(given):,}"
        if not self.require(0 < len(given) <= MAX_STEPS, problem):
            return []
        steps = [parse_count(step, "a step") for step in given]
        falls = next(((a, b) for a, b in pairwise(steps) if b <= a), None)
        if falls is not None:
            self._problems.append(f"steps must ascend: {falls[1]} follows {falls[0]}")
        return steps

    def check_layers(
        self, value: Any, depth: int, length: int
    ) -> dict[str, dict[str, list[float | None]]]:
        """Check the curves by layer; every layer of a model of this depth is there once."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._problems.append("layers must map each layer to its curves")
            return {}
        layers = cast("Mapping[Any, Any]", value)
        indexes: set[int] = set()
        for key in map(str, layers if depth else ()):
            parts = [int(part) for part in key.split(".") if _INDEX.match(part) and len(part) <= 9]
            if len(parts) != 1:
                self._problems.append(f"layer key {key[:80]!r} must hold exactly one number")
            elif parts[0] >= depth:
                self._problems.append(
                    f"layer key {key[:80]!r} is beyond depth {depth}: layers are 0 to {depth - 1}"
                )
            else:
                indexes.add(parts[0])
        missing = [str(index) for index in range(min(depth, MAX_STEPS)) if index not in indexes]
        if missing:
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            names = ", ".join(missing[:8])
            self._problems.append(f"depth is {depth}, and there is no layer {names}{more}")
        return {
            clip_name(key): self.check_curves(curves, f"layers[{str(key)!r}]", length)
            for key, curves in layers.items()
        }

    def check_curves(self, value: Any, where: str, length: int) -> dict[str, list[float | None]]:
        """Check the curves of one layer or of the model, each as long as the steps."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._problems.append(f"{where} must map each name to its numbers")
            return {}
        checked: dict[str, list[float | None]] = {}
        for name, curve in cast("Mapping[Any, Any]", value).items():
            path = f"{where}[{str(name)[:80]!r}]"
            if not isinstance(curve, Sequence) or isinstance(curve, (str, bytes)):
                self._problems.append(f"{path} must be a list of numbers")
                continue
            numbers = cast("Sequence[Any]", curve)
            problem = f"{path} has {len(numbers):,} numbers for {length:,} steps"
            if self.require(not length or len(numbers) == length, problem):
                checked[clip_name(name)] = [
                    self._drop_not_finite(parse_float(number, path)) for number in numbers
                ]
        return checked

    def _drop_not_finite(self, value: float | None) -> float | None:
        if value is None or math.isfinite(value):
            return value
        self.not_finite += 1
        return None
