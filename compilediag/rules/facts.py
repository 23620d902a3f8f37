"""Facts about the recompiles of one cause: who passes the value, who sets it, what the code does
with it, and which settings are in force. A recipe is printed only where its facts are known; what
is not recorded is no fact."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from compilediag.diagnosis.causes.behind_breaks import BehindBreaks
from compilediag.diagnosis.causes.cause_group import DimensionChange, Group, find_changed_dims
from compilediag.diagnosis.findings import Cause
from compilediag.diagnosis.guards.families import STRUCTURE
from compilediag.diagnosis.guards.size_limits import SIZE, holds
from compilediag.rules.make_finding import format_place
from compilediag.timeline.compiles import Compile, FrameId, Recompile, get_compile_id
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.base.resumed_frames import find_resumed_function, find_resumed_line
from compilediag_harness.wire import InputsGuarded, UserCall, ValueUse

PLAIN = re.compile(r"""[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:\w+|'[^']*'|"[^"]*")\])*""")
"""An expression that is the same object when it is read again, and nothing else happens."""

ROOT = re.compile(r"(?:args|kwargs)\[[^\]]+\]|\w+")
_LOCAL = re.compile(r"L\['(\w+)'\](.*)")
"""The source of an argument, or of a part of one."""
_STRIDES = re.compile(r"\d+")
_CONSTANT = re.compile(r"(\S+\.size\(\)\[\d+\]) == \d+")
_HOOK = re.compile(r"_hooks(?:_with_kwargs|_always_called)?\[")
_COUNTED = re.compile(r"(\d+) (?:items?|keys?)\b")
_UNSET = re.compile(r"(?:None|False|.* absent)$|\d+ (?:items?|keys?)\b")

_READ = re.compile(r"\.(?:item|tolist)\(\)|_local_scalar_dense")
STATIC = re.compile(r"\._(?:buffers|parameters)\[")
"""Their sizes are constants of every graph, whether the code needs that or not: torch's options
`force_nn_module_property_static_shapes` and `force_parameter_static_shapes`."""

TENSOR_USES = frozenset({"arithmetic", "operand"})
"""Uses in which a tensor does what the number does."""
INT_USES = frozenset(
    {"arithmetic", "operand", "scalar", "number", "slice", "symbolic_math", "bound"}
)
"""Uses in which an int may be dynamic: torch keeps it as a symbol."""


@dataclass(frozen=True)
class Facts:
    """Facts that a run shows about one cause."""

    group: Group
    timeline: Timeline
    behind: BehindBreaks = field(default_factory=BehindBreaks)

    def is_own(self, file: str) -> bool:
        """True where a file is the program's own."""
        return classify_ownership(file, self.timeline.user_roots) == "user"

    @cached_property
    def compiles(self) -> list[Compile]:
        """Every attempt to compile a frame that the cause compiled again, in time order."""
        frames = {event.id.frame for event in self.group.all_recompiles}
        return [event for event in self.timeline.compiles if event.key in frames]

    @cached_property
    def _forward(self) -> list[Compile]:
        return [event for event in self.compiles if event.kind != "backward"]

    @cached_property
    def calls(self) -> list[UserCall] | None:
        """The calls of the program's own by which these frames were compiled, each once; None where
        one is not known, or stands in compiled code itself."""
        return self._find_calls(self._forward)

    def _find_calls(self, compiles: Iterable[Compile | Recompile]) -> list[UserCall] | None:
        calls = [event.entered_at for event in compiles]
        if not calls or not all(call and self.is_own(call.file) for call in calls):
            return None
        frames = [frame.where for frame in self.timeline.frames]
        compiled = {(at.file, find_resumed_function(at.function) or at.function) for at in frames}
        if any(call and (call.file, call.function) in compiled for call in calls):
            return None
        return [*dict.fromkeys(call for call in calls if call is not None)]

    @cached_property
    def holder(self) -> str | None:
        """The kind of what the value is read from, such as "module" or "object"."""
        guards = (
            guard
            for event in self.group.recompiles
            for entry in event.entries
            for guard in entry.guards
            if guard.source == self.group.first.source
        )
        return next((guard.facts.holder_kind for guard in guards), None)

    def find_passed(self, variable: str) -> str | None:
        """Find the expression that every call of the program's own passes for a variable, or below
        it for a part of one; None where they differ, or one is not known."""
        path, _ = get_passed_arguments(self.group, variable)
        root = ROOT.match(path)
        passed: set[str | None] = set()
        for call in self.calls or ():
            arguments = dict(call.arguments)
            holder = arguments.get(root[0], "") if root is not None else ""
            below = f"{holder}{path[root.end() :]}" if root and PLAIN.fullmatch(holder) else None
            passed.add(arguments.get(path, below))
        return passed.pop() if len(passed) == 1 else None

    @cached_property
    def first_call(self) -> list[UserCall] | None:
        """The calls of the program's own that may be made eager once, of a frame behind breaks
        those of the function that broke first; None where one is not known, or may be of more than
        what is compiled, as that of a trainer."""
        outermost = [self._find_outermost(event) for event in self._forward]
        calls = self._find_calls(outermost)
        # An optimizer's `step` is wrapped by torch: then the frame has the name of the wrapper.
        own = {self.group.location.function, *(event.frame.function for event in outermost)}
        names = {name.rpartition(".")[2] for name in own}
        direct = all(
            call.arguments or call.text.partition("(")[0].rpartition(".")[2] in names
            for call in calls or ()
        )
        return calls if direct else None

    def _find_outermost(self, event: Compile | Recompile) -> Compile | Recompile:
        """Find the compile of the function that broke first, behind which one is; else that."""
        above = self.behind.list_above(event.id)
        return self.behind.compiles[above[-1]] if above else event

    @cached_property
    def later(self) -> list[Cause]:
        """The causes but for that in which the second call finds set what was unset in the first:
        had that been eager, nothing would have been compiled for it."""
        both = zip(self.group.causes, self.group.recompiles, strict=True)
        return [cause for cause, event in both if not self._is_set_in_first(cause, event)]

    def _is_set_in_first(self, cause: Cause, event: Recompile) -> bool:
        """True where the first call found a value unset, the second set, and no other unset."""
        # A number that became a tensor is a sum that begins with 0.
        summed = is_number(cause.expected) and (cause.actual or "").startswith("Tensor")
        unset = summed or _UNSET.match(cause.expected or "") is not None
        counted = (_COUNTED.match(text or "") for text in (cause.expected, cause.actual))
        counts = [-1 if match is None else int(match[1]) for match in counted]
        if counts[0] > counts[1] >= 0:  # something was taken out
            return False
        if cause.expected == "False":  # a flag of the program's may change as well
            unset = cause.is_set_within
        return unset and self.is_second_call(event) and not self._is_first_served_after(event)

    def _is_first_served_after(self, event: Recompile) -> bool:
        """True where the first graph of a frame served a call after a recompile."""
        return any(
            run.again and run.t > event.t and run.compile_id.endswith("/0")
            for run in self.timeline.served
            if get_compile_id(run).frame == event.id.frame
        )

    def is_second_call(self, event: Recompile) -> bool:
        """True where a recompile is in the call after the one that its frame was compiled in."""
        first = {known.key: known.t for known in self.compiles if known.compile_id.endswith("/0")}
        begun = first.get(event.id.frame)
        made = [calls for calls in self.timeline.invocations if calls.process == event.process]
        outer = self._find_outermost(event).frame
        place = outer.file, outer.line
        own = [calls for calls in made if (calls.function.file, calls.function.line) == place]
        moments = [moment for calls in own or made for moment in calls.at]
        return begun is not None and sum(begun < moment <= event.t for moment in moments) == 1

    @cached_property
    def is_split(self) -> bool:
        """True where every graph that takes a size as dynamic refuses one that was compiled before
        it: the sizes are on several sides of the code's conditions, and each has its graph."""
        return any(
            self._is_refused(event.id.frame, cause.source, change)
            for cause, event in self.group.members
            for change in find_changed_dims(cause.expected, cause.actual)
            if change.before not in ("0", "1")
        )

    def _is_refused(self, frame: FrameId, source: str, change: DimensionChange) -> bool:
        """True where each graph of a frame that takes a size as dynamic has a condition on it that
        does not hold for the sizes of a graph that was made for what it was before a change."""
        size, compiled = f"{source}.size()[{change.dimension}]", self._list_inputs(frame)
        sizes = [
            {
                f"{its.source}.size()[{at}]": n
                for its in event.tensors
                for at, n in enumerate(its.shape)
            }
            for event in compiled
        ]
        before = int(change.before)
        known = [its for its in sizes if its.get(size) == before] or [{size: before}]
        refused: list[bool] = []
        for event in compiled:
            # A graph for other constants, as for a batch of one, refuses these sizes for those.
            fixed = {at[1]: at[0] for at in map(_CONSTANT.fullmatch, event.conditions) if at}
            texts = [text for text in event.conditions if size in SIZE.findall(text)]
            alike = [its for its in known if not _is_any_false(fixed.values(), its)]
            if texts and size not in fixed and alike:
                refused.append(_is_any_false(texts, alike[0]))
        return bool(refused) and all(refused)

    def _list_inputs(self, frame: FrameId) -> list[InputsGuarded]:
        """List what is known of the inputs of each graph of a frame."""
        inputs = self.timeline.guarded_inputs
        return [event for event in inputs if get_compile_id(event).frame == frame]

    @cached_property
    def begins_within(self) -> bool:
        """True where the first graph was made for a view that begins within its tensor, and was
        called, or another compiled, for one that may begin where the tensor does: if its sizes are
        dynamic, torch makes a graph for each of both."""
        frames = {event.id.frame for event in self.group.all_recompiles}
        served = any(map(self._is_first_served_after, self.group.all_recompiles))
        offsets: dict[tuple[FrameId, str], list[bool]] = {}
        for event in self.timeline.guarded_inputs:
            frame = get_compile_id(event).frame
            for its in event.tensors if frame in frames else ():
                offsets.setdefault((frame, its.source), []).append(its.offset > 1)
        own = ((frame, part.first.source) for part in self.group.parts for frame in frames)
        within = (offsets.get(key, [False]) for key in own)
        return any(begins[0] and (served or not all(begins)) for begins in within)

    @cached_property
    def has_own_symbols(self) -> bool:
        """True where no size that varies, in any frame, was that of another dimension too in the
        first call, but of those that change with it: torch takes sizes that are equal then for one
        symbol, if all are dynamic; and sizes of a base and offsets in it."""
        own = {
            (cause.source, change.dimension)
            for cause, _ in self.group.members
            for change in find_changed_dims(cause.expected, cause.actual)
        }
        varying: dict[FrameId, set[tuple[str, int]]] = {}
        for event in self.timeline.recompiles:
            for guard in (guard for entry in event.entries for guard in entry.guards):
                changes = find_changed_dims(guard.expected, guard.actual)
                dims = {(guard.source, change.dimension) for change in changes}
                varying.setdefault(event.id.frame, set()).update(dims)
        for frame, dims in varying.items():
            first = [its for its in self._list_inputs(frame) if its.compile_id.endswith("/0")]
            held = [t for event in first for t in event.tensors if not STATIC.search(t.source)]
            by_size: dict[int, set[tuple[str, int]]] = {}
            for its in held:
                for at, size in enumerate(its.shape):
                    by_size.setdefault(size, set()).add((its.source, at))
            shared = (alike for alike in by_size.values() if len(alike) > 1 and alike & dims)
            within = any(its.offset > 1 for its in held)
            if not held or within or not all(alike <= own for alike in shared):
                return False
        # A text log tells nothing of sizes.
        return all(varying.get(event.id.frame) for event in self.group.all_recompiles)

    @cached_property
    def has_read_numbers(self) -> bool:
        """True where the program breaks a graph to read a number out of a tensor. What is done with
        it behind the break is not known, and not all of that takes a symbol (`random.Random`)."""
        return any(map(_READ.search, (broken.text for broken in self.timeline.breaks)))

    @cached_property
    def is_static(self) -> bool:
        """True where a setting makes each size a constant, whatever the code does: another one that
        is compiled says nothing about the code then."""
        for process in self.timeline.processes:
            requests = process.facts.get("compile_requests")
            asked = cast("list[object]", requests) if isinstance(requests, list) else []
            for one in (*asked, process.facts.get("compile")):
                if not isinstance(one, dict):
                    continue
                flags = cast("Mapping[str, object]", one)
                if flags.get("dynamic") is False or flags.get("automatic_dynamic_shapes") is False:
                    return True
        return False


def _evaluate_condition(text: str, sizes: Mapping[str, int]) -> bool | None:
    """True if a condition holds for these sizes, by their names; None if one is not known."""
    names = {name: f"s{n}" for n, name in enumerate(sizes)}
    renamed = SIZE.sub(lambda match: names.get(match[0], "unknown"), text)
    return holds(renamed, {names[name]: size for name, size in sizes.items()})


def _is_any_false(conditions: Iterable[str], sizes: Mapping[str, int]) -> bool:
    """True where a condition is known not to hold for these sizes."""
    return any(_evaluate_condition(text, sizes) is False for text in conditions)


def list_uses(group: Group) -> tuple[ValueUse, ...] | None:
    """List what the code does with the value of a group, each use once; None where that is not
    known of any of its recompiles."""
    known = [cause.uses for cause in group.causes if cause.uses is not None]
    return tuple(dict.fromkeys(use for uses in known for use in uses)) if known else None


def is_used_as(group: Group, kinds: frozenset[str]) -> bool:
    """True where the uses of the value are known, and all of these kinds."""
    uses = list_uses(group)
    return bool(uses) and all(use.kind in kinds for use in uses)


def is_branched_on(group: Group) -> bool:
    """True where a condition reads the value."""
    uses = list_uses(group) or ()
    return any(use.kind == "condition" for use in uses) or any(
        cause.branched_on for cause in group.causes
    )


def list_values(group: Group) -> list[str]:
    """List the values of a group that are shown, before and after each change."""
    shown = (text for cause in group.causes for text in (cause.expected, cause.actual))
    return [text for text in shown if text is not None]


def find_break_before(group: Group) -> tuple[str, str] | None:
    """Find the function and place of the graph break that made the value an argument: the frame
    goes on behind one, and the value is no attribute or global, which the whole function would
    guard just as well."""
    frame = group.recompiles[0].frame
    function = find_resumed_function(frame.function)
    if function is None or group.owner != "argument":
        return None
    return function, format_place(frame.file, find_resumed_line(frame.function))


def get_passed_arguments(group: Group, variable: str) -> tuple[str, dict[str, str]]:
    """Get the variable as guards name it ("x", "data.x"), and the expressions that the first
    recompile's call passes by parameter; empty without a call."""
    call = group.recompiles[0].entered_at
    sources = {part.variable: part.first.source for part in group.parts}
    # Calls are bound to the parameters of what was compiled, as guards name them: a variable may
    # have the name that a module behind torch's own wrapper gives it.
    local = _LOCAL.fullmatch(sources.get(variable, ""))
    path = variable if local is None else local[1] + local[2]
    return path, {} if call is None else dict(call.arguments)


def is_of_hook(group: Group) -> bool:
    """True where a registered hook holds the value."""
    return any(_HOOK.search(cause.source) for cause in group.causes)


def is_container(group: Group) -> bool:
    """True where the length or the keys of a container changed."""
    shown = (group.first.expected or "", group.first.actual or "")
    return group.kind in STRUCTURE or any(map(_COUNTED.match, shown))


def parse_strides(text: str) -> list[int]:
    """Parse the strides of a tensor as guards print them."""
    return [int(stride) for stride in _STRIDES.findall(text)]


def infer_memory_format(strides: str) -> str | None:
    """Infer torch's name of the memory format of a tensor whose channels are innermost,
    "channels_last"; None for any other layout."""
    numbers = parse_strides(strides)
    names = {4: "channels_last", 5: "channels_last_3d"}
    order = [*numbers[:1], *numbers[2:], *numbers[1:2]]
    innermost = order == sorted(order, reverse=True) and numbers != sorted(numbers, reverse=True)
    return names.get(len(numbers)) if innermost else None


def is_number(text: str | None) -> bool:
    """True for an int or a float, as guards show it."""
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def is_integer(text: str | None) -> bool:
    """True for an int, as guards show it."""
    return re.fullmatch(r"-?\d+", text or "") is not None
