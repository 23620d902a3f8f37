"""Tensors that a module keeps and makes anew for the sizes it is called with: a mask, a table of
positions. One setting makes all sizes dynamic together; the branch that asks whether to make the
tensor anew keeps one graph for each of its sides."""

from __future__ import annotations

from packaging.version import Version

from compilediag.diagnosis.causes.cause_group import find_changed_dims
from compilediag.diagnosis.codes import SIZES
from compilediag.diagnosis.guards.size_limits import locate_size_limit
from compilediag.rules.changes import SOURCES, is_listable
from compilediag.rules.environment_variables import format_export
from compilediag.rules.facts import Facts, is_integer
from compilediag.rules.fix_context import FIRST_WITH_UNBACKED
from compilediag.rules.make_finding import Advice, format_place
from compilediag.rules.objects import FIRST_CALL
from compilediag.timeline.compiles import Recompile

GROWING = Advice(
    "start it with: {line}",
    "a graph stays for each side of a branch on these sizes; dynamic graphs may run slower",
    "dynamic_growth",
)
_HELD = "CD103"


def describe_growth(known: Facts, version: Version) -> Advice | None:
    """Describe the setting for a tensor that is held and grows; None where the frame is compiled
    again for something else too, or a size is 0 or 1."""
    group = known.group
    if group.code not in (*SIZES, _HELD) or version < FIRST_WITH_UNBACKED:
        return None
    frames = {(event.process, event.frame) for event in group.all_recompiles}
    sizes: dict[str, None] = {}
    created: list[Recompile] = []
    counted = known.timeline.counted_recompiles
    events = [event for event in counted if (event.process, event.frame) in frames]
    if len(events) <= len(group.all_recompiles):  # one may be a side of the branch, and stays
        return None
    for event in events:
        for guard in (guard for entry in event.entries for guard in entry.guards):
            changes = find_changed_dims(guard.expected, guard.actual)
            if any({change.before, change.after} & {"0", "1"} for change in changes):
                return None
            sizes |= dict.fromkeys(f"{guard.source}:{change.dimension}" for change in changes)
            if guard.leaf == "EQUALS_MATCH" and is_integer(guard.actual):  # the size that it has
                sizes[guard.source] = None
            elif guard.expected == "None" and (guard.actual or "").startswith("Tensor"):
                created.append(event)
            elif not changes and "size()" not in guard.text:
                return None
    limits = (
        locate_size_limit(guard, known.timeline.user_roots)
        for compiled in known.compiles
        for guard in known.timeline.size_guards.get(compiled.id, ())
    )
    branches = {(limit.inside or limit.place) for limit in limits if limit.how == "branch"}
    if len(branches) > 1:  # each keeps a graph for each of its sides
        return None
    held = created or any("." in size for size in sizes)
    listable = all(is_listable(size.partition(":")[0]) for size in sizes)
    if not sizes or not held or not listable:
        return None
    advice = GROWING.fill(line=format_export(SOURCES, ",".join(sorted(sizes))))
    if not created:
        return advice
    if known.first_call is None or not known.is_second_call(created[0]):
        return None
    places = dict.fromkeys(format_place(call.file, call.line) for call in known.first_call)
    first = FIRST_CALL.fill(places=" and ".join(places), name="what is made in it")
    return Advice(
        f"{advice.fix}, and {first.fix}", f"{advice.caveat}; {first.caveat}", advice.recipe
    )
