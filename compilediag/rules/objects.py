"""Containers, objects and optional arguments that changed, and which of several objects was passed
(CD102, CD108, CD110, CD112 to CD115); what changed and no guard sees (CD119).

What may be tried: an argument that some calls lack (a mask that hides nothing: what it does in the
function the trial shows), and hooks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.changes import Edit, ProgramChange
from compilediag.rules.facts import PLAIN, is_held_by_package, is_of_hook
from compilediag.rules.fix_context import (
    PARAMETER,
    ArgumentKey,
    FixContext,
    SourceCall,
    edit_calls,
    list_calls,
)
from compilediag.rules.make_finding import Advice, make_finding, pick
from compilediag.rules.recompiles import RecompileRule, TitleAndAdvice
from compilediag.rules.rule import list_compile_ids
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import UnguardedChanged, UserCall

MOVED_OUTSIDE = Advice(
    "keep {name} outside the compiled function: pass as tensors what {function} reads of it, and "
    "return what it puts into it; or fill it before the first compiled call",
    "filling it helps only where it then stays as it is",
)
DISABLED_HOOK = Advice(
    "put torch.compiler.disable on {function}",
    "costs a graph break per call site, and the loop that calls it runs eager",
)
SAME_STRUCTURE = Advice(
    "pass {name} with the same type, length and keys at every call; or warm up each that the timed "
    "steps have",
    "one graph for each",
)
KEYWORDS = Advice(
    "warm up calls with and without {keywords}; or pass a value of one type and shape at every "
    "call, a neutral one where it has no effect",
    "one graph per set of keywords",
)
OPTIONAL = Advice(
    "warm up calls with and without {name}; or pass a value of one type and shape at every call, a "
    "neutral one where it has no effect",
    "warming up keeps two graphs",
)
ONE_OBJECT = Advice(
    "make {name} once, outside the loop, and keep it; or warm up each that the timed steps use",
    "one graph for each",
)
ONE_BACKEND = Advice(
    "create the backend and its options once, at module level, and compile {function} once",
    "a functools.partial made per call does not help",
)
DISTINCT = Advice(
    "pass {inputs} always as distinct tensors: .clone() one of them",
    "a copy of the tensor per call",
)
HOOKS_BEFORE = Advice("register all hooks before the first compiled call, and keep them")


def _describe_argument(group: Group) -> TitleAndAdvice:
    keyed = group.kind in ("members", "missing", "keys") or (
        group.kind == "length" and "key" in f"{group.first.expected}{group.first.actual}"
    )
    title = "container argument of another length"
    if is_held_by_package(group):
        title = "container of a package with other keys"
    elif keyed or group.kind == "type":
        title = f"container argument {'with other keys' if keyed else 'of another type'}"
    return title, SAME_STRUCTURE


def _describe_object(group: Group) -> TitleAndAdvice:
    titles = {"dead_object": "a guarded object died", "type": "argument of another type"}
    return titles.get(group.kind or "", "another function or class was passed"), ONE_OBJECT


_MEMBER = re.compile(r"'(?P<key>\w+)' (?:absent|present)")
_COUNT = re.compile(r"(?P<count>\d{1,6}) keys?")


def describe_keywords(finding: Finding, _: Group, timeline: Timeline) -> Finding:
    """Describe CD108 by its keywords, where the calls show that the container is `**kwargs` and
    which keywords differ."""
    if finding.parts or finding.variable is None:
        return finding
    calls = [
        (_list_keywords(earlier, finding.variable), _list_keywords(later, finding.variable))
        for earlier, later in _iterate_pairs(finding, timeline)
    ]
    keywords: set[str] = set()
    for before, after in GuardEvidence.parse(finding.evidence).values:
        named: set[str] = set()
        member = _MEMBER.fullmatch(before or "") or _MEMBER.fullmatch(after or "")
        if member is not None:  # the text of the change itself names one
            named = {member["key"]} if any(names for pair in calls for names in pair) else set()
        else:  # the calls of the two compiles differ by as many as were counted
            counted = [_COUNT.fullmatch(text or "") for text in (before, after)]
            counts = tuple(int(match["count"]) if match else None for match in counted)
            fitting = (pair for pair in calls if (len(pair[0]), len(pair[1])) == counts)
            one, other = next(fitting, (set[str](), set[str]()))
            named = one ^ other
        if not named:
            return finding
        keywords |= named
    if not keywords:
        return finding
    shown = ", ".join(f"`{keyword}`" for keyword in sorted(keywords))
    summary = KEYWORDS.fix.format(keywords=shown)
    fix = replace(finding.fix, summary=summary, caveat=KEYWORDS.caveat)
    return replace(finding, title=f"keyword argument passed in some calls: {shown}", fix=fix)


def _iterate_pairs(finding: Finding, timeline: Timeline) -> Iterator[tuple[UserCall, UserCall]]:
    """Iterate pairs of calls: one compiled an entry that did not fit, the other compiled again."""
    ids = list_compile_ids(finding)
    compiles = {event.id: event for event in timeline.compiles}
    for again in timeline.recompiles:
        if again.compile_id in ids and again.entered_at is not None:
            for entry in again.entries:
                missed = compiles.get(CompileId(again.process, again.epoch, entry.compile_id))
                if missed is not None and missed.entered_at is not None:
                    yield missed.entered_at, again.entered_at


def _list_keywords(call: UserCall, variable: str) -> set[str]:
    """List what a call passes by name into `**variable`."""
    opening = f"{variable}['"
    return {
        parameter.removeprefix(opening).removesuffix("']")
        for parameter, _ in call.arguments
        if parameter.startswith(opening)
    }


_NOUNS = {
    "forward_hook": "forward hook",
    "forward_pre_hook": "forward pre-hook",
    "class_method": "method of the class",
    "instance_method": "method of the instance",
}


def find_unguarded_changes(timeline: Timeline) -> Iterable[Finding]:
    """CD119: a hook or method that changed after the compile is ignored, and nothing recompiles."""
    by_target: dict[tuple[str, str], list[UnguardedChanged]] = {}
    for change in timeline.unguarded:
        by_target.setdefault((change.what, change.target), []).append(change)
    for (what, target), changes in by_target.items():
        action = "register it" if "hook" in what else "replace it"
        yield make_finding(
            timeline,
            "CD119",
            f"{_NOUNS.get(what, what.replace('_', ' '))} changed after compile and is ignored",
            f"{action} before the first compiled call, or call torch._dynamo.reset() after it",
            caveat="reset() compiles everything again",
            variable=target,
            location=next((change.where for change in changes if change.where), changes[0].frame),
            count=len(changes),
            steps=(change.step for change in changes),
            evidence={
                "kind": what,
                "target": target,
                "frames": [
                    pick(frame, "function", "file", "line")
                    for frame in dict.fromkeys(change.frame for change in changes)
                ],
            },
        )


RULES = (
    RecompileRule(
        "CD102",
        lambda group: ("closure container", DISABLED_HOOK if is_of_hook(group) else MOVED_OUTSIDE),
    ),
    RecompileRule("CD108", _describe_argument, (describe_keywords,)),
    RecompileRule("CD110", _describe_object),
    RecompileRule("CD112", lambda _: ("same code, another backend object", ONE_BACKEND)),
    RecompileRule("CD113", lambda _: ("inputs alias differently", DISTINCT)),
    RecompileRule("CD114", lambda _: ("argument is None in some calls", OPTIONAL)),
    RecompileRule("CD115", lambda _: ("number of hooks changed", HOOKS_BEFORE)),
)


# --- changes ------------------------------------------------------------------------------------

Shape = tuple[int, ...]
Size = tuple[ArgumentKey, int] | int
"""A dimension of another argument, or a number."""

_VALUES = {"torch.bool": ("ones", "zeros"), "torch.int64": ("ones", "zeros")}
"""In the order of trying; of other dtypes zeros first, which are added."""

_NEUTRAL_RISK = "adds a tensor to every call; attention with a mask may use a slower kernel"


def propose_neutral_arguments(context: FixContext) -> Iterator[ProgramChange]:
    """Propose a neutral value for an argument that some calls lack, as edits of those calls."""
    calls = list_calls(context)
    # Of the tensor that comes at times; a length of keywords does not show it.
    seen = (dtype for value in context.seen for dtype in re.findall(r"torch\.\w+$", value))
    dtypes = [*dict.fromkeys(seen)]
    name = _find_optional_parameter(context, calls, dtypes)
    passing = [call for call in calls if name is not None and call.find_key(name) is not None]
    if name is None or not passing:
        return
    sizes = _find_size_sources(_list_call_shapes(context), passing[0], passing[0].find_key(name))
    if sizes is None:
        return
    lacking = [call for call in calls if call not in passing]
    for dtype in ["torch.int64", "torch.bool"] if context.finding.rule == "CD108" else dtypes:
        for value in _VALUES.get(dtype, ("zeros", "ones")):
            edits = [_make_edit(call, name, sizes, value, dtype) for call in lacking or passing]
            made = [edit for edit in edits if edit is not None]
            if len(made) == len(edits):
                yield edit_calls(made, f"pass {name}={made[0].code[2]}", _NEUTRAL_RISK)


def _find_optional_parameter(
    context: FixContext, calls: Sequence[SourceCall], dtypes: Sequence[str]
) -> str | None:
    """Find the parameter that only some calls pass, if a value may change nothing there."""
    match = PARAMETER.fullmatch(context.source)
    if match is None or match[2] or not calls:
        return None
    if context.finding.rule == "CD108":
        keywords = [{key for key in call.arguments if isinstance(key, str)} for call in calls]
        some = set[str]().union(*keywords) - {*keywords[0]}.intersection(*keywords[1:])
        return min(some) if len(some) == 1 and "mask" in min(some) else None
    known = [*dtypes] == ["torch.bool"] or re.search("mask|bias|weight|scale|factor", match[1])
    return match[1] if context.finding.rule == "CD114" and known else None


_TENSOR = re.compile(r"(?:([\w.\[\]']+)=)?\[([\d, ]*)\]")


def _list_call_shapes(context: FixContext) -> list[dict[ArgumentKey, Shape]]:
    """List the shapes of the tensors of calls, by position or keyword."""
    function = context.function
    rows: list[dict[ArgumentKey, Shape]] = []
    for called in context.receipt.invocations:
        if function is None or (called.file, called.line) != (function.file, function.line):
            continue
        for recorded in called.shapes:
            row: dict[ArgumentKey, Shape] = {}
            for name, sizes in _TENSOR.findall(recorded.shapes):
                shape = tuple(int(size) for size in sizes.split(",") if size.strip())
                row[name or sum(isinstance(key, int) for key in row)] = shape
            rows.append(row)
    return rows


def _find_size_sources(
    rows: Sequence[Mapping[ArgumentKey, Shape]], call: SourceCall, key: ArgumentKey | None
) -> list[Size] | None:
    """Find the source of each size of an argument in all calls that pass it: the dimension of
    another argument that may be read twice, or a number."""
    places = len(call.tree.args)
    own = [row for row in rows if key in row and sum(isinstance(k, int) for k in row) == places]
    if key is None or len({len(row[key]) for row in own}) != 1:
        return None
    others = [other for other in own[0] if PLAIN.fullmatch(call.arguments.get(other, ""))]
    sizes: list[Size] = []
    for at, number in enumerate(own[0][key]):
        same = (
            (other, dimension)
            for other in others
            for dimension in sorted(range(len(own[0][other])), key=lambda dim: dim != at)
            if other != key
            and all(row.get(other, ())[dimension : dimension + 1] == (row[key][at],) for row in own)
        )
        sizes.append(next(same, number))
    return sizes


def _make_edit(
    call: SourceCall, name: str, sizes: Sequence[Size], value: str, dtype: str
) -> Edit | None:
    """Make the edit that fills the argument in; None where an argument may not be read twice."""
    others = {size[0]: call.arguments.get(size[0], "") for size in sizes if isinstance(size, tuple)}
    if not all(map(PLAIN.fullmatch, others.values())):
        return None
    shape = [
        str(size) if isinstance(size, int) else f"{others[size[0]]}.shape[{size[1]}]"
        for size in sizes
    ]
    device = f", device={next(iter(others.values()))}.device" if others else ""
    whole = ", ".join(shape) + "," * (len(shape) == 1)
    fill = f"torch.{value}(({whole}), dtype={dtype}{device})"
    key = call.find_key(name)
    if key is None:
        return call.make_keyword_edit(name, fill)
    given = call.arguments[key]
    if PLAIN.fullmatch(given):
        return call.make_argument_edit(key, f"{fill} if _ is None else _")
    tree = ast.parse(given, mode="eval").body
    if not isinstance(tree, ast.IfExp):
        return None
    body, other = ast.unparse(tree.body), ast.unparse(tree.orelse)
    if (body == "None") == (other == "None"):
        return None
    body, other = (fill if text == "None" else text for text in (body, other))
    return call.make_argument_edit(key, f"{body} if {ast.unparse(tree.test)} else {other}")
