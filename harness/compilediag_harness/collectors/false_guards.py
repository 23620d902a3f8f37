"""Describes the false guards of a cache entry: what each expected, what it found, and where.

torch prints the first false guard of an entry; all of them must be true to avoid the recompile.
"""

from __future__ import annotations

import ast
import functools
import re
import types
from collections import Counter
from collections.abc import Set, Sized
from dataclasses import replace
from typing import Any, cast

from compilediag_harness.base.object_graph import MISSING, format_type_name, get_class
from compilediag_harness.blame import guard_sources, source_locations, writers
from compilediag_harness.blame.value_uses import SIZES, find_uses
from compilediag_harness.blame.writers import ReachableNames
from compilediag_harness.blame.writes_in_source import find_store_beside_read
from compilediag_harness.collectors import guard_facts, leaf_checks
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.leaf_checks import ExaminedEntry
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import (
    EntryDiff,
    FalseGuard,
    GuardFacts,
    Location,
    UserCall,
    ValueChange,
    ValueUse,
    clip,
)

MAX_GUARDS, MAX_OF_A_KIND = 128, 32
"""False guards described of one entry, and of one kind of leaf: where thousands of tensors changed
alike, the one flag that changed too is still among them."""

_COMMENT_START = re.compile(r"(?<!\s)\s{2,}#\s")
_COMMENT_CHARS = 4096
"""Where to look for the comment that ends a guard text, in characters from its end."""
_ONE_TENSOR = re.compile(r"(L\[.*) is (L\[.*)")
_OBJECT_ID = re.compile(r"___check_obj_id\((?P<source>.*), (?P<id>\d+)\)")
_TYPE_NAME = re.compile(r", type=<class '([^']*)'>$")
_VALUE_LEAVES = (
    *("EQUALS_MATCH", "ID_MATCH", "CONSTANT_MATCH", "TRUE_MATCH", "FALSE_MATCH", "SHAPE"),
)
_LAST_NAME = re.compile(r"(?:\.|^[LG]\[['\"]|__dict__\[['\"])(?P<name>\w+)(?:['\"]\])?$")
"""The variable or attribute at the end of a source."""
_LAST_ITEM = re.compile(r"\['\w+'\]$")
_CONSTANTS = {"TRUE_MATCH": "True", "FALSE_MATCH": "False", "NONE_MATCH": "None"}
_SINGLETONS = {id(True): "True", id(False): "False", id(None): "None"}


def describe_entry(
    examined: ExaminedEntry,
    code: types.CodeType,
    baselines: Baselines,
    reach: ReachableNames,
    accepted: Set[str] | None = None,
) -> EntryDiff:
    """Describe the false guards of one cache entry of `code`. `accepted`: the targets of guards
    (`Leaf.target`) whose present value another entry accepts; None where that is not known."""
    entry = _FailedEntry(examined, code, baselines, reach)
    kind_counts: Counter[str] = Counter()
    guards: list[FalseGuard] = []
    chosen = 0
    for leaf in examined.false:
        kind_counts[leaf.kind] += 1
        if kind_counts[leaf.kind] > MAX_OF_A_KIND or chosen >= MAX_GUARDS:
            continue
        chosen += 1
        for guard in entry.describe_leaf(leaf):
            # Of what was None, or of another type, the type is all that there is to accept.
            whole = guard.expected == "None" or leaf.kind == "TYPE_MATCH"
            names = {leaf.target, *((leaf.source, leaf.type_target) if whole else ())}
            # A shape condition is about several sizes: others accept them by other conditions.
            told = accepted is not None and leaf.check is not None
            novel = names.isdisjoint(accepted or ()) if told else None
            guards.append(replace(guard, novel=novel))
    return EntryDiff(
        entry.compile_id,
        tuple(guards),
        examined.checked,
        examined.unevaluated,
        left_out=len(examined.false) - chosen,
    )


class _FailedEntry:
    """A cache entry with false guards, and what was noted when it was compiled."""

    def __init__(
        self,
        examined: ExaminedEntry,
        code: types.CodeType,
        baselines: Baselines,
        reach: ReachableNames,
    ) -> None:
        self.compile_id = str(examined.entry.compile_id)
        self._scope, self._values, self._baselines = examined.scope, examined.values, baselines
        self._baseline = baseline = baselines.get_facts(code, self.compile_id)
        self._compiled = writers.CompiledCode(code, examined.scope, baseline.functions, reach)
        self._uses = dict[str, tuple[ValueUse, ...] | None]()

    def describe_leaf(self, leaf: torch_guards.Leaf) -> list[FalseGuard]:
        """Describe a false leaf: one guard, or one for each thing that differs about a tensor."""
        leaf = self._resolve_source(leaf)
        scope, tensor_type = self._scope, self._baselines.tensor_type
        value = self._values.get(leaf.source, MISSING)
        parts = leaf.parts or [""]  # read once: torch makes them anew each time
        text = strip_comments(parts[0])
        differences: tuple[leaf_checks.Mismatch, ...] = ()
        if leaf.condition and value is None:
            differences = (leaf_checks.describe_type(leaf.source, "torch.Tensor", value),)
        elif leaf.kind == "TENSOR_MATCH":
            differences = leaf_checks.find_mismatches(text, value, tensor_type)
        elif leaf.kind == "GLOBAL_STATE" and hasattr(leaf.check, "check_verbose"):
            text = str(leaf.check.check_verbose(value).verbose_code_parts[0]).strip()
        elif len(parts) > 1:  # dimension markings (mark_dynamic): one text each, find the false one
            code = map(strip_comments, parts)
            text = next((p for p in code if guard_sources.evaluate_source(p, scope) is False), text)
        expected, actual = _format_values(leaf.kind, text, value, tensor_type)
        keys = self._baseline.keys.get(leaf.source) if leaf.kind == "DICT_LENGTH" else None
        if keys and keys < (now := guard_facts.list_keys(value)):
            came = clip(", ".join(map(repr, sorted(now - keys))), 100)
            expected, actual = f"{came} absent", f"{came} present"
        facts, user = GuardFacts(), self._find_user_line(leaf, parts[0])
        if value is not MISSING:
            facts = guard_facts.collect(leaf, value, scope, self._compiled.code, self._baseline)
        writes = self._find_writers(leaf, parts[0], value, user)
        guard = FalseGuard(
            source=clip(leaf.source, 2048),
            leaf=leaf.kind,
            text=clip(text, 2048),
            expected=expected,
            actual=actual,
            user=user,
            hint=_find_hint(leaf.kind, parts[0]),
            facts=facts,
            writers=writes,
            own=self._find_own_line(leaf, user),
            uses=self._find_uses(leaf, facts),
        )
        return [
            replace(
                guard,
                text=clip(text, 2048),
                expected=expected,
                actual=actual,
                changed=self._find_change(leaf, text, facts, writes),
            )
            for text, expected, actual in differences
        ] or [replace(guard, changed=self._find_change(leaf, text, facts, writes))]

    def _resolve_source(self, leaf: torch_guards.Leaf) -> torch_guards.Leaf:
        """A condition on one Python number, `(1.0 + L['a']) == 1.9`, as a leaf with its source, and
        one that two arguments are one tensor, of which one is None now."""
        condition = strip_comments(leaf.condition) if leaf.kind == "SHAPE" else ""
        if (one_tensor := _ONE_TENSOR.fullmatch(condition)) is not None:
            sources, kinds = one_tensor.groups(), (type(None),)
        else:
            sources, kinds = [_find_only_source(condition)], (int, float)
        for source in filter(None, sources):
            value = guard_sources.evaluate_source(source, self._scope)
            if type(value) in kinds:
                self._values[source] = value
                return leaf._replace(source=source)
        return leaf

    def _find_user_line(self, leaf: torch_guards.Leaf, text: str) -> Location | None:
        """The user's line: of this very guard where torch names it, else of any guard of its
        source; a line inside torch gives way to the user's line that called it."""
        named = source_locations.parse_comment_location(text[-_COMMENT_CHARS:])
        if named is not None:
            inlined = (file for file, _ in self._baseline.functions)
            named = source_locations.complete_path(named, inlined)
            # Paths like Windows' "C:\\..." are absolute also where the trace is of another system.
            is_absolute = named.file.startswith(("/", "<")) or named.file[1:3] == ":\\"
            if is_absolute and not source_locations.is_library(named.file):
                return named
        # 2.7 and 2.8 note the line that called the closure, not that in it that reads the variable.
        closure_line = guard_facts.find_closure_line(leaf.source, self._scope, self._compiled.code)
        return closure_line or self._baseline.find_line(leaf) or named

    def _find_own_line(self, leaf: torch_guards.Leaf, user: Location | None) -> UserCall | None:
        """The program's own line that led to a line of a library, which was compiled with it."""
        own = self._baseline.find_line(leaf, own=True)
        if own is None or user is None or source_locations.is_own(user.file):
            return None
        return source_locations.describe_line(own)

    def _find_writers(
        self, leaf: torch_guards.Leaf, text: str, value: Any, user: Location | None
    ) -> tuple[Location, ...]:
        """Functions that write the value, first the one of a package that reads it first, where it
        assigns it too."""
        holder = guard_sources.find_holder(leaf.source, self._scope)
        of_member = leaf.kind == "NO_HASATTR"
        if leaf.kind == "DICT_CONTAINS" and holder is not None and holder.name == "__dict__":
            of_member, value = True, holder.value
        member = guard_sources.parse_member(text) if of_member else None
        if member is not None:
            writes = writers.find_attribute_writers(value, member, self._compiled)
        else:
            writes = guard_facts.find_writers(leaf.source, self._compiled) if leaf.source else ()
        name = guard_sources.parse_attribute(leaf.source)
        if user is None or name is None or source_locations.is_own(user.file):
            return writes
        line = find_store_beside_read(user.file, user.line, name)
        if line is None or any((write.file, write.line) == (user.file, line) for write in writes):
            return writes
        return (Location(user.file, line, user.function), *writes)

    def _find_uses(self, leaf: torch_guards.Leaf, facts: GuardFacts) -> tuple[ValueUse, ...] | None:
        """Find what reads a number or flag, and what for: the lines that made guards on it, and the
        methods of the class that holds it that went into the graph; of a tensor, what reads sizes
        of tensors."""
        if leaf.kind == "TENSOR_MATCH":
            return self._find_uses_anywhere(SIZES)
        last = _LAST_NAME.search(leaf.source)
        name = facts.free_variable or (None if last is None else last["name"])
        item = None if name is not None else _LAST_ITEM.search(leaf.source)
        if item is not None and leaf.kind in _VALUE_LEAVES:  # whoever has the container may read it
            return self._find_uses_anywhere(item[0])
        if name is None or leaf.kind not in _VALUE_LEAVES:
            return None
        places = dict(self._baseline.readers.get(leaf.source, {}))
        if leaf.source == f"L['{name}']":  # functions that it is passed to call it otherwise
            places = {source_locations.get_last_line(self._compiled.code): None}
        holder = guard_sources.find_holder(leaf.source, self._scope)
        if holder is not None and holder.is_attribute:
            places |= dict.fromkeys(
                writers.find_class_reads(get_class(holder.value), name, self._compiled)
            )
        reach = self._compiled.reach
        return find_uses([(place, reach.get_names(place.file)) for place in places], name)

    def _find_uses_anywhere(self, name: str) -> tuple[ValueUse, ...] | None:
        """Find what all functions that went into the graph do with what is read by a name."""
        if name in self._uses:
            return self._uses[name]
        lines = [line for lines in self._baseline.readers.values() for line in lines]
        places = {(line.file, line.function): line for line in lines}
        reach = self._compiled.reach
        readers = [(at, reach.get_names(at.file)) for at in places.values()]
        self._uses[name] = find_uses(readers, name)
        return self._uses[name]

    def _find_change(
        self, leaf: torch_guards.Leaf, text: str, facts: GuardFacts, writes: tuple[Location, ...]
    ) -> ValueChange | None:
        """Find how write tracing saw the value change; inside a compiled call with the one line
        that its source has for it in the functions that were compiled into it, if there is one."""
        code, tracer = self._compiled.code, self._baselines.write_tracer
        if tracer is None:
            return None
        if facts.inference_mode is not None:  # torch has no guard on it: the keys of tensors differ
            leaf, text = leaf._replace(kind="GLOBAL_STATE"), ": inference_mode"
        change = tracer.find_last_change(leaf, text, self.compile_id, self._scope, code)
        if change is None or not change.in_call:
            return change
        inlined = self._baseline.functions
        lines = [line for line in writes if (line.file, line.function.split(".")[-1]) in inlined]
        return replace(change, stack=(*lines, *change.stack)) if len(lines) == 1 else change


@functools.lru_cache(1024)
def _find_only_source(condition: str) -> str | None:
    """Find the one path that a condition reads; None where it reads several, or calls something."""
    tree = guard_sources.parse_expression(condition)
    nodes = [] if tree is None else list(ast.walk(tree))
    if any(isinstance(node, ast.Call) for node in nodes):
        return None
    paths = [node for node in nodes if isinstance(node, (ast.Subscript, ast.Attribute))]
    inner = {id(node.value) for node in paths}
    sources = {ast.unparse(node) for node in paths if id(node) not in inner}
    return sources.pop() if len(sources) == 1 else None


def strip_comments(text: str) -> str:
    """Strip the trailing comments and padding from a guard text."""
    return _COMMENT_START.split(text, maxsplit=1)[0].strip()


def _format_values(kind: str, text: str, value: Any, tensor: type) -> tuple[str | None, str | None]:
    """(expected, actual) if the leaf's class decides; compilediag parses the rest from the text."""
    if kind == "GLOBAL_STATE":  # "grad_mode=off", of those that are on or off
        modes = torch_guards.read_global_modes().items()
        changed = [
            f"{m}={'on' if now else 'off'}" for m, now in modes if m in text and now in (0, 1)
        ]
        return None, " ".join(changed) or None
    if value is MISSING:
        return None, None
    if kind in ("DICT_LENGTH", "LENGTH_CHECK"):
        size = re.search(r"[!=]= (\d+)$", text)
        container = cast(Sized, value)
        expected = guard_facts.format_size(container, int(size[1]) if size else 0)
        return expected, guard_facts.format_size(container)
    if kind == "NO_HASATTR":
        name = guard_sources.parse_member(text) or "attribute"
        return f"'{name}' absent", f"'{name}' present"
    if kind in ("DICT_CONTAINS", "SET_CONTAINS"):
        key = guard_sources.parse_key(text) or "key"
        absent, present = f"{key} absent", f"{key} present"
        return (absent, present) if text.startswith("not ") else (present, absent)
    if kind == "TYPE_MATCH" and isinstance(value, (dict, list, tuple, set, frozenset)):
        named = _TYPE_NAME.search(text)  # torch 2.7 names none
        return named and named[1], format_type_name(value)
    actual = guard_facts.format_value(value, tensor)
    id_match = _OBJECT_ID.match(text)
    if id_match is not None:  # enum members; on 2.7 also True, False and None
        held = int(id_match["id"])
        return _SINGLETONS.get(held) or guard_facts.find_enum_member(value, held), actual
    return _CONSTANTS.get(kind), actual


def _find_hint(kind: str, text: str) -> str | None:
    """The closure variable torch names; for a shape condition its whole explanation, which names
    the code or duck sizing as its cause."""
    if kind == "SHAPE":
        _, *comment = _COMMENT_START.split(text, maxsplit=1)
        return clip(comment[0].strip(), 1000) if comment else None
    match = re.search(r'\(HINT: guard on "([^"]{1,200})"\)', text)
    return match[1] if match else None
