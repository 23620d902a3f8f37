"""Python values that changed, wherever they are from (CD101, CD104, CD107, CD109, CD117): what
happened, what to do, and what may be tried: settings, a number as a tensor, a value that is set
before the call, one flag for all calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.rules import changes, facts
from compilediag.rules.changes import LISTABLE, Edit, ProgramChange
from compilediag.rules.fix_context import (
    FIRST_WITH_UNBACKED,
    PARAMETER,
    FixContext,
    edit_calls,
    list_calls,
    parse_argument,
    propose_call_changes,
)
from compilediag.rules.make_finding import Advice
from compilediag.rules.objects import DISABLED_HOOK, MOVED_OUTSIDE
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.timeline.ownership import classify_ownership

EACH_VALUE = Advice(
    "warm up each value of {name} before the timed steps; or write one function per value of "
    "{name}, compile each, and choose outside",
    "one graph per value, each a compile: only for values that are few",
)
EACH_STATE = Advice(
    "warm up every state that the timed steps have, {name} being one part of it",
    "one graph per state",
)
PASSED_AS_TENSOR = Advice(
    "where {function} only computes with {name}, pass it as a 0-dim tensor in the dtype of what it "
    "meets; or warm up each value of {name} before the timed steps",
    EACH_VALUE.caveat,
)
HELD_AS_TENSOR = Advice(
    "where {function} only computes with {name}, make it a 0-dim tensor in the dtype of what it "
    "meets, and change it in place (fill_, add_); or warm up each value of {name} before the timed "
    "steps",
    "a buffer of a module is in state_dict unless persistent=False",
)
ALWAYS_A_TENSOR = Advice(
    "pass {name} as a tensor at every call, torch.tensor({i}), of the shape and dtype that it has "
    "in the others"
)
SET_BEFORE = Advice(
    "set {name} before the first compiled call, to the value that {function} gives it"
)
INSTANCES = Advice(
    "compile the container of the instances once; or warm up each instance",
    "raise recompile_limit only as a last resort: each instance costs a compile",
)


def _describe_captured(group: Group) -> TitleAndAdvice:
    title = "closure flag" if facts.is_of_hook(group) else "captured value"
    if group.kind == "tensor":
        title = "captured tensor"
    elif facts.is_callable(group):
        title = "captured function or object"
    elif ".environ[" in group.variable:
        title = "environment value changed"
    elif facts.is_number(group.first.expected) and not facts.is_branched_on(group):
        title = "captured number"
    return title, _choose_advice(group)


def _describe_attribute(group: Group) -> TitleAndAdvice:
    advice = _choose_advice(group)
    title = "attribute of an object" if facts.is_of_object(group) else "module attribute"
    if facts.is_container(group) and group.variable.endswith("._modules"):
        title = "submodules added or removed"
    elif advice is SET_BEFORE:
        title = "attribute that the compiled code fills"
    elif advice is EACH_STATE:
        title = "attribute that a package reads"
    elif facts.is_container(group):
        title = "attribute container"
    elif group.kind in ("attribute_set", "type"):
        title = f"attribute {'of another type' if group.kind == 'type' else 'added or removed'}"
    return title, advice


def _describe_global(group: Group) -> TitleAndAdvice:
    advice = _choose_advice(group)
    if group.kind == "environment":
        return "environment value changed", advice
    return ("global variable of a package" if advice is EACH_STATE else "global variable"), advice


def _choose_advice(group: Group) -> Advice:
    """Choose the advice about a value that no call passes."""
    if facts.is_of_hook(group):
        return DISABLED_HOOK
    if group.code == "CD104" and facts.is_filled_inside(group):
        return SET_BEFORE
    if group.code in ("CD104", "CD109"):
        in_package = classify_ownership(group.location.file) == "third_party"
        if in_package or (group.code == "CD104" and facts.is_read_below(group)):
            return EACH_STATE
        if facts.is_container(group):
            return MOVED_OUTSIDE
    return HELD_AS_TENSOR if _may_be_tensor(group) else EACH_VALUE


def _describe_argument(group: Group) -> TitleAndAdvice:
    before, after = group.first.expected or "", group.first.actual or ""
    types, number = ("torch.Tensor", "Tensor"), facts.is_number(before)
    if (number and (after in types or after.startswith("Tensor "))) or (
        before in types and after in ("int", "float")
    ):
        return "number in some calls, tensor in others", ALWAYS_A_TENSOR
    title = "Python value as argument"
    if group.kind == "tensor_index":
        title = "0-dim tensor used as an index"
    elif not facts.is_branched_on(group):
        title = "Python number as argument" if number else title
        title = "bool argument" if before in ("True", "False") else title
    return title, PASSED_AS_TENSOR if _may_be_tensor(group) else EACH_VALUE


def _may_be_tensor(group: Group) -> bool:
    """True for a number that no branch reads, and of which no graph is known to need the value."""
    known = [text for text in _list_shown_values(group) if text is not None]
    numbers = bool(known) and all(map(facts.is_number, known))
    return numbers and not facts.is_branched_on(group) and not facts.is_constant(group)


def _list_shown_values(group: Group) -> list[str | None]:
    return [text for cause in group.causes for text in (cause.expected, cause.actual)]


RULES = (
    RecompileRule("CD101", _describe_captured),
    RecompileRule("CD104", _describe_attribute),
    RecompileRule("CD107", _describe_argument),
    RecompileRule("CD109", _describe_global),
    RecompileRule("CD117", lambda _: ("instances share code and differ", INSTANCES)),
)


# --- settings that need no edit ----------------------------------------------------------------

_NUMBERS = ("CD101", "CD104", "CD107", "CD109", "CD117")
_OF_MODULES = ("CD104", "CD117")


def find_dynamic_int(group: Group, version: Version) -> str | None:
    """Find the source of an int to list: torch then takes it for dynamic from the first compile on.
    A branch on its value keeps a guard on it, which recompiles all the same."""
    source = group.first.source
    if group.code not in _NUMBERS or not LISTABLE.fullmatch(source):
        return None
    if source.startswith("G") and version < FIRST_WITH_UNBACKED:
        return None
    if "cell_contents" in source:  # a captured int is reached as a local of the compiled function
        return None
    constant = group.code == "CD107" and facts.is_constant(group)
    fits = all(map(facts.is_integer, _list_shown_values(group))) and not facts.is_branched_on(group)
    return source if fits and not constant else None


def find_dynamic_float(group: Group, version: Version) -> str | None:
    """Find the option that makes a float dynamic from the first compile on, not from the second."""
    if group.code not in (*_NUMBERS, "CD116") or version < FIRST_WITH_UNBACKED:
        return None
    constant = group.code == "CD107" and facts.is_constant(group)
    works = all(map(facts.is_float, _list_shown_values(group))) and not facts.is_branched_on(group)
    return "assume_static_by_default=False" if works and not constant else None


def find_unspecialised_int(group: Group, version: Version) -> str | None:
    """Find the option by which an int of a module becomes dynamic at its second value."""
    if group.code not in _OF_MODULES or version < FIRST_WITH_UNBACKED or len(group.values) < 2:
        return None
    fits = all(map(facts.is_integer, _list_shown_values(group))) and not facts.is_branched_on(group)
    return "allow_unspec_int_on_nn_module=True" if fits else None


# --- changes ------------------------------------------------------------------------------------

_EVERY_NAMESAKE = "holds for every compiled function with a variable of this name"
_EVERYWHERE = "holds for every compiled function, which may run slower"


def propose_settings(context: FixContext) -> Iterator[ProgramChange]:
    """Propose an option of torch's configuration, where it has no variable of the environment."""
    if context.finding.rule not in _NUMBERS or context.version >= FIRST_WITH_UNBACKED:
        return
    if context.are_integers and context.finding.rule in _OF_MODULES:
        yield changes.make_option_change("allow_unspec_int_on_nn_module", True, _EVERYWHERE, left=1)
    elif context.seen and all(map(facts.is_float, context.seen)):
        yield changes.make_option_change("assume_static_by_default", False, _EVERYWHERE)


def propose_branched_settings(context: FixContext) -> Iterator[ProgramChange]:
    """Propose a setting for a number that the code branches on: each outcome of the branch has a
    graph then, not each number. An edit that leaves no recompile comes first."""
    new = context.version >= FIRST_WITH_UNBACKED
    if context.finding.rule not in _NUMBERS or not new or context.finding.fix.candidates:
        return
    if context.are_integers and LISTABLE.fullmatch(context.source):
        yield changes.make_sources_change(context.source, _EVERY_NAMESAKE, left=1)
    elif context.are_numbers:
        yield changes.make_override_change("assume_static_by_default", False, _EVERYWHERE, left=1)


AS_TENSOR = "the function gets a tensor: a Python branch on it is no longer possible"


def propose_tensor_arguments(context: FixContext) -> Iterator[ProgramChange]:
    """Propose a number that is an argument itself as a tensor: where it is a size, torch needs it
    as a number, and the trial fails."""
    argument = parse_argument(context.source) if context.finding.rule == "CD107" else None
    numbers = [value for value in context.seen if facts.is_number(value)]
    if argument is None or not numbers or context.seen[0] not in numbers:
        return
    if all(map(facts.is_integer, numbers)):
        yield from propose_call_changes(context, argument, "tensor", "torch.tensor(_)", AS_TENSOR)
    else:
        code = "torch.tensor(_, dtype=torch.float32)"
        yield from propose_call_changes(context, argument, "tensor(torch.float32)", code, AS_TENSOR)


_GLOBAL = re.compile(r"G\['([A-Za-z_]\w*)'\]")
_ATTRIBUTE = re.compile(r".*(?:\.|\._buffers\[')([A-Za-z_]\w*)(?:'\])?")


def propose_number_tensors(context: FixContext) -> Iterator[ProgramChange]:
    """Propose a number that the program holds (an attribute, a global, or a variable of a function
    around) as a tensor: an edit of the file that reads it."""
    rule, place = context.finding.rule, context.finding.location
    if rule not in _NUMBERS or rule == "CD107" or not context.are_numbers:
        return
    shown = context.finding.variable or ""
    name = shown if rule == "CD101" and shown.isidentifier() else None
    match = _GLOBAL.fullmatch(context.source)
    if match is None and not context.source.endswith(".cell_contents"):
        match = _ATTRIBUTE.fullmatch(context.source)
    if match is not None:
        name = match[1]
    if name is None or place is None or not place.line or not context.is_own(place.file):
        return
    # Not float64: torch reads such a tensor without dimensions as a number, and traces again.
    dtype = "int64" if context.are_integers else "float32"
    yield ProgramChange(
        "source",
        f"{place.file}:{place.line}: {shown or name} as a 0-dim tensor (torch.{dtype}), changed in "
        "place",
        "other code that reads it gets a tensor; `.item()` gives the number",
        edits=(Edit(place.file or "", place.line, "number_as_tensor", (name, dtype)),),
    )


_OF_SELF = re.compile(r"L\['self'\]((?:\.\w+|\['\w+'\])+)")
_REGISTERED = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")
_FROM_THE_START = (
    "it has this value from the first call on, even where other code would set it differently"
)


def propose_assignments(context: FixContext) -> Iterator[ProgramChange]:
    """Propose an assignment before each call that compiled."""
    match, values = _OF_SELF.fullmatch(context.source), set(context.values)
    if context.finding.rule != "CD104" or match is None or len(values) != 1:
        return
    ((_, value),) = values
    if not context.evidence.writers or not _is_literal(value):
        return
    # An item of nn.ModuleList and nn.Sequential has a number for its name.
    path = _REGISTERED.sub(lambda m: f"[{m[1]}]" if m[1].isdecimal() else f".{m[1]}", match[1])
    name = context.function.function.rpartition(".")[2] if context.function is not None else ""
    edits: list[Edit] = []
    for call in list_calls(context):
        # What the guard calls `self`: what is called, or what has the method.
        owner = call.tree.func
        if isinstance(owner, ast.Attribute) and owner.attr == name:
            owner = owner.value
        text = ast.unparse(owner)
        if not facts.PLAIN.fullmatch(text):
            return
        edits.append(Edit(call.place.file, call.place.line, "before", (f"{text}{path} = {value}",)))
    if edits:
        yield edit_calls(edits, f"{edits[0].code[0]}  # before the call", _FROM_THE_START)


def _is_literal(text: str) -> bool:
    try:
        value: object = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return value is None or isinstance(value, (bool, int, float, str))


_KEYWORD = re.compile(r"\['([A-Za-z_]\w*)'\]")


def propose_fixed_flags(context: FixContext) -> Iterator[ProgramChange]:
    """Propose one flag for all calls, which pass it themselves or among keywords that the function
    collects."""
    match = PARAMETER.fullmatch(context.source)
    if context.finding.rule != "CD107" or match is None or {*context.seen} != {"True", "False"}:
        return
    keyword = _KEYWORD.fullmatch(match[2])
    if match[2] and keyword is None:
        return
    name = match[1] if keyword is None else keyword[1]
    calls = list_calls(context)
    for value in ("True", "False"):
        edits: list[Edit] = []
        for call in calls:
            key = call.find_key(name)
            if key is None:
                edits.append(call.make_keyword_edit(name, value))
            elif call.arguments[key] != value:
                edits.append(call.make_argument_edit(key, value))
        if edits:
            risk = "every call takes the same side of what the flag decides"
            yield edit_calls(edits, f"pass {name}={value}", risk)
