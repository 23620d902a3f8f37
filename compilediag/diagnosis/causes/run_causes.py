"""The causes of every recompile of a run, found once and grouped by what is the same cause.

Causes of one recompile are every guard of the nearest cache entry that had to be true. What was new
is known too: values that no entry accepts, or that none accepts together. Of a leaf that guards all
of a tensor, or all of torch's state, a part is known where some entry has nothing against it. A
buffer that grows and the int that remembers its length (`self.seq_len`) are one cause.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from compilediag.diagnosis.causes.behind_breaks import BehindBreaks, find_behind_breaks
from compilediag.diagnosis.causes.cause_group import (
    ALWAYS_CONSTANT,
    Group,
    find_changed_dims,
    find_changed_sizes,
)
from compilediag.diagnosis.causes.conditions import (
    OBJECT_GONE,
    Condition,
    Invalidated,
    drop_consequences,
    identify_condition,
    is_other_instance,
    list_conditions,
    make_condition,
    make_distance_key,
    make_false_guard,
    select_nearest,
    select_this_instance,
)
from compilediag.diagnosis.causes.merge_by_common_cause import (
    ANOTHER_INSTANCE,
    collect_values,
    merge_by_common_cause,
)
from compilediag.diagnosis.codes import BY_KIND, REGISTER, TEMPORARY
from compilediag.diagnosis.findings import Cause, CauseId, Confidence, is_write_traced
from compilediag.diagnosis.guards.checks import UNKNOWN
from compilediag.diagnosis.guards.families import STRUCTURE, GuardContext, decide
from compilediag.diagnosis.guards.reason import parse_reasons
from compilediag.diagnosis.guards.source import GuardPath, find_paths
from compilediag.receipt.schema.compiles import MissedEntry, MissedGuard, mask_indices
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.process import extend_record
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import EntryDiff, Location

_Begins: TypeAlias = Mapping[tuple[str, str], Set[int]]
"""First lines of compiled functions, by file and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedCause(Cause):
    """A cause of one recompile of a run."""

    place: Location
    """The line to change."""
    id: CauseId
    """The same in every recompile of the run that has this cause."""


@dataclass(frozen=True, slots=True)
class RunCauses:
    """The causes of every recompile of a run."""

    by_compile: Mapping[CompileId, tuple[BlamedCause, ...]] = field(
        default_factory=dict[CompileId, tuple[BlamedCause, ...]]
    )
    """The primary cause first; attempts at the recompile limit included."""
    explained: Mapping[CompileId, Explanation] = field(
        default_factory=dict[CompileId, "Explanation"]
    )
    """With the cache entries that did not fit, as far as the process recorded them."""
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict[str, Sequence[Group]])
    """By code, in the order of their first recompile; of recompiles that count."""
    behind: BehindBreaks = field(default_factory=BehindBreaks)
    """The frames that graph breaks made."""

    def get_causes(self, recompile: Recompile) -> tuple[BlamedCause, ...]:
        """Get the causes of one recompile, the primary one first."""
        return self.by_compile[recompile.id]


def find_run_causes(timeline: Timeline) -> RunCauses:
    """Find and group the causes of every recompile of a run."""
    known: dict[object, Explanation] = {}
    asked = {recompile.id: recompile for recompile in timeline.recompiles}
    behind = find_behind_breaks(timeline)
    begins: dict[tuple[str, str], set[int]] = defaultdict(set)
    for frame in timeline.frames:
        begins[frame.where.file, frame.where.function].add(frame.where.line)
    by_compile: dict[CompileId, tuple[BlamedCause, ...]] = {}
    explained: dict[CompileId, Explanation] = {}
    for recompile in timeline.recompiles:
        # Ranks do the same: what decides the causes decides them once.
        worlds = find_other_worlds(recompile, asked)
        facts = (recompile.entries, recompile.reasons, recompile.frame, recompile.problem, worlds)
        explanation = known.get(facts)
        if explanation is None:
            explanation = known[facts] = explain_recompile(recompile, worlds)
        # Another instance of its class is called, or a broken function makes another call of it
        # within one step.
        nearest = explanation.entries[0].compile_id if explanation.entries else ""
        other = any(REGISTER[cause.rule].owner == "instance" for cause in explanation.causes)
        other = other or behind.is_between_calls(recompile, nearest)
        by_compile[recompile.id] = tuple(
            _make_blamed_cause(cause, recompile, timeline, begins, other_instance=other)
            for cause in explanation.causes
        )
        explained[recompile.id] = explanation
    members: dict[CauseId, list[tuple[BlamedCause, Recompile]]] = {}
    for recompile in timeline.counted_recompiles:
        own: dict[CauseId, BlamedCause] = {}
        for cause in by_compile[recompile.id]:
            own.setdefault(cause.id, cause)  # what a recompile has twice counts once
        for key, cause in own.items():
            members.setdefault(key, []).append((cause, recompile))
    single: list[Group] = []
    for key, pairs in members.items():
        causes, again = zip(*pairs, strict=True)
        single.append(Group(key, causes, again, causes[0].place))
    groups: dict[str, list[Group]] = {}
    values = collect_values((event, explained[event.id].false) for event in timeline.recompiles)
    for group in merge_by_common_cause(single, timeline, behind, values):
        groups.setdefault(group.code, []).append(group)
    return RunCauses(by_compile, explained, groups, behind)


def _make_blamed_cause(
    cause: Cause, recompile: Recompile, timeline: Timeline, begins: _Begins, *, other_instance: bool
) -> BlamedCause:
    # The user's line of the guard; where that lies in torch itself (an optimizer, a layer of
    # torch.nn), the frame that was compiled, if that is not torch's too.
    place, frame, roots = cause.location or recompile.frame, recompile.frame, timeline.user_roots
    if classify_ownership(place.file, roots) == "torch" != classify_ownership(frame.file, roots):
        place = frame
    if _is_small_size(cause, recompile):
        cause = replace(cause, kind="zero_one")
    kind = cause.kind if cause.rule in BY_KIND else None
    changed = REGISTER[cause.rule].changed
    if changed == "size" and _is_constant_size(cause, recompile):
        kind = CONSTANT_SIZE
    if other_instance and changed in _CALLED_WITH:
        kind = ANOTHER_INSTANCE
    # A `FixedShape` was calling what it wraps at every size it will run at.
    planned = changed == "size" and any(
        warmed.began <= recompile.t <= warmed.t
        for fixed_shape in timeline.fixed_shapes
        if fixed_shape.process == recompile.process
        for warmed in fixed_shape.warmed
    )
    above = (at for at in begins.get((place.file, place.function), ()) if at <= place.line)
    where = place.file, place.function, kind, planned, max(above, default=0)
    variable = cause.variable
    if changed == "identity" and variable.startswith(TEMPORARY):
        variable = mask_indices(variable)  # which items of a list are one tensor is chance
    key = CauseId(cause.rule, variable, *where)
    return extend_record(cause, BlamedCause, place=place, id=key)


def _is_small_size(cause: Cause, recompile: Recompile) -> bool:
    """True where 0 or 1 reached a graph for sizes from 2 to a limit, which torch prints as one
    condition: the entries before it say which size it was."""
    bounds = _BOUNDS.match(cause.guard) if cause.kind == "range" else None
    return bounds is not None and any(
        change.dimension == int(bounds["dimension"]) and change.after in ALWAYS_CONSTANT
        for entry in recompile.entries
        for guard in entry.guards
        if guard.source == bounds["source"]
        for change in find_changed_dims(guard.expected, guard.actual)
    )


def _is_constant_size(cause: Cause, recompile: Recompile) -> bool:
    """True where a size became 0 or 1, or was one and no entry is for another size: that says
    nothing about the sizes that other graphs are for."""
    pairs = [
        (guard.expected, guard.actual)
        for entry in recompile.entries
        for guard in entry.guards
        if guard.source == cause.source
    ]
    return all(find_changed_sizes([pair])[1] for pair in [*pairs, (cause.expected, cause.actual)])


# --- one recompile ------------------------------------------------------------------------------

COMBINATION = "CD120"
"""The code of values that were compiled for before, and not together."""

MAX_ENTRY_GUARDS = 16
"""Most false guards listed of an entry; the nearest one's are the causes of the recompile."""

CONSTANT_SIZE = "constant"
"""The kind of a size that became 0 or 1, or was one: torch takes both for constants."""
_BOUNDS = re.compile(r"2 <= (?P<source>.+)\.size\(\)\[(?P<dimension>\d+)\] <= \d+")
_CALLED_WITH = ("size", "metadata", "scalar")
"""What may change in what a frame is called with."""
_HIDES = ("type", "rank")
"""What else an entry expected of a tensor cannot be compared then."""

_MAX_PARTS, _MAX_TRIED = 4, 16
"""Values of a combination: more of them would say nothing; and values that may be in one, those
that most entries refuse."""


_NUMBER = re.compile(r"\d+")
_VALUES = ("value", "none", "identity", "attribute")


FalseOfEntry: TypeAlias = tuple[str, tuple[Cause, ...]]
"""The compile id of a cache entry, and its false guards without those that follow from others."""


class Explanation(NamedTuple):
    """The explanation of a recompile."""

    causes: tuple[Cause, ...]
    """The primary one first. All of them must be removed to avoid the recompile."""
    entries: tuple[MissedEntry, ...] = ()
    """Those that were evaluated in the process, nearest first; of a text those that it names."""
    false: tuple[FalseOfEntry, ...] = ()
    """Of the same, every value under its own name."""


def list_causes(recompile: Recompile) -> tuple[Cause, ...]:
    """List the causes of a recompile, the primary one first."""
    return explain_recompile(recompile).causes


def find_other_worlds(
    recompile: Recompile, asked: Mapping[CompileId, Recompile]
) -> tuple[str, frozenset[str]]:
    """Find the entry that served the last call of the frame ("" where it is not known), and those
    of whose false guards none has changed since: compiled in another world, they are no measure of
    what changed now. `asked`: every recompile of the run."""
    first = parse_reasons(recompile.reasons[0])[:1] if recompile.reasons else ()
    last = first[0].compile_id if first else None
    false = {entry.compile_id: _list_false(entry) for entry in recompile.entries}
    if last is None or last not in false:
        return "", frozenset()

    def find_differences(one: str, other: str) -> frozenset[Hashable]:
        """Find what of two entries differs: the question before the newer one lists the older."""
        for newer, older in ((one, other), (other, one)):
            event = asked.get(CompileId(recompile.process, recompile.epoch, newer))
            for entry in () if event is None else event.entries:
                if entry.compile_id == older:
                    return _list_false(entry)
        return frozenset()

    worlds = (
        other
        for other, guards in false.items()
        if guards and guards <= find_differences(last, other) - false[last]
    )
    return last, frozenset(worlds)


def _list_false(entry: EntryDiff) -> frozenset[Hashable]:
    return frozenset(guard.source or guard.text for guard in entry.guards)


def explain_recompile(
    recompile: Recompile, worlds: tuple[str, frozenset[str]] = ("", frozenset())
) -> Explanation:
    """Explain a recompile, by the guards evaluated in the process; where those are missing or
    incomplete (`problem`), by torch's printed reasons, with confidence "text". `worlds`: as
    `find_other_worlds` gives it."""
    entries, reasons, frame = recompile.entries, recompile.reasons, recompile.frame
    if entries and recompile.problem is None:
        conditions = mark_known_parts([list_conditions(entry, reasons, frame) for entry in entries])
        everywhere = [condition for entry in conditions for condition in entry]
        own = [drop_consequences(entry) for entry in conditions]
        if not recompile.entries_left_out:
            own = mark_new_variables(own)
        rest = [merge_companions(entry, everywhere) for entry in own]
        last, others = worlds
        by_id = {entry.compile_id: own for entry, own in zip(entries, rest, strict=True)}
        # Layers that share a forward serve one another's calls.
        others = frozenset[str]() if is_other_instance(by_id.get(last, ())) else others
        near = [own for compile_id, own in by_id.items() if compile_id not in others]
        together = find_combination(rest)
        nearest = select_nearest(near) or select_nearest(rest)
        if causes := (_combine(together),) if together else _sort_causes(nearest):
            ranked = sorted(
                zip(entries, conditions, own, rest, strict=True),
                key=lambda i: (i[0].compile_id in others, make_distance_key(i[3])),
            )
            false = [
                ((entry.compile_id, tuple(map(_make_cause, mine))), entry.left_out + len(every))
                for entry, every, mine, _ in ranked
            ]
            return Explanation(
                causes,
                tuple(_make_entry(*guards, count) for guards, count in false),
                tuple(guards for guards, _ in false),
            )
    return _explain_from_text(reasons, frame, recompile.problem)


def _make_entry(compile_id: str, own: Sequence[Cause], count: int | None) -> MissedEntry:
    """Make the entry of its false guards without those that follow from others, in guard order.
    `count`: of all of them; None where the text of a log names the first guard only."""
    guards = tuple(make_record(MissedGuard, cause) for cause in own[:MAX_ENTRY_GUARDS])
    left_out = None if count is None else count - len(guards)
    return MissedEntry(compile_id=compile_id, guards=guards, left_out=left_out)


def _explain_from_text(reasons: Sequence[str], frame: Location, problem: str | None) -> Explanation:
    """Explain by what torch printed: a reason for each entry, that of the most recently used one
    first. The text does not show which entry is nearest."""
    if not reasons:
        # torch recorded that it compiled again, and there is neither a guard nor a reason.
        nothing = decide(UNKNOWN, GuardContext())
        cause = Cause(nothing.code, "no_reason", guard=problem or "", confidence="text")
        return Explanation((cause,))
    parsed = [parse_reasons(text) for text in reasons]
    printed = [
        [
            make_condition(make_false_guard(reason), position, frame, reason)
            for position, reason in enumerate(of_entry)
        ]
        for of_entry in parsed
    ]
    false = tuple(
        (of_entry[0].compile_id, tuple(map(_make_cause, conditions)))
        for of_entry, conditions in zip(parsed, printed, strict=True)
        if of_entry[0].compile_id is not None
    )
    entries = tuple(_make_entry(*guards, None) for guards in false)
    return Explanation(_sort_causes(printed[0]), entries, false)


def _sort_causes(conditions: Sequence[Condition]) -> tuple[Cause, ...]:
    """Sort into causes, what no entry accepts first: a value that was compiled for before
    recompiles only together with it. Parameters are frozen by what changed beside them."""
    ranked = sorted(
        conditions,
        key=lambda cond: (
            cond.novel is False,
            REGISTER[cond.decision.code].changed == "metadata"
            and cond.decision.kind == "parameter"
            and any(other.decision.code == "CD104" for other in conditions),
            cond.decision.order,
            cond.position,
        ),
    )
    return tuple(_make_cause(cond, primary=not index) for index, cond in enumerate(ranked))


def _make_cause(condition: Condition, *, primary: bool = False) -> Cause:
    decision, false = condition.decision, condition.false
    confidence: Confidence = "text" if condition.printed else "exact"
    changed = false.changed
    seen = changed.stack[:1] if changed and is_write_traced(changed, false.writers) else None
    return Cause(
        rule=decision.code,
        kind=decision.kind,
        source=false.source,
        variable=condition.variable,
        guard=false.text,
        expected=condition.expected,
        actual=condition.actual,
        location=condition.place,
        primary=primary,
        writers=seen or false.writers,
        confidence=confidence,
        novel=condition.novel,
        own=false.own,
        branched_on=false.branched_on,
        uses=false.uses,
        changed=changed,
        changed_by=false.changed_by,
    )


def _combine(conditions: Sequence[Condition]) -> Cause:
    """Make one cause of values compiled for before, each with others, never with one another."""
    parts = tuple(map(_make_cause, conditions))
    location = next((part.location for part in parts if part.location is not None), None)
    often = Counter(condition.variable for condition in conditions)
    # Of one that is there twice, such as a tensor whose size and dtype met, with what of it.
    names = (
        f"{condition.variable} ({condition.guard.aspect})"
        if often[condition.variable] > 1 and condition.guard.aspect
        else condition.variable
        for condition in conditions
    )
    return Cause(
        COMBINATION,
        variable=", ".join(names),
        actual=", ".join(part.value for part in parts),
        location=location,
        writers=tuple(dict.fromkeys(writer for part in parts for writer in part.writers)),
        parts=parts,
        novel=False,
    )


def merge_companions(own: Sequence[Condition], every: Iterable[Condition]) -> tuple[Condition, ...]:
    """Merge each companion in `own` into its buffer. `every` holds the conditions of all
    entries: a farther one may be the only one that shows that the buffer grew."""
    buffers = [c for c in (*every, *own) if REGISTER[c.decision.code].changed == "tensor"]
    growing = [c for c in buffers if c.decision.kind == "shape"]
    growing += [c for c in own if c in buffers]
    merged: list[Condition] = []
    for condition in own:
        partner = next((buffer for buffer in growing if _belongs_to(condition, buffer)), None)
        if partner is None:
            merged.append(condition)
        elif partner.variable_path not in [other.variable_path for other in own]:
            decision = replace(partner.decision, kind="companion", order=condition.decision.order)
            expected, actual = _name_values(condition, partner)
            merged.append(
                replace(
                    condition,
                    decision=decision,
                    variable=partner.variable,
                    expected=expected,
                    actual=actual,
                )
            )
    return tuple(merged)


def _name_values(own: Condition, partner: Condition) -> Iterator[str | None]:
    """Name whose the values of a companion are, which stands under the name of its buffer."""
    path = own.variable_path
    name = path.member if path is not None and path != partner.variable_path else None
    for value in (own.expected, own.actual):
        yield f"{name}={value}" if name and value is not None else value


def _belongs_to(cond: Condition, buffer: Condition) -> bool:
    """True if `cond` is a value on the object that holds `buffer`, and goes with it."""
    mine, its = cond.variable_path, buffer.variable_path
    if cond.guard.check == "shape" and its is not None:
        # `x.size()[0] > self.seq_len`: the int has become a symbol.
        named = find_paths(cond.false.text)
        return any(path.hops and path != its and path.holder == its.holder for path in named)
    if cond is buffer or mine is None or its is None or mine == its:
        return False
    if cond.guard.check not in _VALUES or REGISTER[cond.decision.code].owner != "object":
        return False
    if cond.decision.kind in ("shape", "created") or mine.holder != its.holder:
        return False
    # `cached_freqs_seq_len` and `cached_freqs`.
    one, other = sorted(((path.member or "").strip("_") for path in (mine, its)), key=len)
    if one and f"_{one}_" in f"_{other}_":
        return True
    # An int that became a size the buffer has now.
    actual = (cond.actual or "").strip()
    if actual.isdigit() and actual in _NUMBER.findall(buffer.actual or ""):
        return True
    # A bool or None that turned, read in the function that reads the buffer.
    flag = not {cond.expected, cond.actual}.isdisjoint(("True", "False", "None"))
    where, there = cond.place, buffer.place
    if not flag or where is None or there is None:
        return False
    return (where.file, where.function) == (there.file, there.function)


def mark_known_parts(entries: Sequence[Sequence[Condition]]) -> list[tuple[Condition, ...]]:
    """Mark a part of something new as known (`novel` False) where an entry accepts that part."""
    refused = [{_identify_part(cond) for cond in entry} for entry in entries]
    # Sources of tensors that an entry refuses for nothing but a mode that is another one now.
    accepted: set[str] = set()
    for entry in entries:
        gone = Invalidated(entry)
        hidden = [(gone.is_hidden(cond), cond.false.source) for cond in entry]
        shown = {source for hides, source in hidden if not hides}
        accepted.update(source for hides, source in hidden if hides and source not in shown)
    of_that_kind = _find_known_kind(entries)

    def is_novel(cond: Condition) -> bool | None:
        if not cond.novel:
            return cond.novel
        if cond.guard.check in OBJECT_GONE and cond.variable_path in of_that_kind:
            return False
        if cond.guard.check not in ("tensor", "state"):
            return cond.false.source not in accepted
        what, aspect = _identify_part(cond)
        hides = {(what, refusal) for refusal in (aspect, None, *_HIDES)}
        # No entry accepts all of it: one that refuses nothing of it does not guard it at all.
        return all(hides & parts for parts in refused if any(part[0] == what for part in parts))

    return [tuple(replace(cond, novel=is_novel(cond)) for cond in entry) for entry in entries]


def mark_new_variables(entries: Sequence[Sequence[Condition]]) -> list[tuple[Condition, ...]]:
    """Mark a variable as new (`novel` True) where each of all entries that there are refuses it:
    one may have nothing against its length, another one nothing against its keys."""
    refused = [{identify_condition(cond) for cond in entry} for entry in entries]
    everywhere = set[Hashable].intersection(*refused)
    of_that_kind = _find_known_kind(entries)

    def is_novel(cond: Condition) -> bool | None:
        if cond.guard.check in OBJECT_GONE and cond.variable_path in of_that_kind:
            return cond.novel
        return identify_condition(cond) in everywhere or cond.novel

    return [tuple(replace(cond, novel=is_novel(cond)) for cond in entry) for entry in entries]


def _find_known_kind(entries: Sequence[Sequence[Condition]]) -> set[GuardPath | None]:
    """Find the containers of whose length or keys an entry refuses something: what it was compiled
    for was no None and nothing of another type."""
    conditions = (cond for entry in entries for cond in entry)
    return {cond.variable_path for cond in conditions if cond.guard.check in STRUCTURE} - {None}


def _identify_part(condition: Condition) -> tuple[Hashable, str | None]:
    guard = condition.guard
    aspect = guard.aspect
    if guard.check == "state" and aspect is not None:
        aspect = ".".join(aspect.split()[0].split(".")[:2])
    return ("state" if guard.check == "state" else condition.false.source), aspect


def find_combination(entries: Sequence[Sequence[Condition]]) -> tuple[Condition, ...]:
    """Find the fewest known values that no entry accepts together; empty where one may be new."""
    own = select_this_instance(entries)
    conditions = [condition for entry in own for condition in entry]
    refused = [{identify_condition(condition) for condition in entry} for entry in own]
    first = {
        identify_condition(condition): condition
        for condition in reversed(conditions)
        if condition.novel is False
    }
    often = Counter(identity for parts in refused for identity in parts if identity in first)
    everywhere = set[Hashable].intersection(*refused) if refused else set[Hashable]()
    if everywhere or any(condition.novel for condition in conditions):
        return ()
    # In an order of their own: that of a set differs from process to process.
    tried = sorted(often, key=lambda identity: (-often[identity], _make_order_key(first[identity])))
    tried = tried[:_MAX_TRIED]
    for size in range(2, min(_MAX_PARTS, len(tried)) + 1):
        for chosen in itertools.combinations(tried, size):
            if all(parts.intersection(chosen) for parts in refused):
                return tuple(sorted(map(first.__getitem__, chosen), key=_make_order_key))
    return ()


def _make_order_key(condition: Condition) -> tuple[int, str, str]:
    """Make a key that is the same in every recompile, whichever entry comes first."""
    return condition.decision.order, condition.variable, condition.guard.aspect or ""
