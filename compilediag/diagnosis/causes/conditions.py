"""A false guard with everything decided about it: family, variable, expected and actual."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from compilediag.diagnosis.guards.checks import UNKNOWN, Guard, guard_of, keys_of
from compilediag.diagnosis.guards.families import Decision, GuardContext, decide
from compilediag.diagnosis.guards.reason import PrintedReason, parse_reason
from compilediag.diagnosis.guards.source import GuardPath, display_name, path_of
from compilediag.timeline.ownership import ownership_of
from compilediag_harness.wire import EntryDiff, FalseGuard, Location

_LOCAL = re.compile(r"L\[\s*['\"](\w+)['\"]\s*\]")


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that had to be true for a cache entry to fit, and was not."""

    false: FalseGuard
    guard: Guard
    decision: Decision
    variable: str
    expected: str | None
    actual: str | None
    place: Location | None
    """The user's line, of the process or of the printed reason."""
    position: int
    """In guard order."""
    line_text: str | None = None
    """The source text of `place`."""
    novel: bool | None = None
    """No cache entry accepts the present value; None where that is not known."""

    @property
    def printed(self) -> bool:
        """Known from torch's printed reason alone."""
        return self.false.leaf == "PRINTED"

    @property
    def subject(self) -> GuardPath | None:
        return self.guard.subject


def conditions_of(
    entry: EntryDiff, reasons: Iterable[str], frame: Location | None
) -> tuple[Condition, ...]:
    """The conditions of one cache entry. Where it has no leaves, those of what torch printed."""
    every = (parse_reason(text) for text in reasons)
    printed = next((each for each in every if each.compile_id == entry.compile_id), None)
    guards = entry.guards or ((false_guard_of(printed),) if printed is not None else ())
    found = (condition_of(false, at, frame, printed) for at, false in enumerate(guards))
    return tuple(part for condition in found for part in _modes_of(condition))


def _modes_of(condition: Condition) -> Iterator[Condition]:
    """The parts of torch's global state that changed, each a condition: one leaf guards them all.
    What belongs to one device's autocast is one part."""
    guard, kind = condition.guard, condition.decision.kind
    parts: dict[str, list[str]] = {}
    for name in (guard.aspect or "").split() if guard.check == "state" else ():
        parts.setdefault(".".join(name.split(".")[:2]), []).append(name)
    if len(parts) < 2 or kind != guard.aspect:
        yield condition
        return
    for names in parts.values():
        aspect = " ".join(names)
        yield replace(
            condition,
            guard=replace(guard, aspect=aspect),
            decision=replace(condition.decision, kind=aspect),
            variable=aspect,
        )


def false_guard_of(reason: PrintedReason) -> FalseGuard:
    """A printed reason as a false guard."""
    return FalseGuard(
        source="",
        leaf="PRINTED",
        text=reason.expression,
        user=reason.location,
        hint=reason.hint,
    )


def condition_of(
    false: FalseGuard,
    position: int = 0,
    frame: Location | None = None,
    printed: PrintedReason | None = None,
) -> Condition:
    """Decides everything about one false guard; `printed` is torch's reason for its entry."""
    same = printed is not None and _LOCAL.sub(r"\1", false.text) == printed.expression
    own = printed if same else None
    guard = _read(false, printed)
    place = false.user or (own.location if own else None)
    expected = false.expected or guard.expected
    if expected is not None and (guard.check == "shape" or guard.aspect == "number"):
        expected = _LOCAL.sub(r"\1", expected)
    # For an attribute that came or went, the process shows the object it is read from.
    actual = guard.actual if guard.check == "attribute" else false.actual or guard.actual
    known = GuardContext(
        facts=false.facts,
        place=place,
        frame=frame,
        user_line=own.user_line if own else None,
        explanation=(own.comment if own else None) or false.hint,
        actual=actual,
        writers=false.writers,
    )
    if false.expected is not None and guard.check in ("identity", "value"):
        guard = replace(guard, expected=false.expected)
    decision = decide(guard, known)
    if decision.kind == "inference_mode":
        expected, actual = ("off", "on") if false.facts.inference_mode else ("on", "off")
    variable = ""
    if guard.check == "aliasing" and guard.key:
        variable = _LOCAL.sub(r"\1", guard.key)
    elif decision.code == "CD111" and (guard.check == "state" or decision.kind == "inference_mode"):
        variable = decision.kind or "global state"
    elif decision.code == "CD112":
        variable = "backend"
    elif guard.subject is not None:
        hint = false.hint or (own.hint if own else None)
        in_torch = frame is not None and ownership_of(frame.file) == "torch"
        variable = display_name(guard.subject, false.facts, hint, in_torch=in_torch)
    text = false.line_text or (own.user_line if own else None)
    return Condition(
        *(false, guard, decision, variable, expected, actual, place, position, text), false.novel
    )


def _read(false: FalseGuard, printed: PrintedReason | None) -> Guard:
    """The guard's text, completed from its leaf and its source."""
    guard = guard_of(false.text)
    if false.leaf == "GLOBAL_STATE" and (guard.check != "state" or guard.aspect is None):
        # torch 2.7 writes the leaf without the component; its printed reason has it.
        read = guard_of(printed.expression) if printed is not None else UNKNOWN
        guard = read if read.check == "state" else Guard("state", None)
    if not false.text and false.leaf not in ("PRINTED", "GLOBAL_STATE"):
        guard = UNKNOWN
    path = path_of(false.source) if false.source else None
    has_path = guard.path is not None and guard.check not in ("tensor", "tensor_type")
    if path is not None and path.scope != "state" and not has_path:
        guard = replace(guard, path=path)
    if guard.aspect == "autocast" and false.facts.inference_mode is not None:
        # Inference mode and autocast changed at once: torch guards autocast by itself too.
        changed = keys_of(guard.expected or "") ^ keys_of(guard.actual or "")
        if any(key.startswith("Autograd") for key in changed):
            guard = replace(guard, aspect="inference")
    return guard
