"""Facts about the recompiles of one cause: who passes the value, who sets it, and what the code
does with it. What is not recorded is no fact."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.causes.conditions import make_condition
from compilediag.diagnosis.guards.families import STRUCTURE
from compilediag.rules.make_finding import format_place
from compilediag.timeline.compiles import FrameId, parse_frame_id
from compilediag.timeline.ownership import classify_ownership
from compilediag_harness.blame.writes_in_source import iterate_conditions, iterate_truth_parts
from compilediag_harness.wire import Location

PLAIN = re.compile(r"""[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:\w+|'[^']*'|"[^"]*")\])*""")
"""An expression that is the same object when it is read again, and nothing else happens."""

ROOT = re.compile(r"(?:args|kwargs)\[[^\]]+\]|\w+")
_LOCAL = re.compile(r"L\['(\w+)'\](.*)")
"""The source of an argument, or of a part of one."""
_STRIDES = re.compile(r"\d+")
_CALLABLE = re.compile(r"(?:^|[._])(?:function|method)(?:[._]\w+)* object$")
_TABLE = re.compile(r"\._(?:modules|parameters|buffers)\Z")
_SUBSCRIPT = re.compile(r"\[[^\[\]]*\]")
_HOOK = re.compile(r"_hooks(?:_with_kwargs|_always_called)?\[")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")
_COUNTED = re.compile(r"\d+ (?:items?|keys?)\b|.*(?:absent|present)$")


def find_break_before(group: Group) -> tuple[str, str] | None:
    """Find the function and place of the graph break that made the value an argument: the frame
    goes on behind one, and the value is no attribute or global, which the whole function would
    guard just as well."""
    frame = group.recompiles[0].frame
    match = _RESUMED.fullmatch(frame.function)
    if match is None or group.owner != "argument":
        return None
    return match["function"], format_place(frame.file, match["line"])


def is_held_by_package(group: Group) -> bool:
    """True where compiled code of a package gets the value from a call that is not the program's:
    the last line of the program's own passes nothing for it."""
    first = group.recompiles[0]
    if first.entered_at is None or classify_ownership(first.frame.file) == "user":
        return False
    for variable in group.variables:
        path, arguments = get_passed_arguments(group, variable)
        root = ROOT.match(path)
        if root and any(f"{name}[".startswith(f"{root[0]}[") for name in arguments):
            return False
    return True


def get_passed_arguments(group: Group, variable: str) -> tuple[str, dict[str, str]]:
    """Get the variable as guards name it, and what the first recompile's call passes.

    Returns:
        The path ("x", "data.x"), and the expressions passed by parameter; empty without a call.
    """
    call = group.recompiles[0].entered_at
    sources = {part.variable: part.first.source for part in group.parts}
    # Calls are bound to the parameters of what was compiled, as guards name them: a variable may
    # have the name that a module behind torch's own wrapper gives it.
    local = _LOCAL.fullmatch(sources.get(variable, ""))
    path = variable if local is None else local[1] + local[2]
    return path, {} if call is None else dict(call.arguments)


def is_field_of_argument(group: Group) -> bool:
    """True for an attribute of an object, no module, that the call passes."""
    root = _LOCAL.match(group.first.source)
    return root is not None and root[1] not in ("self", "fn") and is_of_object(group)


def is_of_object(group: Group) -> bool:
    """True for an attribute of an object that is no module: it has no buffers."""
    kinds = {
        guard.facts.holder_kind
        for recompile in group.recompiles
        for entry in recompile.entries
        for guard in entry.guards
        if guard.source == group.first.source
    }
    return kinds == {"object"}


def is_of_hook(group: Group) -> bool:
    """True where a registered hook holds the value."""
    return any(_HOOK.search(cause.source) for cause in group.causes)


def is_callable(group: Group) -> bool:
    """True where the value is a function or method."""
    return any(_CALLABLE.search(text or "") for text in (group.first.expected, group.first.actual))


def is_container(group: Group) -> bool:
    """True where the length or the keys of a container changed."""
    shown = (group.first.expected or "", group.first.actual or "")
    return group.kind in STRUCTURE or any(map(_COUNTED.match, shown))


def is_read_below(group: Group) -> bool:
    """True for an attribute that no line of the user's reads: what the line calls does, and takes
    it as it is."""
    if classify_ownership(group.location.file) == "torch":
        return True
    # A module keeps its children, parameters and buffers in dicts, which no line names. An item may
    # be written in other quotes, or by a variable: its container is named.
    holder, _, member = _SUBSCRIPT.sub("", _TABLE.sub("", group.variable)).rpartition(".")
    lines = [cause.line_text for cause in group.causes if cause.line_text]
    named = re.compile(rf"\b{re.escape(member)}\b")
    return bool(holder and lines) and not any(map(named.search, lines))


def is_filled_inside(group: Group) -> bool:
    """True where the function that reads the value gives it one where it has none."""

    def get_place_name(place: Location) -> tuple[str, str]:
        return place.file, place.function.rpartition(".")[2]  # without what it is nested in

    here = get_place_name(group.location)
    return all(
        cause.expected == "None" and here in map(get_place_name, cause.writers)
        for cause in group.causes
    )


def infer_memory_format(strides: str) -> str | None:
    """Infer the memory format of a tensor of 4 or 5 dimensions whose channels are innermost.

    Returns:
        The name in torch, "channels_last"; None for any other layout.
    """
    numbers = [int(stride) for stride in _STRIDES.findall(strides)]
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


def is_float(text: str | None) -> bool:
    """True for a float that is no infinity, as guards show it."""
    return is_number(text) and not is_integer(text) and math.isfinite(float(text or ""))


def is_branched_on(group: Group) -> bool:
    """True where the function that reads the value branches on it: in its source as the process had
    it, or in the line that is recorded."""
    return any(
        cause.branched_on or has_branch_on(cause.line_text or "", cause.variable)
        for cause in group.causes
    )


def is_constant(group: Group) -> bool:
    """True where one frame of one process was compiled again for a further value: torch makes a
    number dynamic at its second value, unless the code needs it as a constant. Where the code only
    computes with it, it does not: `dynamic=False` made it one.

    An entry that was compiled at one of these recompiles and does not read the value (on another
    side of a branch) leaves it to the next: it shows nothing.
    """
    if all(is_only_computed(cause.line_text or "", cause.variable) for cause in group.causes):
        return False
    compiled: dict[FrameId, set[str]] = {}
    again: Counter[FrameId] = Counter()
    for cause, recompile in zip(group.causes, group.recompiles, strict=True):
        frame = FrameId(recompile.process, recompile.epoch, parse_frame_id(recompile.compile_id))
        values = compiled.setdefault(frame, set())
        demanded = {
            make_condition(guard).expected or ""
            for entry in recompile.entries
            for guard in entry.guards
            if guard.source == cause.source
        }
        again[frame] += not values or not demanded or bool(values & demanded)
        if again[frame] > 1:
            return True
        values.add(cause.actual or "")
    return False


def has_branch_on(line: str, variable: str) -> bool:
    """True where a condition in the line reads the variable, such as "level" or "self.level": a
    tensor in its place would break the graph. False where the line is no whole statement: nothing
    is known then."""
    tree = _parse_line(line)
    if tree is None or not variable:
        return False
    return any(
        _is_variable(node, variable)
        for test in iterate_conditions(tree)
        for node in iterate_truth_parts(test)
    )


_COMPUTES = (
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
    *(ast.Return, ast.Assign, ast.AugAssign, ast.Expr, ast.Module),
)


def is_only_computed(line: str, variable: str) -> bool:
    """True where the line reads the variable, and only as an operand of arithmetic: not as an
    index, a bound or an argument of a call."""
    tree = _parse_line(line)
    if tree is None or not variable:
        return False
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    nodes = [node for node in ast.walk(tree) if _is_variable(node, variable)]
    for node in nodes:
        around = parents.get(id(node))
        while around is not None:
            if not isinstance(around, _COMPUTES):
                return False
            around = parents.get(id(around))
    return bool(nodes)


def _parse_line(line: str) -> ast.AST | None:
    # A line is a whole statement, or the head of one: `if x:` parses only with a body.
    line = line.strip()
    header = line.removeprefix("el") if line.startswith("elif ") else line
    for text in (line, f"{header} pass", f"def f():\n {header}", f"def f():\n {header} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _is_variable(node: ast.AST, variable: str) -> bool:
    """True where an expression is the variable; displayed names may lack the `self` in front."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    spelled = ast.unparse(node)
    return spelled == variable or spelled.endswith(f".{variable}")
